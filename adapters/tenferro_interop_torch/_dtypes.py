"""Element types and numbers: PyTorch's names for those of a declaration."""

from __future__ import annotations

import torch

import tenferro_interop as tfi

_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6  # codes of DLPack
_WIDTHS = (8, 16, 32, 64, 128)

TO_TORCH: dict[tfi.DType, torch.dtype] = {
    dtype: getattr(torch, dtype.name)
    for dtype in (tfi.DType(code, bits) for code in range(16) for bits in _WIDTHS)
    if isinstance(getattr(torch, dtype.name, None), torch.dtype)
}
FROM_TORCH = {there: here for here, there in TO_TORCH.items()}
_NUMBERS = {_INT: "SymInt", _UINT: "SymInt", _FLOAT: "float", _BFLOAT: "float", _COMPLEX: "complex", _BOOL: "bool"}


def to_torch(dtype: tfi.DType) -> torch.dtype:
    """Return PyTorch's element type; raises `DTypeError` where it has none."""
    found = TO_TORCH.get(dtype)
    if found is None:
        raise tfi.DTypeError(f"made tensor must have an element type of PyTorch, got {dtype}", op="op", actual=dtype)
    return found


def described(tensor: torch.Tensor) -> tfi.TensorSpec:
    """Return what the rules of a `KernelSpec` see of a tensor; extents may be symbolic."""
    dtype = FROM_TORCH.get(tensor.dtype)
    if dtype is None:
        raise tfi.DTypeError(
            f"tensor must have an element type that DLPack names, got {tensor.dtype}", op="op", actual=tensor.dtype
        )
    return tfi.TensorSpec(tuple(tensor.shape), dtype)


def number_type(parameter: tfi.SpecParameter) -> str:
    """Return the schema type of a scalar parameter.

    Raises `UnsupportedError` for a struct, which no operator schema can carry.
    """
    if parameter.dtype_of is not None:
        return "Scalar"
    name = _NUMBERS.get(parameter.dtype.code) if parameter.dtype else None
    if name is None:
        raise tfi.UnsupportedError(
            f"scalar {parameter.declaration!r} of an operator must be a number, got another type. Compute it from the "
            "others by `values=`, or pass its bytes as a tensor",
            op="op",
            argument=parameter.name,
        )
    return name
