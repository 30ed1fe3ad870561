"""Kernel signatures: the parameters of a kernel, and every source they can be read from.

`from_words` reads what `_include/tfi_signature.h` makes a compiler spell, `from_text` a C parameter list,
`from_mangled` a C++ symbol, `from_ptx` the `.entry` directives, `from_driver` offsets and sizes.  What a source does
not tell stays unknown; it is never guessed.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from . import _c_types as ctype
from ._dtypes import FLOAT, POINTER, STRUCT, VOID, DType
from ._errors import SignatureError

Kind = Literal["scalar", "pointer", "struct", "unknown"]
Source = Literal["compiler", "ptx", "driver", "text", "mangled name"]

OPAQUE_TYPE = DType(STRUCT, 0, 0)
VOID_TYPE = DType(VOID, 0, 0)
POINTER_TYPE = DType(POINTER, 64, 1)
_POINTER_SIZE = 8
_KINDS: tuple[Kind, ...] = ("scalar", "pointer", "struct")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel; a zero or `None` means that the signature's source does not tell.

    `dtype` is the scalar's type or the pointee's.  `written` is True for a pointer to non-const, False for a pointer
    to const.
    """

    name: str
    kind: Kind
    size: int
    align: int
    dtype: DType
    element_size: int = 0
    element_align: int = 0
    written: bool | None = None

    @property
    def c_name(self) -> str:
        """The type as a C programmer writes it, for messages."""
        if self.kind == "unknown":
            return f"{self.size} bytes of unknown type" if self.size else "unknown type"
        if self.kind != "pointer":
            return ctype.spell(self.dtype) or f"struct of {self.size} bytes"
        if self.dtype == POINTER_TYPE:
            return "void* const*" if self.written is False else "void**"
        element = ctype.spell(self.dtype) or ("struct" if self.written is not None else "unknown")
        return f"{'const ' if self.written is False else ''}{element}*"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of one kernel, and where they were read."""

    parameters: tuple[Parameter, ...]
    source: Source

    def __str__(self) -> str:
        """Return the C parameter list, such as ``(float, const float*, float*, int)``."""
        return f"({', '.join(parameter.c_name for parameter in self.parameters)})"


def from_words(words: Sequence[int]) -> Signature:
    """Decode the integers that `tfi_signature.h` describes, two for each parameter."""
    if len(words) % 2:
        raise AssertionError(f"signature words must come in pairs, got {len(words)}")
    return Signature(tuple(map(_from_pair, words[::2], words[1::2])), "compiler")


def from_driver(reported: Iterable[tuple[int, int]]) -> Signature:
    """Make a signature of which only the sizes are known, from the driver's (offset, size) pairs."""
    return Signature(tuple(_unknown(size) for _, size in reported), "driver")


def merge(declared: Signature, reported: Sequence[tuple[int, int]]) -> Signature:
    """Check `declared` against the driver's (offset, size) pairs and fill in the sizes it lacks.

    Raises SignatureError, with `index` as an attribute, when the counts or the sizes differ.
    """
    if len(declared.parameters) != len(reported):
        raise SignatureError(
            f"signature {declared} must have the kernel's {len(reported)} parameters, got {len(declared.parameters)}",
            op="function", argument="signature", expected=len(reported), actual=len(declared.parameters), index=None,
        )  # fmt: skip
    pairs = enumerate(zip(declared.parameters, reported, strict=True))
    return replace(declared, parameters=tuple(_sized(index, each, size) for index, (each, (_, size)) in pairs))


def from_text(text: str) -> Signature:
    """Read a C parameter list, such as ``float a, const float* x, float* y, int n``.

    Names are optional; `const`, `volatile` and `__restrict__` may stand where C++ allows them.  A struct by value is
    spelled by its size, ``struct(24) p``, or size and alignment, ``struct(32, 16) p``; behind a pointer any type name
    will do.  Raises SignatureError naming the token that it cannot read.
    """
    return Signature(tuple(_from_declaration(each) for each in ctype.split(text)), "text")


def from_mangled(name: str) -> Signature | None:
    """Read a mangled C++ function name; None if it is not one, or if its types depend on a template's insides."""
    demangled = _demangle(name)
    inner = ctype.parameter_list(demangled.replace("(anonymous namespace)", "_anonymous")) if demangled else None
    if inner is None or ">::" in inner or "decltype" in inner:
        return None
    return Signature(tuple(_from_demangled(each) for each in ctype.split(inner)), "mangled name")


def from_ptx(text: str) -> dict[str, Signature]:
    """Read the `.entry` directives of PTX; the entry's mangled name adds types where counts and sizes agree."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return {match["name"]: _from_entry(match["name"], match["list"] or "") for match in _ENTRY.finditer(code)}


def _from_pair(head: int, tail: int) -> Parameter:
    kind = _KINDS[head >> 40 & 15]
    dtype = DType(tail & 255, tail >> 8 & 255, tail >> 16 & 65535)
    is_pointer = kind == "pointer"
    return Parameter(
        name="",
        kind=kind,
        size=head & 0xFFFFFFFF,
        align=head >> 32 & 255,
        dtype=dtype,
        element_size=tail >> 32 if is_pointer else 0,
        element_align=head >> 48 & 255 if is_pointer else 0,
        written=not head >> 44 & 1 if is_pointer else None,
    )


def _unknown(size: int) -> Parameter:
    return Parameter("", "unknown", size, 0, OPAQUE_TYPE)


def _sized(index: int, parameter: Parameter, size: int) -> Parameter:
    if parameter.size not in (0, size):
        label = f"parameter {index} ({parameter.c_name}{' ' + parameter.name if parameter.name else ''})"
        raise SignatureError(
            f"{label} must have the kernel's {size} bytes, got {parameter.size}",
            op="function", argument=parameter.name or None, expected=size, actual=parameter.size, index=index,
        )  # fmt: skip
    return replace(parameter, size=size)


def _from_declaration(text: str) -> Parameter:
    declared = ctype.parse(text)
    known = ctype.lookup(declared.base)
    if declared.pointers:
        return _pointer(declared, known)
    if known is None or known.dtype == VOID_TYPE:
        raise ctype.error(text, declared.base, 'by value it needs a size, such as "struct(24) p"')
    is_struct = known.dtype == OPAQUE_TYPE or known.dtype.lanes > 1
    return Parameter(declared.name, "struct" if is_struct else "scalar", known.size, known.align, known.dtype)


def _from_demangled(text: str) -> Parameter:
    """Read a type that is certainly valid C++: what we cannot read, such as a struct by value, is unknown."""
    try:
        return _from_declaration(text)
    except SignatureError:
        return _unknown(0)


def _pointer(declared: ctype.Declaration, known: ctype.Known | None) -> Parameter:
    if len(declared.pointers) > 1:  # pointer to pointer: what is written is the table, not what it points to
        element, is_const = ctype.Known(POINTER_TYPE, _POINTER_SIZE, _POINTER_SIZE), declared.pointers[-2]
    else:
        element, is_const = known or ctype.Known(OPAQUE_TYPE, 0, 0), declared.is_const
    return Parameter(
        declared.name, "pointer", _POINTER_SIZE, _POINTER_SIZE, element.dtype, element.size, element.align, not is_const
    )


@functools.cache
def _demangler() -> ctypes.CDLL | None:
    """Load libstdc++'s demangler, or None where there is no such library."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        return library
    except (OSError, AttributeError):
        return None


def _demangle(name: str) -> str | None:
    library = _demangler()
    if library is None or not name.startswith("_Z") or not name.isascii():
        return None
    text = library.__cxa_demangle(name.encode(), None, None, None)
    if not text:
        return None
    try:
        return ctypes.string_at(text).decode()
    finally:
        _free(text)


def _free(address: int) -> None:
    release = ctypes.CDLL(None).free
    release.argtypes, release.restype = [ctypes.c_void_p], None
    release(address)


_ENTRY = re.compile(r"\.entry\s+(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\((?P<list>[^)]*)\))?")
_ENTRY_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[bfsu]\d+)"
    r"(?P<pointer>\s+\.ptr(?:\s+\.(?:global|const|shared|local))?(?:\s+\.align\s+(?P<to>\d+))?)?"
    r"\s+(?P<name>[\w$%]+)\s*(?:\[\s*(?P<count>\d*)\s*\])?"
)


def _from_entry(name: str, parameter_list: str) -> Signature:
    parameters = tuple(_ptx_parameter(match) for match in _ENTRY_PARAMETER.finditer(parameter_list))
    named = from_mangled(name)
    if named is None or len(named.parameters) != len(parameters):
        return Signature(parameters, "ptx")
    pairs = list(zip(named.parameters, parameters, strict=True))
    if any(typed.size not in (0, plain.size) for typed, plain in pairs):
        return Signature(parameters, "ptx")
    return Signature(tuple(_richer(typed, plain) for typed, plain in pairs), "ptx")


def _richer(typed: Parameter, plain: Parameter) -> Parameter:
    """Take the mangled name's type unless it has none, in which case PTX knows at least the size."""
    return plain if typed.kind == "unknown" else typed


def _ptx_parameter(match: re.Match[str]) -> Parameter:
    """Type a PTX parameter: integers stay unknown, as compilers write `.u` for signed ones and pointers too."""
    bits = int(match["type"].lstrip("bfsu"))
    size = bits // 8 * int(match["count"] or 1)
    if match["count"]:
        return Parameter("", "struct", size, int(match["align"] or bits // 8), OPAQUE_TYPE)
    if match["pointer"]:
        return Parameter("", "pointer", size, size, VOID_TYPE, element_align=int(match["to"] or 0))
    if match["type"] in ("f32", "f64"):
        return Parameter("", "scalar", size, size, DType(FLOAT, bits))
    return replace(_unknown(size), align=size)
