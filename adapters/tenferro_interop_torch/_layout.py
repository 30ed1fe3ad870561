"""Measures where `torch.Tensor` objects keep their dispatch keys, element type, autograd data and version counter.

PyTorch's Python accessors cost more than a launch's whole budget of checks, and its C++ headers would tie the build to
one release.  So the offsets are found by comparing known tensors with their memory, once per process; every word is
read through the kernel, so a wrong guess cannot crash.  Where anything is not found unambiguously there is no probe,
and the accessors are used.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterable

import tenferro_interop as tfi
import torch

_IMPL_OFFSETS = range(16, 64, 8)
_IMPL_BYTES = 192  # less than sizeof(c10::TensorImpl), so that no neighbour's memory is compared
_COUNTER_OFFSETS = (8, 12, 16, 20, 24)
_libc = ctypes.CDLL(None, use_errno=True)


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _read(address: int, nbytes: int) -> bytes | None:
    """Return memory of this process, or None where it cannot be read."""
    buffer = ctypes.create_string_buffer(nbytes)
    here = _IoVec(ctypes.addressof(buffer), nbytes)
    there = _IoVec(address, nbytes)
    count = _libc.process_vm_readv(os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return buffer.raw if count == nbytes else None


def _word(memory: bytes, offset: int, form: str = "Q") -> int:
    return int(struct.unpack_from(form, memory, offset)[0])


def _only(candidates: Iterable[int]) -> int | None:
    found = list(candidates)
    return found[0] if len(found) == 1 else None


def _impl(tensor: torch.Tensor, offset: int) -> bytes | None:
    head = _read(id(tensor) + offset, 8)
    return None if head is None else _read(_word(head, 0), _IMPL_BYTES)


def _samples() -> list[torch.Tensor]:
    """Return tensors that differ in every state that is looked for."""
    z = torch.zeros(2, dtype=torch.complex64)
    return [
        torch.zeros(3),
        torch.zeros(3, requires_grad=True),
        z,
        z.conj(),
        z.conj().imag,
        torch.empty(3, device="meta", dtype=torch.int8),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.bool),
    ]


def _find(tensors: list[torch.Tensor], impl: int, step: int, holds: Callable[[bytes, int, torch.Tensor], bool]) -> int | None:
    memories = [_impl(tensor, impl) for tensor in tensors]
    return _only(
        offset
        for offset in range(0, _IMPL_BYTES - 7, step)
        if all(m is not None and holds(m, offset, t) for m, t in zip(memories, tensors, strict=True))
    )


def _keys(tensor: torch.Tensor) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _find_state(samples: list[torch.Tensor]) -> tuple[int, int] | None:
    for impl in _IMPL_OFFSETS:
        state = _find(samples, impl, 8, lambda m, at, t: _word(m, at) == _keys(t))
        if state is not None:
            return impl, state
    return None


def _find_dtype(impl: int) -> int | None:
    """Find the 16-bit element type number: c10::ScalarType, stable by its serialised use."""
    numbers = {torch.uint8: 0, torch.int8: 1, torch.int32: 3, torch.float32: 6, torch.float64: 7, torch.bool: 11, torch.bfloat16: 15}
    tensors = [torch.zeros(3, dtype=dtype) for dtype in numbers]
    return _find(tensors, impl, 2, lambda m, at, t: _word(m, at, "H") == numbers[t.dtype])


def _find_grad(impl: int) -> int | None:
    """Find the pointer that is set exactly where autograd knows a tensor."""
    leaf = torch.zeros(3, requires_grad=True)
    known = [leaf, leaf * 2, torch.nn.Parameter(torch.zeros(1)), torch.zeros(2, 2, requires_grad=True)]
    tensors = [torch.zeros(n) for n in range(1, 9)] + [torch.ones(5, dtype=torch.int64), torch.zeros(2, 2)] + known
    return _find(tensors, impl, 8, lambda m, at, t: (_word(m, at) != 0) == t.requires_grad)


def _find_version(impl: int) -> tuple[int, int] | None:
    """Find the counter by three tensors of different versions."""
    tensors = [torch.zeros(3) for _ in range(3)]
    for count, tensor in zip((3, 77, 201), tensors, strict=True):
        for _ in range(count):
            tensor.zero_()
    found = []
    for inner in _COUNTER_OFFSETS:
        offset = _find(tensors, impl, 8, lambda m, at, t, inner=inner: _count(m, at, inner) == t._version)  # type: ignore[misc]  # a default binds the loop's value
        if offset is not None:
            found.append((offset, inner))
    return found[0] if len(found) == 1 else None


def _count(memory: bytes, offset: int, inner: int) -> int:
    target = _read(_word(memory, offset) + inner, 4) if _word(memory, offset) else None
    return -1 if target is None else _word(target, 0, "I")


def measure() -> tfi.StateProbe | None:
    """Return the measured offsets, or None where PyTorch's objects look otherwise."""
    try:
        state = _find_state(_samples())
    except (AttributeError, RuntimeError):
        return None
    if state is None:
        return None
    impl, keys = state
    dtype, grad, version = _find_dtype(impl), _find_grad(impl), _find_version(impl)
    if dtype is None or grad is None or version is None:
        return None
    return tfi.StateProbe(impl, keys, dtype, grad, *version)
