"""Measures where `torch.Tensor` objects keep their data pointer, extents, state and version counter.

PyTorch's accessors cost more than a launch's whole budget of checks, and its C++ headers would tie the build to one
release.  So the offsets are found by comparing known tensors with their memory, once per process; every word is read
through the kernel, so a wrong guess cannot crash.  Where anything is not found unambiguously there is no layout, and
the exchange API and the accessors are used.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Sequence

import torch

import tenferro_interop as tfi

_OBJECT_BYTES = 64
_IMPL_BYTES = 192  # less than sizeof(c10::TensorImpl), so that no neighbour's memory is compared
_STORAGE_BYTES = 80  # likewise c10::StorageImpl
_COUNTER_BYTES = 32
_INLINE_AXES = 5  # c10::impl::SizesAndStrides keeps so many in place
_libc = ctypes.CDLL(None, use_errno=True)

Holds = Callable[[torch.Tensor, bytes, int], bool]


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _NotFound(Exception):
    """Something was not where exactly one place fits."""


def _read(address: int, nbytes: int) -> bytes:
    """Return memory of this process; `_NotFound` where it cannot be read."""
    buffer = ctypes.create_string_buffer(nbytes)
    here = _IoVec(ctypes.addressof(buffer), nbytes)
    there = _IoVec(address, nbytes)
    if _libc.process_vm_readv(os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != nbytes:
        raise _NotFound
    return buffer.raw


def _word(memory: bytes, offset: int, form: str = "Q") -> int:
    return int(struct.unpack_from(form, memory, offset)[0])


def _find(tensors: Sequence[torch.Tensor], memories: Sequence[bytes], step: int, holds: Holds) -> int:
    """Return the one offset at which `holds` for every tensor."""
    pairs = list(zip(tensors, memories, strict=True))
    found = [at for at in range(0, len(memories[0]) - 7, step) if all(holds(t, m, at) for t, m in pairs)]
    if len(found) != 1:
        raise _NotFound
    return found[0]


def _target(memory: bytes, offset: int, nbytes: int) -> bytes:
    """Follow a pointer; unreadable memory reads as zeros."""
    try:
        return _read(_word(memory, offset), nbytes)
    except _NotFound:
        return bytes(nbytes)


def _keys(tensor: torch.Tensor) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _state_samples() -> list[torch.Tensor]:
    z = torch.zeros(2, dtype=torch.complex64)
    plain = [torch.zeros(3, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.bool)]
    return [*plain, torch.zeros(3, requires_grad=True), z, z.conj(), z.conj().imag, torch.empty(3, device="meta")]


class _Impl:
    """The memory of the implementation objects behind tensors."""

    def __init__(self) -> None:
        samples = _state_samples()
        heads = [_read(id(tensor), _OBJECT_BYTES) for tensor in samples]
        words = range(0, _IMPL_BYTES - 7, 8)
        self.offset = _find(
            samples, heads, 8, lambda t, m, at: any(_word(_target(m, at, _IMPL_BYTES), w) == _keys(t) for w in words)
        )

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[bytes]:
        return [_read(_word(_read(id(tensor), _OBJECT_BYTES), self.offset), _IMPL_BYTES) for tensor in tensors]


def _find_dtype(impl: _Impl) -> int:
    """Find the 16-bit element type number, that of c10::ScalarType."""
    numbers = {torch.uint8: 0, torch.int8: 1, torch.int32: 3, torch.float32: 6, torch.float64: 7, torch.bool: 11}
    tensors = [torch.zeros(3, dtype=dtype) for dtype in numbers]
    return _find(tensors, impl(tensors), 2, lambda t, m, at: _word(m, at, "H") == numbers[t.dtype])


def _find_grad(impl: _Impl) -> int:
    """Find the pointer that is set exactly where autograd knows a tensor."""
    leaf = torch.zeros(3, requires_grad=True)
    known = [leaf, leaf * 2, torch.nn.Parameter(torch.zeros(1)), torch.zeros(2, 2, requires_grad=True)]
    tensors = [*(torch.zeros(n) for n in range(1, 9)), torch.ones(5, dtype=torch.int64), torch.zeros(2, 2), *known]
    return _find(tensors, impl(tensors), 8, lambda t, m, at: (_word(m, at) != 0) == t.requires_grad)


def _find_version(impl: _Impl) -> tuple[int, int]:
    """Find the counter by tensors of different versions."""
    tensors = [torch.zeros(3) for _ in range(3)]
    for count, tensor in zip((3, 77, 201), tensors, strict=True):
        for _ in range(count):
            tensor.zero_()
    memories = impl(tensors)
    inside = range(8, _COUNTER_BYTES - 3, 4)

    def counts(t: torch.Tensor, m: bytes, at: int, inner: int) -> bool:
        return _word(_target(m, at, _COUNTER_BYTES), inner, "I") == t._version

    offset = _find(tensors, memories, 8, lambda t, m, at: any(counts(t, m, at, inner) for inner in inside))
    return offset, _find(tensors, [_target(m, offset, _COUNTER_BYTES) for m in memories], 4,
                         lambda t, m, at: _word(m, at, "I") == t._version)  # fmt: skip


def _find_storage(impl: _Impl) -> tuple[int, int, int]:
    """Find the storage, its data pointer, and the flag of a storage that must be asked before it is written."""
    base = [torch.zeros(n) for n in (7, 11, 64, 1000)]
    tensors = [base[0][3:], base[1], base[2].view(8, 8)[2], base[3][::2]]
    memories = impl(tensors)
    inside = range(0, _STORAGE_BYTES - 7, 8)

    def points(t: torch.Tensor, m: bytes, at: int) -> bool:
        return _word(m, at) == t.untyped_storage().data_ptr()

    storage = _find(
        tensors, memories, 8, lambda t, m, at: any(points(t, _target(m, at, _STORAGE_BYTES), w) for w in inside)
    )
    plain = [_target(m, storage, _STORAGE_BYTES) for m in memories]
    data = min(at for at in inside if all(points(t, m, at) for t, m in zip(tensors, plain, strict=True)))
    lazy = [torch._lazy_clone(tensor) for tensor in base]  # copy-on-write
    flagged = [_target(m, storage, _STORAGE_BYTES) for m in impl(lazy)]
    guard = [at for at in range(_STORAGE_BYTES) if {m[at] for m in plain} == {0} and {m[at] for m in flagged} == {1}]
    if len(guard) != 1:
        raise _NotFound
    return storage, data, guard[0]


def _find_extents(impl: _Impl) -> tuple[int, int]:
    """Find the storage offset, and the number of axes, which extents and strides follow."""
    cube, line = torch.zeros(4, 5, 6), torch.zeros(50)
    tensors = [
        cube[1:, 2:],
        cube[2, 1],
        line[7:],
        line[3:30:2],
        torch.zeros(2, 3, 2, 3, 2)[1:],
        torch.zeros(2, 1, 3, 1, 2, 2)[1:],
    ]
    memories = impl(tensors)
    offset = _find(tensors, memories, 8, lambda t, m, at: _word(m, at) == t.storage_offset())
    return offset, _find(tensors, memories, 8, _holds_extents)


def _holds_extents(tensor: torch.Tensor, memory: bytes, at: int) -> bool:
    """Whether the axis count lies here, then extents and strides, in place or (past five axes) behind a pointer."""
    ndim = tensor.ndim
    if _word(memory, at) != ndim or at + 8 + 16 * _INLINE_AXES > len(memory):
        return False
    capacity = _INLINE_AXES if ndim <= _INLINE_AXES else ndim
    values = memory[at + 8 :] if ndim <= _INLINE_AXES else _target(memory, at + 8, 16 * ndim)
    extents, strides = struct.unpack_from(f"{ndim}q", values), struct.unpack_from(f"{ndim}q", values, 8 * capacity)
    return extents == tuple(tensor.shape) and strides == tensor.stride()


def _find_device(impl: _Impl) -> int:
    """Find the device: a byte each for type (c10::DeviceType), index (-1 for the only one) and presence."""
    tensors = [torch.zeros(3), torch.zeros(5), torch.empty(3, device="meta"), torch.empty(4, device="meta")]
    number = {"cpu": 0, "meta": 14}
    return _find(tensors, impl(tensors), 1, lambda t, m, at: m[at : at + 3] == bytes((number[t.device.type], 255, 1)))


def measure() -> tfi.TensorLayout | None:
    """Return the measured offsets, or None where PyTorch's objects look otherwise."""
    try:
        impl = _Impl()
        samples = _state_samples()
        return tfi.TensorLayout(
            impl.offset,
            _find(samples, impl(samples), 8, lambda t, m, at: _word(m, at) == _keys(t)),
            _find_dtype(impl),
            _find_grad(impl),
            *_find_version(impl),
            *_find_storage(impl),
            *_find_extents(impl),
            _find_device(impl),
        )
    except (AttributeError, RuntimeError, _NotFound):
        return None
