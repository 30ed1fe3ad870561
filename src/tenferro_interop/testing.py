"""DLPack doubles for tests: a producer whose every ABI field, capsule name and answer can be set, and is counted.

`FakeProducer` builds DLPack 1.3's structs by hand (https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h),
so that a test can hand a consumer what no real framework exports: NULL strides, odd element types, unknown versions,
deleters that are NULL.  Nothing here checks what it is told.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Collection, Sequence
from ctypes import c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Final

__all__ = [
    "ALL_KEYWORDS",
    "COMPACT",
    "DLDataType",
    "DLDevice",
    "DLManagedTensor",
    "DLManagedTensorVersioned",
    "DLTensor",
    "FakeProducer",
]

ALL_KEYWORDS: Final = ("stream", "max_version", "dl_device", "copy")
COMPACT: Final = "compact"
_BUFFER_LIMIT = 1 << 14


class DLDevice(ctypes.Structure):
    """Device type and ordinal."""

    _fields_ = (("device_type", c_int32), ("device_id", c_int32))


class DLDataType(ctypes.Structure):
    """Element type: code, bits of one lane, lanes."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class DLTensor(ctypes.Structure):
    """The tensor itself."""

    _fields_ = (
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """A tensor with its deleter, as capsules named ``dltensor`` hold it."""

    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    """A tensor with version, flags and deleter, as capsules named ``dltensor_versioned`` hold it."""

    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    )


class _Export:
    """One managed tensor handed out: its memory, its capsule, and how often its deleter ran."""

    def __init__(self, managed: DLManagedTensor | DLManagedTensorVersioned, name: bytes, keep: object) -> None:
        self.managed = managed
        self.name = name
        self.keep = keep
        self.deleter_calls = 0
        self.scribble = False
        self.capsule = _new_capsule(ctypes.addressof(managed), name, None)

    @property
    def is_unused(self) -> bool:
        """Whether no consumer has renamed the capsule."""
        return bool(_capsule_is_valid(self.capsule, self.name))

    def delete(self) -> None:
        """Count, and make any later look at the struct show."""
        self.deleter_calls += 1
        if self.scribble:
            ctypes.memset(ctypes.addressof(self.managed), 0xA5, ctypes.sizeof(self.managed))


_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))

# By address of the struct: exports whose deleter must still come, for a consumer may outlive the producer, and those
# whose deleter has come, to notice a second time.
_live: dict[int, _Export] = {}
_deleted: weakref.WeakValueDictionary[int, _Export] = weakref.WeakValueDictionary()


def _delete(address: int) -> None:
    export = _live.pop(address, None) or _deleted[address]
    _deleted[address] = export
    export.delete()


_deleter = ctypes.CFUNCTYPE(None, c_void_p)(_delete)
_DELETER_ADDRESS = ctypes.cast(_deleter, c_void_p).value


def _array(values: Sequence[int] | None) -> ctypes.Array[c_int64] | None:
    return None if values is None else (c_int64 * max(len(values), 1))(*values)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(extent, 1) for extent in shape[axis + 1 :]) for axis in range(len(shape)))


class FakeProducer:
    """An object that exports whatever DLPack tensor it is told to.

    Args:
        shape: extents; None is a NULL pointer.
        strides: in elements; `COMPACT` is row-major, None is a NULL pointer.
        ndim: by default the length of `shape`.
        dtype: (code, bits, lanes).
        device: (device type, ordinal) in the tensor.
        data: an address, 0 for NULL; by default zeroed host memory of this object (`buffer`).
        byte_offset: the tensor's byte offset.
        version: (major, minor) of a versioned struct; None makes a legacy one.
        flags: DLPack's flags, of versioned structs only; bit 0 is read-only, bit 1 is copied.
        capsule_name: by default the name that belongs to the struct.
        has_deleter: False leaves the deleter NULL.
        scribble: the deleter overwrites the struct, so that a consumer that looks at it afterwards is caught.
        reuse_capsule: hand out one and the same capsule again and again.
        keywords: what `__dlpack__` accepts; another keyword raises `TypeError`, as an older signature does.
        error: raised by every call of `__dlpack__`.
        answer: returned by `__dlpack__` instead of a capsule.
        device_answer: what `__dlpack_device__` returns or, for an exception, raises; by default `device`.

    Attributes:
        buffer: the default memory.
        calls: the keyword arguments of each call of `__dlpack__`.

    Example:
        >>> fake = FakeProducer((2, 3), strides=None)
        >>> with tfi.session("cpu") as s:
        ...     s.tensor(fake).strides
        (3, 1)
        >>> fake.deleter_calls
        [1]

    """

    def __init__(
        self,
        shape: Sequence[int] | None = (4,),
        *,
        strides: Sequence[int] | str | None = COMPACT,
        ndim: int | None = None,
        dtype: tuple[int, int, int] = (2, 32, 1),
        device: tuple[int, int] = (1, 0),
        data: int | None = None,
        byte_offset: int = 0,
        version: tuple[int, int] | None = (1, 3),
        flags: int = 0,
        capsule_name: bytes | None = None,
        has_deleter: bool = True,
        scribble: bool = False,
        reuse_capsule: bool = False,
        keywords: Collection[str] = ALL_KEYWORDS,
        error: Exception | None = None,
        answer: object = None,
        device_answer: object = None,
    ) -> None:
        extents = () if shape is None else tuple(shape)
        self._shape = _array(shape)
        self._strides = _array(_row_major(extents) if isinstance(strides, str) else strides)
        self.buffer = _memory(extents)
        self._tensor = DLTensor(
            data=ctypes.addressof(self.buffer) if data is None else data,
            device=DLDevice(*device),
            ndim=len(extents) if ndim is None else ndim,
            dtype=DLDataType(*dtype),
            shape=self._shape,
            strides=self._strides,
            byte_offset=byte_offset,
        )
        self._version, self._flags = version, flags
        self._name = capsule_name or (b"dltensor" if version is None else b"dltensor_versioned")
        self._has_deleter, self._scribble, self._reuse_capsule = has_deleter, scribble, reuse_capsule
        self._keywords, self._error, self._answer = keywords, error, answer
        self._device_answer = device if device_answer is None else device_answer
        self._exported: list[_Export] = []
        self.calls: list[dict[str, object]] = []

    @property
    def deleter_calls(self) -> list[int]:
        """How often each export's deleter ran; an export that nobody consumed counts the call its capsule will make."""
        return [export.deleter_calls + export.is_unused for export in self._exported]

    def __dlpack_device__(self) -> object:
        """Return what was set."""
        if isinstance(self._device_answer, Exception):
            raise self._device_answer
        return self._device_answer

    def __dlpack__(self, **keywords: object) -> object:
        """Export as set up."""
        self.calls.append(keywords)
        if self._error is not None:
            raise self._error
        for keyword in keywords:
            if keyword not in self._keywords:
                raise TypeError(f"__dlpack__() got an unexpected keyword argument {keyword!r}")
        return self.export() if self._answer is None else self._answer

    def export(self) -> object:
        """Return a capsule, not counted as a call."""
        if self._exported and self._reuse_capsule:
            return self._exported[0].capsule
        export = _Export(self._managed(), self._name, (self.buffer, self._shape, self._strides))
        export.scribble = self._scribble
        _live[ctypes.addressof(export.managed)] = export
        self._exported.append(export)
        return export.capsule

    def _managed(self) -> DLManagedTensor | DLManagedTensorVersioned:
        deleter = _DELETER_ADDRESS if self._has_deleter else None
        if self._version is None:
            return DLManagedTensor(dl_tensor=self._tensor, deleter=deleter)
        major, minor = self._version
        return DLManagedTensorVersioned(
            major=major, minor=minor, flags=self._flags, dl_tensor=self._tensor, deleter=deleter
        )


def _memory(shape: Sequence[int]) -> ctypes.Array[c_uint64]:
    """Return zeroed memory for 16-byte elements of that shape, within reason."""
    count = math.prod(max(extent, 1) for extent in shape)
    return (c_uint64 * min(2 * count + 8, _BUFFER_LIMIT))()
