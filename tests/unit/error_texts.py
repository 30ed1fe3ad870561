"""What each refused call says: (call, class, whole text), all on the CPU device.  `test_errors.py` runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig
from tenferro_interop.testing import FakeProducer

SOURCE = """
struct Pair { char a; double b; };
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] += a * x[threadIdx.x];
}
extern "C" __global__ void pair(Pair p) {}
extern "C" __global__ void pairs(const Pair* p) {}
extern "C" __global__ void add4(float4* x) {}
extern "C" __global__ void __launch_bounds__(128) small() {}
extern "C" __global__ void divide(int* x, int d) { *x = *x / d; }
"""
ONE = LaunchConfig(1, 1)
X = np.zeros(4, np.float32)
Y = np.zeros(4, np.float32)
Call = Callable[[tfi.Session, tfi.Module], Any]


def axpy(*args: Any) -> Call:
    """Launch `axpy`; a function makes an argument in the session."""
    return lambda s, m: s.launch(m.function("axpy"), ONE, [each(s) if callable(each) else each for each in args])


def launch(kernel: str, config: Any, *args: Any) -> Call:
    return lambda s, m: s.launch(m.function(kernel), config, args)


def tensor(x: Any) -> Call:
    return lambda s, m: s.tensor(x)


def read_only() -> np.ndarray:
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    return x


def closed_session(s: tfi.Session, m: tfi.Module) -> None:
    with tfi.session("cpu") as other:
        pass
    other.synchronize()


def closed_reference(_: object) -> tfi.TensorRef:
    with tfi.session("cpu") as other:
        return other.tensor(X)


def reference_of_another(s: tfi.Session, m: tfi.Module) -> None:
    with tfi.session("cpu") as other:
        s.launch(m.function("axpy"), ONE, [1.0, other.tensor(X), Y, 4])


def closed_module(s: tfi.Session, m: tfi.Module) -> None:
    with s.compile_nvrtc(SOURCE) as other:
        function = other.function("small")
    s.launch(function, ONE, [])


def use_closed_module(s: tfi.Session, m: tfi.Module) -> None:
    with s.compile_nvrtc(SOURCE) as other:
        pass
    other.function("small")


def overlapping_copy(s: tfi.Session, m: tfi.Module) -> None:
    span = s.alloc_bytes(16)
    s.copy_bytes(span[4:], span, 8)


def held_resource(s: tfi.Session, m: tfi.Module) -> None:
    with s.resource("held", object):
        s.resource("held", object)


def failed_runtime(s: tfi.Session, m: tfi.Module) -> None:
    s.runtime.failed = True
    try:
        s.tensor(X)
    finally:
        s.runtime.failed = False


TEXTS: dict[str, tuple[Call, type[tfi.TenferroError], str]] = {
    # TABLE
}
