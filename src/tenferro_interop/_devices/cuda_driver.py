"""Calls into cuda-python's driver bindings, with failures as `BackendError`; imported only when a GPU is asked for."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from .. import _core
from .._errors import BackendError, UnsupportedError


@functools.cache
def driver() -> ModuleType:
    """Return `cuda.bindings.driver`, initialised.

    Raises `UnsupportedError` where there is no driver or no GPU.
    """
    try:
        from cuda.bindings import driver as bindings

        (status,) = bindings.cuInit(0)
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"a CUDA device needs the NVIDIA driver, got: {error}. Open the CPU device with `tfi.session('cpu')`",
            op="session",
        ) from error
    if int(status) != 0:
        raise UnsupportedError(
            f"a CUDA device needs a working NVIDIA driver, got {status.name}. Open the CPU device with "
            "`tfi.session('cpu')`",
            op="session",
            code=int(status),
        )
    missing = _core.load_driver()
    if missing is not None:
        raise UnsupportedError(f"the NVIDIA driver must offer {missing}, got none. Update the driver", op="session")
    module: ModuleType = bindings
    return module


@functools.cache
def device_count() -> int:
    """Return the number of visible GPUs; 0 without driver."""
    try:
        return int(call("session", driver().cuDeviceGetCount()))
    except UnsupportedError:
        return 0


def describe(status: Any) -> tuple[int, str, str]:
    """Return a CUresult's code, name and the driver's sentence about it."""
    from cuda.bindings import driver as bindings

    code = bindings.CUresult(int(status))
    _, text = bindings.cuGetErrorString(code)
    return int(code), code.name, (text or b"unknown error").decode()


def failure(op: str, status: Any, *, log: str = "", **facts: object) -> BackendError:
    """Return the error for a failed driver call."""
    code, name, text = describe(status)
    tail = f"\n{log.strip()}" if log.strip() else ""
    return BackendError(
        f"the driver reported {name} ({code}): {text}{tail}", op=op, code=code, name=name, log=log, **facts
    )


def call(op: str, result: tuple[Any, ...]) -> Any:
    """Return the values of a driver call, or raise `BackendError`."""
    if int(result[0]) != 0:
        raise failure(op, result[0])
    return result[1] if len(result) == 2 else result[1:]


@contextlib.contextmanager
def current(context: int) -> Iterator[None]:
    """Make a context current for a few calls, and give the previous one back."""
    bindings = driver()
    call("context", bindings.cuCtxPushCurrent(bindings.CUcontext(context)))
    try:
        yield
    finally:
        call("context", bindings.cuCtxPopCurrent())


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Allow calls that a capture elsewhere in the process would forbid; none of ours touches a captured stream."""
    bindings = driver()
    mode = call(
        "capture_mode",
        bindings.cuThreadExchangeStreamCaptureMode(bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED),
    )
    try:
        yield
    finally:
        call("capture_mode", bindings.cuThreadExchangeStreamCaptureMode(mode))
