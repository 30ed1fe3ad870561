"""The peers' way of launching axpy on two torch tensors and two scalars; each returns a callable for one launch."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from ._kernels import AXPY, ELEMENTS

Launch = Callable[[], object]


def cuda_core(x: Any, y: Any, stream: int) -> dict[str, Launch]:
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

    def viewed() -> None:
        views = [StridedMemoryView.from_any_interface(t, stream_ptr=-1) for t in (x, y)]
        launch(on, config, kernel, a, views[0].ptr, views[1].ptr, n)

    return {
        "cuda.core, pointers": lambda: launch(on, config, kernel, a, x.data_ptr(), y.data_ptr(), n),
        "cuda.core, StridedMemoryView": viewed,
    }


def cuda_bindings(x: Any, y: Any, stream: int, kernel: int) -> dict[str, Launch]:
    """Return cuda.bindings' cuLaunchKernel with a parameter tuple."""
    from cuda.bindings import driver

    handle, on = driver.CUkernel(kernel), driver.CUstream(stream)
    types = (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)

    def launch() -> None:
        values = (2.0, x.data_ptr(), y.data_ptr(), ELEMENTS)
        driver.cuLaunchKernel(handle, 1, 1, 1, ELEMENTS, 1, 1, 0, on, (values, types), 0)

    return {"cuda.bindings": launch}


def cupy(x: Any, y: Any, stream: int) -> dict[str, Launch]:
    """Return CuPy's RawKernel on CuPy arrays, and on torch tensors taken over at each call."""
    import cupy as cp

    kernel = cp.RawKernel(AXPY, "axpy")
    cx, cy = cp.from_dlpack(x), cp.from_dlpack(y)
    a, n = cp.float32(2.0), cp.int32(ELEMENTS)
    cp.cuda.ExternalStream(stream).use()
    return {
        "CuPy RawKernel, CuPy arrays": lambda: kernel((1,), (ELEMENTS,), (a, cx, cy, n)),
        "CuPy RawKernel, torch tensors": lambda: kernel(
            (1,), (ELEMENTS,), (a, cp.from_dlpack(x), cp.from_dlpack(y), n)
        ),
    }


def torch_compile_kernel(x: Any, y: Any, stream: int) -> dict[str, Launch]:
    """Return torch's private `_compile_kernel`."""
    import torch

    kernel = torch.cuda._compile_kernel(AXPY, "axpy")
    return {"torch _compile_kernel": lambda: kernel((1, 1, 1), (ELEMENTS, 1, 1), (2.0, x, y, ELEMENTS))}


def triton(x: Any, y: Any, stream: int) -> dict[str, Launch]:
    """Return a Triton kernel of the same arithmetic."""
    from ._triton_axpy import axpy

    return {"Triton": lambda: axpy[(1,)](2.0, x, y, ELEMENTS, BLOCK=ELEMENTS)}


def numba(x: Any, y: Any, stream: int) -> dict[str, Launch]:
    """Return numba-cuda on its own arrays."""
    from numba import cuda

    @cuda.jit
    def axpy(a, x, y, n):  # type: ignore[no-untyped-def]  # compiled by numba
        i = cuda.grid(1)
        if i < n:
            y[i] = a * x[i] + y[i]

    dx, dy = cuda.as_cuda_array(x), cuda.as_cuda_array(y)
    configured = axpy[1, ELEMENTS, cuda.external_stream(stream)]
    return {"numba-cuda": lambda: configured(2.0, dx, dy, ELEMENTS)}


_BODY = """
__global__ void axpy_k(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def tvm_ffi(x: Any, y: Any, stream: int) -> dict[str, Launch]:
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
    return {"tvm-ffi compiled wrapper": lambda: module.axpy(2.0, x, y)}


def torch_extension(x: Any, y: Any, stream: int) -> dict[str, Launch]:
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
    return {"torch C++ extension": lambda: module.axpy(2.0, x, y)}
