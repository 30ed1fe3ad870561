"""Operators that several tests use; importing this module registers them."""

from __future__ import annotations

import torch

import tenferro_interop as tfi
from tenferro_interop_torch import op

FLAT = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T> __global__ void scale(const T* x, T* y, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * a;
}
template <class T> __global__ void exponential(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = exp(x[i]);
}
template <class T> __global__ void exp_backward(const T* y, const T* grad_y, T* grad_x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) grad_x[i] = y[i] * grad_y[i];
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
"""
ROWS = """
template <class T> __global__ void norm_rows(const T* x, const T* w, T* y, T* scale, int columns) {
  x += (size_t)blockIdx.x * columns; y += (size_t)blockIdx.x * columns;
  T squares = 0;
  for (int c = 0; c < columns; ++c) squares += x[c] * x[c];
  T s = 1 / sqrt(squares / columns + T(1e-6));
  if (threadIdx.x == 0) scale[blockIdx.x] = s;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) y[c] = x[c] * s * w[c];
}
template <class T> __global__ void sum_rows(const T* x, T* y, int columns) {
  T sum = 0;
  for (int c = 0; c < columns; ++c) sum += x[(size_t)blockIdx.x * columns + c];
  y[blockIdx.x] = sum;
}
template <class T> __global__ void count_all(const T* x, int* total, int n) {
  int found = 0;
  for (int i = 0; i < n; ++i) found += x[i] > T(0);
  *total = found;
}
"""


def flat(name: str, outputs: dict[str, str], like: str = "x") -> tfi.KernelSpec:
    """Declare one of the kernels that take one thread an element."""
    return tfi.KernelSpec(
        FLAT,
        f"{name}<{{{like}}}>",
        outputs=outputs,
        values={"n": (lambda x: x.size) if like == "x" else lambda y: y.size},
        config=lambda n: tfi.LaunchConfig.flat(n),
    )


def rows(x: tfi.TensorSpec) -> tfi.LaunchConfig:
    count = x.size // max(x.shape[-1], 1)
    return tfi.LaunchConfig(count, 32) if count else tfi.LaunchConfig.flat(0)


def _keep_factor(ctx: object, inputs: tuple, output: object) -> None:
    ctx.factor = inputs[1]


def _keep_all(ctx: object, inputs: tuple, output: object) -> None:
    ctx.save_for_backward(*inputs)


def _twice(ctx: object, grad_x: torch.Tensor, grad_w: torch.Tensor) -> tuple:
    x, w, g = ctx.saved_tensors
    return grad_w * g, grad_x * g, grad_x * w + grad_w * x


scale = op(
    flat("scale", {"y": "x"}),
    "tfi_test::scale",
    backward=lambda ctx, grad: (scale(grad, ctx.factor), None),
    setup_context=_keep_factor,
    vmap=["x"],
)
product_backward = op(
    flat("product_backward", {"grad_x": "x", "grad_w": "w"}),
    "tfi_test::product_backward",
    backward=_twice,
    setup_context=_keep_all,
)
product = op(flat("product", {"y": "x"}), "tfi_test::product", backward=product_backward, vmap=["x", "w"])
exp_backward = op(
    flat("exp_backward", {"grad_x": "y"}, like="y"),
    "tfi_test::exp_backward",
    backward=lambda ctx, grad: tuple(product(grad, each) for each in reversed(ctx.saved_tensors)),
    setup_context=_keep_all,
    vmap=["y", "grad_y"],
)
exponential = op(flat("exponential", {"y": "x"}), "tfi_test::exponential", backward=exp_backward, vmap=["x"])
axpy = op(flat("axpy", {}), "tfi_test::axpy")
constant = op(flat("scale", {"y": "x"}), "tfi_test::constant")
half = op(flat("scale", {"y": "x"}), "tfi_test::half", autocast=torch.bfloat16)
norm_rows = op(
    tfi.KernelSpec(
        ROWS,
        "norm_rows<{x}>",
        outputs={"y": "x", "scale": lambda x: x.shape[:-1]},
        values={"columns": lambda x: x.shape[-1]},
        config=rows,
    ),
    "tfi_test::norm_rows",
    vmap=["x"],
)
sum_rows = op(
    tfi.KernelSpec(
        ROWS,
        "sum_rows<{x}>",
        outputs={"y": lambda x: x.shape[:-1]},
        values={"columns": lambda x: x.shape[-1]},
        config=lambda y: tfi.LaunchConfig(y.size, 1) if y.size else tfi.LaunchConfig.flat(0),
    ),
    "tfi_test::sum_rows",
    backward=lambda ctx, grad: grad[..., None].expand(ctx.shape).contiguous(),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "shape", inputs[0].shape),
    vmap=["x"],
)
count_all = op(
    tfi.KernelSpec(
        ROWS,
        "count_all<{x}>",
        outputs={"total": lambda x: (1,)},
        values={"n": lambda x: x.size},
        config=tfi.LaunchConfig(1, 1),
    ),
    "tfi_test::count_all",
    vmap=["x"],
)
EVERY = {
    "scale": (scale, lambda x: (x, 2.0)),
    "product": (product, lambda x: (x, x + 1)),
    "exponential": (exponential, lambda x: (x,)),
    "product_backward": (product_backward, lambda x: (x, x + 1, x + 2)),
    "axpy": (axpy, lambda x: (2.0, x, x + 1)),
    "norm_rows": (norm_rows, lambda x: (x, x[0])),
    "sum_rows": (sum_rows, lambda x: (x,)),
    "count_all": (count_all, lambda x: (x,)),
    "scale.out": (scale.out, lambda x: (x, 2.0, torch.zeros_like(x))),
    "norm_rows.out": (norm_rows.out, lambda x: (x, x[0], torch.zeros_like(x), x[:, 0].clone())),
}
