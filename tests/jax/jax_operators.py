"""Declarations and arrays that several tests use."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import tenferro_interop as tfi
from tenferro_interop_jax import op

SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T> __global__ void scale(const T* x, T* y, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * a;
}
template <class T> __global__ void product(const T* x, const T* w, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * w[i];
}
template <class T> __global__ void product_backward(const T* x, const T* w, const T* grad_y, T* grad_x, T* grad_w,
                                                    int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { grad_x[i] = grad_y[i] * w[i]; grad_w[i] = grad_y[i] * x[i]; }
}
template <class T> __global__ void axpy(T a, const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
template <class T> __global__ void sum_rows(const T* x, T* y, int columns) {
  T sum = 0;
  for (int c = 0; c < columns; ++c) sum += x[(size_t)blockIdx.x * columns + c];
  y[blockIdx.x] = sum;
}
template <class T> __global__ void split(const T* x, T* half, int* sign, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { half[i] = x[i] / 2; sign[i] = x[i] < T(0) ? -1 : 1; }
}
__global__ void mixed(signed char a, const float* x, double b, float* y, short c, long long n, bool flag) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + a + (float)b + c + (flag ? 1000 : 0);
}
"""


def config(n: int) -> tfi.LaunchConfig:
    """Use small blocks, so that a wrong count of blocks shows."""
    return tfi.LaunchConfig.flat(n, block=32)


FLAT: dict[str, Any] = {"values": {"n": lambda x: x.size}, "config": config}
SCALE = tfi.KernelSpec(SOURCE, "scale<{x}>", outputs={"y": "x"}, **FLAT)
PRODUCT = tfi.KernelSpec(SOURCE, "product<{x}>", outputs={"y": "x"}, **FLAT)
BACKWARD = tfi.KernelSpec(SOURCE, "product_backward<{x}>", outputs={"grad_x": "x", "grad_w": "w"}, **FLAT)
AXPY = tfi.KernelSpec(SOURCE, "axpy<{x}>", **FLAT)
SPLIT = tfi.KernelSpec(SOURCE, "split<{x}>", outputs={"half": "x", "sign": lambda x: x.shape}, **FLAT)
MIXED = tfi.KernelSpec(SOURCE, "mixed", outputs={"y": "x"}, **FLAT)
SUM_ROWS = tfi.KernelSpec(
    SOURCE,
    "sum_rows<{x}>",
    outputs={"y": lambda x: x.shape[:-1]},
    values={"columns": lambda x: x.shape[-1]},
    config=lambda y: tfi.LaunchConfig(max(y.size, 1), 1),
)
scale, axpy, split, mixed, sum_rows = op(SCALE), op(AXPY), op(SPLIT), op(MIXED), op(SUM_ROWS, vmap=["x"])
product_backward = op(BACKWARD, vmap=["x", "w", "grad_y"])
product = op(PRODUCT, vjp=product_backward, vmap=["x", "w"])


def put(device: str, values: Any, dtype: str = "float32") -> jax.Array:
    """Return a JAX array on the device."""
    return jax.device_put(np.asarray(values, dtype), jax.devices(device)[0])
