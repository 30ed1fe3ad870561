"""What several tests share: programs in a process of their own, small kernels, and how a refusal looks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import tenferro_interop as tfi

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


def reader(session: tfi.Session, c_type: str, head: str = "") -> tfi.Function:
    """Return a kernel that reads `c_type` elements through its only parameter."""
    return session.compile_nvrtc(f'{head}\nextern "C" __global__ void reads(const {c_type}* x) {{}}').function("reads")


def writer(session: tfi.Session, c_type: str, head: str = "") -> tfi.Function:
    """Return a kernel that may write `c_type` elements through its only parameter."""
    return session.compile_nvrtc(f'{head}\nextern "C" __global__ void writes({c_type}* x) {{}}').function("writes")


def copied(session: tfi.Session, x: Any, n: int) -> list[float]:
    """Return the first `n` floats that a flat copy kernel reads from `x`."""
    y = session.alloc_output((n,), "float32")
    kernel = session.compile_nvrtc(COPY).function("copy_f32")
    session.launch(kernel, tfi.LaunchConfig.flat(n), [x, y, n])
    values: list[float] = session.download_tensor(y).tolist()
    return values


def still_launches(session: tfi.Session) -> bool:
    """Return whether the session runs a kernel, and rightly."""
    y = session.alloc_output((5,), "float32")
    session.launch(session.compile_nvrtc(FILL).function("fill"), tfi.LaunchConfig.flat(5), [y, 2.5, 5])
    return bool(session.download_tensor(y).tolist() == [2.5] * 5)


@contextlib.contextmanager
def refused(session: tfi.Session, cls: type[tfi.TenferroError], **facts: object) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect exactly this error class with these attributes, and a session that works on."""
    with pytest.raises(cls) as caught:
        yield caught
    assert type(caught.value) is cls
    assert {name: getattr(caught.value, name) for name in facts} == facts
    traceback.clear_frames(caught.tb)  # they may hold the refused tensor
    assert still_launches(session)


def reads(session: tfi.Session, x: Any, **options: bool) -> object:
    """Give `x` to `Session.tensor`."""
    return session.tensor(x, **options)


def writes(session: tfi.Session, x: Any, **options: bool) -> object:
    """Give `x` to `Session.tensor_mut`."""
    return session.tensor_mut(x, **options)


def launch_reads(session: tfi.Session, x: Any) -> None:
    """Give `x` to a launch that reads it."""
    session.launch(reader(session, "void"), tfi.LaunchConfig(1, 1), [x])


def launch_writes(session: tfi.Session, x: Any) -> None:
    """Give `x` to a launch that writes it."""
    session.launch(writer(session, "void"), tfi.LaunchConfig(1, 1), [x])


Use = Callable[[tfi.Session, Any], object]
READING: tuple[Use, ...] = (reads, launch_reads)
WRITING: tuple[Use, ...] = (writes, launch_writes)
EVERY_USE = READING + WRITING
