"""What does compiling cost cold, from disk, from memory; and does a launch slow down as kernels pile up?"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import torch

import tenferro_interop as tfi

from ._kernels import AXPY, ELEMENTS
from ._timing import per_call

CACHED = (1, 10, 100, 1000)
_TIMED = """
import time, torch, tenferro_interop as tfi
x = torch.zeros(8, device="cuda")
with tfi.session(like=x) as s:
    s.compile_nvrtc('extern "C" __global__ void first() {}')
    start = time.perf_counter_ns()
    s.compile_nvrtc(SOURCE).function("axpy")
    print(time.perf_counter_ns() - start)
"""


def run(results: dict[str, dict[str, float]]) -> None:
    """Add compile times in nanoseconds, and launch times by number of kernels alive."""
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "from disk, new process"):
            script = f"SOURCE = {AXPY!r}\n{_TIMED}"
            done = subprocess.run(
                [sys.executable, "-c", script], env={**os.environ, "TENFERRO_CACHE_DIR": cache}, check=True,
                capture_output=True, text=True,
            )  # fmt: skip
            results[f"compile {name}"] = {"median": float(done.stdout)}
    x = torch.zeros(ELEMENTS, device="cuda")
    with tfi.session(like=x) as s:
        s.compile_nvrtc(AXPY)
        start = time.perf_counter_ns()
        s.compile_nvrtc(AXPY).function("axpy")
        results["compile from memory"] = {"median": float(time.perf_counter_ns() - start)}
        _many(results, s, x)


def _many(results: dict[str, dict[str, float]], s: tfi.Session, x: torch.Tensor) -> None:
    config, kernels = tfi.LaunchConfig(1, 32), []
    for target in CACHED:
        while len(kernels) < target:
            source = f'extern "C" __global__ void k(float* x) {{ x[threadIdx.x] = {len(kernels)}; }}'
            kernels.append(s.compile_nvrtc(source).function("k"))
        timing = per_call(lambda: s.launch(kernels[-1], config, [x]), torch.cuda.synchronize)
        results[f"launch with {target} kernels alive"] = timing.as_dict()
