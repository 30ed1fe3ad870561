"""What several tests share: programs in a process of their own, and small kernels."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from typing import NamedTuple

COPY = """
extern "C" __global__ void copy_f32(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
"""

AXPY = """
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""

FILL = """
extern "C" __global__ void fill(float* x, float value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}
"""



class Finished(NamedTuple):
    """How a subprocess ended."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float


def in_subprocess(code: str, timeout: float = 120.0) -> Finished:
    """Run a program in a fresh interpreter; `subprocess.TimeoutExpired` where it hangs."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr, time.perf_counter() - begin)
