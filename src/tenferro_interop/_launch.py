"""What a launch is given beside tensors: its geometry and explicitly typed arguments."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from . import _core
from ._dtypes import BFLOAT, BOOL, COMPLEX, FLOAT, INT, POINTER, STRUCT, UINT, DType
from ._errors import ScalarRangeError, SignatureError, ValidationError

UINT32_MAX = 2**32 - 1


def _extent(name: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    """Return three positive extents from an int or from one to three ints."""
    parts = list(value) if isinstance(value, Iterable) else [value]
    if not 1 <= len(parts) <= 3:
        raise ValidationError(
            f"{name} must have one to three extents, got {len(parts)}", op="LaunchConfig", argument=name
        )
    out = [_count(f"{name}.{axis}", part, name) for axis, part in zip("xyz", parts, strict=False)]
    if 0 in out:
        raise ValidationError(
            f"{name} must be positive in every axis, got {tuple(parts)}. For no work at all use "
            "`LaunchConfig.flat(0, block=...)`",
            op="LaunchConfig",
            argument=name,
            actual=tuple(parts),
        )
    x, y, z = (*out, 1, 1)[:3]
    return x, y, z


def _int(what: str, value: object, argument: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]  # the TypeError is the check
    except TypeError:
        raise ValidationError(
            f"{what} must be an int, got {type(value).__name__}", op="LaunchConfig", argument=argument, actual=value
        ) from None


def _count(what: str, value: object, argument: str) -> int:
    number = _int(what, value, argument)
    if not 0 <= number <= UINT32_MAX:
        raise ValidationError(
            f"{what} must be between 0 and {UINT32_MAX}, got {number}",
            op="LaunchConfig",
            argument=argument,
            actual=number,
        )
    return number


class LaunchConfig(_core.LaunchShape):
    """Geometry of one launch: blocks of the grid, threads of a block, dynamic shared memory in bytes.

    `grid` and `block` are an int or one to three ints (x, y, z) and count blocks and threads, also with clusters.
    Frozen and comparable; limits of the device and of the kernel are checked at launch.

    Raises `ValidationError` for a zero, negative or non-integer extent.

    Example:
        >>> LaunchConfig(grid=(4, 2), block=128)
        LaunchConfig(grid=(4, 2, 1), block=(128, 1, 1), shared_mem_bytes=0)
    """

    __slots__ = ()

    def __init__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_mem_bytes: int = 0,
        *,
        cluster: Sequence[int] | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> None:
        self._fill(
            _extent("grid", grid),
            _extent("block", block),
            _count("shared_mem_bytes", shared_mem_bytes, "shared_mem_bytes"),
            None if cluster is None else _extent("cluster", cluster),
            cooperative,
            programmatic,
            False,
        )

    @classmethod
    def flat(cls, threads: int, block: int = 256, shared_mem_bytes: int = 0) -> LaunchConfig:
        """Return a one-dimensional geometry with at least `threads` threads; the kernel must test its bound.

        `flat(0)` is legal: such a launch checks everything and enqueues nothing.
        """
        count = _int("threads", threads, "threads")
        width = _extent("block", _int("block", block, "block"))[0]
        if count < 0:
            raise ValidationError(f"threads must not be negative, got {count}", op="LaunchConfig", argument="threads")
        self = cls(max(-(-count // width), 1), width, shared_mem_bytes)
        if count == 0:
            self._fill((1, 1, 1), (width, 1, 1), shared_mem_bytes, None, False, False, True)
        return self

    def _key(self) -> tuple[object, ...]:
        return (
            self.grid, self.block, self.shared_mem_bytes, self.cluster, self.cooperative, self.programmatic, self.empty,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        """Compare by value."""
        return self._key() == other._key() if isinstance(other, LaunchConfig) else NotImplemented

    def __hash__(self) -> int:
        """Hash by value."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Return the constructor call."""
        text = f"grid={self.grid}, block={self.block}, shared_mem_bytes={self.shared_mem_bytes}"
        if self.cluster is not None:
            text += f", cluster={self.cluster}"
        for flag in ("cooperative", "programmatic"):
            text += f", {flag}=True" if getattr(self, flag) else ""
        return f"LaunchConfig({text})"


def _typed(name: str, code: int, bits: int, doc: str) -> Any:
    def make(cls: type[KernelArg], value: float) -> KernelArg:
        try:
            data = _core.pack_number(value, code, bits)
        except TypeError:
            raise SignatureError(
                f"KernelArg.{name} must be given a Python number of that kind, got {type(value).__name__}",
                op="KernelArg",
                argument="value",
                actual=value,
            ) from None
        if data is None:
            raise ScalarRangeError(f"{value} does not fit {name}", op="KernelArg", argument="value", actual=value)
        return cls(data, code, bits)

    make.__doc__ = doc
    make.__name__ = name
    return classmethod(make)


def _complex(name: str, layout: str, value: complex) -> bytes:
    if isinstance(value, bool) or not isinstance(value, (int, float, complex)):
        raise SignatureError(
            f"KernelArg.{name} must be given a Python number of that kind, got {type(value).__name__}",
            op="KernelArg",
            argument="value",
            actual=value,
        )
    try:
        return struct.pack(layout, complex(value).real, complex(value).imag)
    except OverflowError:
        raise ScalarRangeError(f"{value} does not fit {name}", op="KernelArg", argument="value", actual=value) from None


class KernelArg(_core.TypedArgument):
    """A kernel argument with an exact type: for kernels of unknown signature, structs, null pointers, other widths.

    The constructors copy the value's bytes.  `ScalarRangeError` where the number does not fit.

    Example:
        >>> KernelArg.i32(-1).data.hex()
        'ffffffff'
    """

    __slots__ = ()

    i8 = _typed("i8", INT, 8, "Return an 8-bit signed integer.")
    i16 = _typed("i16", INT, 16, "Return a 16-bit signed integer.")
    i32 = _typed("i32", INT, 32, "Return a 32-bit signed integer.")
    i64 = _typed("i64", INT, 64, "Return a 64-bit signed integer.")
    u8 = _typed("u8", UINT, 8, "Return an 8-bit unsigned integer.")
    u16 = _typed("u16", UINT, 16, "Return a 16-bit unsigned integer.")
    u32 = _typed("u32", UINT, 32, "Return a 32-bit unsigned integer.")
    u64 = _typed("u64", UINT, 64, "Return a 64-bit unsigned integer.")
    f16 = _typed("f16", FLOAT, 16, "Return an IEEE half, rounded to nearest even.")
    bf16 = _typed("bf16", BFLOAT, 16, "Return a bfloat16, rounded to nearest even.")
    f32 = _typed("f32", FLOAT, 32, "Return a float.")
    f64 = _typed("f64", FLOAT, 64, "Return a double.")
    bool_ = _typed("bool_", BOOL, 8, "Return a bool of one byte.")

    @classmethod
    def c64(cls, value: complex) -> KernelArg:
        """Return a complex of two floats."""
        return cls(_complex("c64", "=ff", value), COMPLEX, 64)

    @classmethod
    def c128(cls, value: complex) -> KernelArg:
        """Return a complex of two doubles."""
        return cls(_complex("c128", "=dd", value), COMPLEX, 128)

    @classmethod
    def null(cls) -> KernelArg:
        """Return a null pointer."""
        return cls(bytes(8), POINTER, 64)

    @classmethod
    def struct(cls, value: Any) -> KernelArg:
        """Return a struct passed by value: bytes, a ctypes structure or a NumPy record, laid out as they are.

        Nothing is re-laid out: the size must equal the kernel's parameter at launch, and padding is the caller's.
        """
        try:
            data = value.tobytes() if hasattr(value, "tobytes") else memoryview(value).tobytes()
        except TypeError:
            raise SignatureError(
                "KernelArg.struct must be given bytes, a ctypes structure or a NumPy record, got "
                f"{type(value).__name__}",
                op="KernelArg",
                argument="value",
                actual=value,
            ) from None
        return cls(data, STRUCT, 0)

    def __repr__(self) -> str:
        """Return type and bytes."""
        word = self.dtype_word
        name = DType(word & 0xFF, (word >> 8) & 0xFF, word >> 16).name
        return f"<KernelArg {name} {self.data.hex()}>"


_NUMPY_KINDS = {"i": INT, "u": UINT, "f": FLOAT, "c": COMPLEX, "b": BOOL, "V": STRUCT}
_EXTENSION_FLOATS = {"bfloat16": (BFLOAT, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8)}
_CTYPES_KINDS = {**dict.fromkeys("bhilq", INT), **dict.fromkeys("BHILQ", UINT), "f": FLOAT, "d": FLOAT, "?": BOOL}


def scalar_of(value: object) -> KernelArg | None:
    """Return the typed form of a NumPy scalar, ctypes value or bytes, or None if `value` has no type of its own."""
    if isinstance(value, ctypes._SimpleCData):
        code = _CTYPES_KINDS.get(str(getattr(type(value), "_type_", "")))
        return None if code is None else KernelArg(bytes(value), code, 8 * ctypes.sizeof(value))
    if isinstance(value, (bytes, ctypes.Structure, ctypes.Array)):
        return KernelArg.struct(value)
    dtype = getattr(value, "dtype", None)
    if dtype is None or getattr(value, "shape", None) != () or hasattr(value, "__dlpack__"):
        return None
    name, kind = str(getattr(dtype, "name", "")), str(getattr(dtype, "kind", ""))
    if name in _EXTENSION_FLOATS:
        return KernelArg(value.tobytes(), *_EXTENSION_FLOATS[name])  # type: ignore[attr-defined]  # a NumPy scalar
    if kind not in _NUMPY_KINDS:
        return None
    bits = 0 if kind == "V" else 8 * dtype.itemsize
    return KernelArg(value.tobytes(), _NUMPY_KINDS[kind], bits)  # type: ignore[attr-defined]  # a NumPy scalar
