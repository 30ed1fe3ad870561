"""The kernels that every benchmark launches."""

from __future__ import annotations

import struct

ELEMENTS = 256
AXPY = """
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def pointers(count: int) -> str:
    """Return a kernel `p<count>` of that many pointers, the last of them written."""
    names = [f"const float* p{i}" for i in range(count - 1)] + (["float* out"] if count else [])
    body = "out[threadIdx.x] = 1.0f;" if count else ""
    return f'extern "C" __global__ void p{count}({", ".join(names)}) {{ {body} }}\n'


def float_slot(value: float) -> int:
    """Return a float's bits as the low half of an argument slot."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
