"""The peers' way of launching axpy on two torch tensors and two scalars; each returns loops over launches."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from ._kernels import AXPY, ELEMENTS
from ._timing import Loop, timed


def cuda_core(x: Any, y: Any, stream: int) -> dict[str, Loop]:
    """Return cuda.core with bare pointers, and with a StridedMemoryView of each tensor."""
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    from cuda.core.utils import StridedMemoryView

    class Current:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, stream)

    device = Device(0)
    device.set_current()
    kernel = Program(AXPY, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("axpy")
    on, config = device.create_stream(Current()), LaunchConfig(grid=1, block=ELEMENTS)
    a, n = ctypes.c_float(2.0), ctypes.c_int(ELEMENTS)

    view = StridedMemoryView.from_any_interface
    names = {"launch": launch, "on": on, "config": config, "kernel": kernel, "a": a, "x": x, "y": y, "n": n}
    viewed = "launch(on, config, kernel, a, view(x, stream_ptr=-1).ptr, view(y, stream_ptr=-1).ptr, n)"
    return {
        "cuda.core, pointers": timed("launch(on, config, kernel, a, x.data_ptr(), y.data_ptr(), n)", **names),
        "cuda.core, StridedMemoryView": timed(viewed, view=view, **names),
    }


def cuda_bindings(x: Any, y: Any, stream: int, kernel: int) -> dict[str, Loop]:
    """Return cuda.bindings' cuLaunchKernel with a parameter tuple."""
    from cuda.bindings import driver

    handle, on = driver.CUkernel(kernel), driver.CUstream(stream)
    types = (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)

    call = "launch(kernel, 1, 1, 1, n, 1, 1, 0, on, ((2.0, x.data_ptr(), y.data_ptr(), n), types), 0)"
    names = {"launch": driver.cuLaunchKernel, "kernel": handle, "on": on, "types": types, "x": x, "y": y}
    return {"cuda.bindings": timed(call, n=ELEMENTS, **names)}


def cupy(x: Any, y: Any, stream: int) -> dict[str, Loop]:
    """Return CuPy's RawKernel on CuPy arrays, and on torch tensors taken over at each call."""
    import cupy as cp

    kernel = cp.RawKernel(AXPY, "axpy")
    cx, cy = cp.from_dlpack(x), cp.from_dlpack(y)
    a, n = cp.float32(2.0), cp.int32(ELEMENTS)
    cp.cuda.ExternalStream(stream).use()
    names = {"kernel": kernel, "a": a, "n": n, "grid": (1,), "block": (ELEMENTS,)}
    taken = "kernel(grid, block, (a, take(x), take(y), n))"
    return {
        "CuPy RawKernel, CuPy arrays": timed("kernel(grid, block, (a, x, y, n))", x=cx, y=cy, **names),
        "CuPy RawKernel, torch tensors": timed(taken, take=cp.from_dlpack, x=x, y=y, **names),
    }


def torch_compile_kernel(x: Any, y: Any, stream: int) -> dict[str, Loop]:
    """Return torch's private `_compile_kernel`."""
    import torch

    kernel = torch.cuda._compile_kernel(AXPY, "axpy")
    call = "kernel((1, 1, 1), (n, 1, 1), (2.0, x, y, n))"
    return {"torch _compile_kernel": timed(call, kernel=kernel, x=x, y=y, n=ELEMENTS)}


def triton(x: Any, y: Any, stream: int) -> dict[str, Loop]:
    """Return a Triton kernel of the same arithmetic."""
    from ._triton_axpy import axpy

    return {"Triton": timed("axpy[(1,)](2.0, x, y, n, BLOCK=n)", axpy=axpy, x=x, y=y, n=ELEMENTS)}


def numba(x: Any, y: Any, stream: int) -> dict[str, Loop]:
    """Return numba-cuda on its own arrays."""
    from numba import cuda

    @cuda.jit
    def axpy(a, x, y, n):  # type: ignore[no-untyped-def]  # compiled by numba
        i = cuda.grid(1)
        if i < n:
            y[i] = a * x[i] + y[i]

    dx, dy = cuda.as_cuda_array(x), cuda.as_cuda_array(y)
    configured = axpy[1, ELEMENTS, cuda.external_stream(stream)]
    return {"numba-cuda": timed("axpy(2.0, x, y, n)", axpy=configured, x=dx, y=dy, n=ELEMENTS)}


_BODY = """
__global__ void axpy_k(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def tvm_ffi(x: Any, y: Any, stream: int) -> dict[str, Loop]:
    """Return a wrapper compiled by apache-tvm-ffi."""
    from tvm_ffi import cpp

    source = (
        """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
"""
        + _BODY
        + """
void axpy(double a, tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  axpy_k<<<1, 256, 0, s>>>((float)a, (const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0));
}
"""
    )
    module = cpp.load_inline("axpy_module", cuda_sources=source, functions=["axpy"])
    return {"tvm-ffi compiled wrapper": timed("axpy(2.0, x, y)", axpy=module.axpy, x=x, y=y)}


def torch_extension(x: Any, y: Any, stream: int) -> dict[str, Loop]:
    """Return a C++ extension against PyTorch's headers."""
    from torch.utils.cpp_extension import load_inline

    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    source = (
        """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
"""
        + _BODY
        + """
void axpy(double a, torch::Tensor x, torch::Tensor y) {
  axpy_k<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(a, x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}
"""
    )
    declared = "void axpy(double a, torch::Tensor x, torch::Tensor y);"
    module = load_inline("axpy_extension", cpp_sources=declared, cuda_sources=source, functions=["axpy"])
    return {"torch C++ extension": timed("axpy(2.0, x, y)", axpy=module.axpy, x=x, y=y)}
