"""C++ type names of kernel parameters: their element types, sizes and spellings, and how a declaration is read.

The table says of the device what `_include/tfi_signature.h` says to the compiler; a test compares the two.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ._dtypes import BFLOAT, BOOL, FLOAT, INT, STRUCT, UINT, VOID, DType
from ._errors import SignatureError


class Known(NamedTuple):
    """A type whose layout we know."""

    dtype: DType
    size: int
    align: int


class Declaration(NamedTuple):
    """One parsed parameter; `pointers` holds, for each `*`, whether that pointer is itself const."""

    base: str
    is_const: bool
    pointers: tuple[bool, ...]
    name: str


def spell(dtype: DType) -> str:
    """Return the C++ name of an element type, or an empty string for a struct."""
    return _SPELLING.get(dtype, "")


def lookup(base: str) -> Known | None:
    """Return the layout of a type name as `parse` leaves it, or None for a type of the user's."""
    sized = _SIZED_STRUCT.fullmatch(base)
    if sized is None:
        return _KNOWN.get(_STANDARD_NAMESPACE.sub("", base))
    size = int(sized["size"])
    return Known(DType(STRUCT, 0, 0), size, int(sized["align"] or min(size & -size, 8)))


def error(declaration: str, token: str, reason: str) -> SignatureError:
    """Build the error of a declaration that cannot be read."""
    return SignatureError(
        f"parameter {declaration.strip()!r} must be a C parameter declaration, got {token!r}: {reason}",
        op="signature", argument="signature", actual=token,
    )  # fmt: skip


def split(text: str) -> list[str]:
    """Cut a parameter list at its outer commas; `void` alone and nothing at all are the empty list."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [] if len(parts) == 1 and parts[0].strip() in ("", "void") else parts


def parameter_list(function: str) -> str | None:
    """Return what stands in the last outer parentheses of a function's text, or None if it ends otherwise."""
    if not function.endswith(")"):
        return None
    depth = 0
    for index in range(len(function) - 1, -1, -1):
        depth += (function[index] == ")") - (function[index] == "(")
        if depth == 0:
            return function[index + 1 : -1]
    return None


def parse(text: str) -> Declaration:
    """Read one C parameter declaration."""
    tokens = [token for token in _tokens(text) if token not in _IGNORED]
    star = tokens.index("*") if "*" in tokens else len(tokens)
    before, after = tokens[:star], tokens[star:]
    words = [token for token in before if token != "const"]
    named = after if after and _is_name(after[-1]) else words if not after and _has_name(words) else None
    name = named.pop() if named else ""
    return Declaration(_base(text, words), "const" in before, _pointers(text, after), name)


def _tokens(text: str) -> list[str]:
    """Cut a declaration into names, stars and sized structs; an array parameter is a pointer."""
    body, brackets, rest = text.partition("[")
    tokens = [re.sub(r"\s+", "", token) for token in _TOKEN.findall(body)]
    for token in tokens:
        if not (token == "*" or _NAME.fullmatch(token) or _SIZED_STRUCT.fullmatch(token)):
            raise error(text, token, "only names, const, * and struct(size) are read")
    if not brackets:
        return tokens
    if not re.fullmatch(r"\s*\d*\s*\]\s*", rest):
        raise error(text, f"[{rest.strip()}", "an array parameter has one plain extent")
    split_at = len(tokens) - 1 if _has_name([t for t in tokens if t != "const"]) or "*" in tokens[:-1] else len(tokens)
    return [*tokens[:split_at], "*", *tokens[split_at:]]


def _is_name(token: str) -> bool:
    return token not in _QUALIFIERS and _NAME.fullmatch(token) is not None


def _has_name(words: list[str]) -> bool:
    """Whether the last of a type's words is the parameter's name rather than part of the type."""
    return len(words) > 1 and words[-1] not in _INTEGER_WORDS and words[-2] not in _TAGS and words[-1] not in _KNOWN


def _base(text: str, words: list[str]) -> str:
    """Bring a type's words to the one spelling of the table."""
    plain = [word for word in words if word not in _TAGS]
    if not plain:
        raise error(text, " ".join(words) or text.strip(), "a type name is missing")
    if any(word in _INTEGER_WORDS for word in plain):
        return _integer(text, plain)
    if len(plain) > 1:
        raise error(text, plain[1], f"it follows the type {plain[0]!r}")
    return plain[0]


def _integer(text: str, words: list[str]) -> str:
    """Sort the words of an integer type, which C allows in any order."""
    key = " ".join(sorted(word for word in words if word != "int" or len(words) == 1))
    if key not in _INTEGERS:
        raise error(text, " ".join(words), "no such integer type")
    return _INTEGERS[key]


def _pointers(text: str, tokens: list[str]) -> tuple[bool, ...]:
    levels: list[bool] = []
    for token in tokens:
        if token == "*":
            levels.append(False)
        elif token == "const":
            levels[-1] = True
        else:
            raise error(text, token, "it follows a *")
    return tuple(levels)


_INTEGER_WORDS = frozenset({"char", "short", "int", "long", "signed", "unsigned"})
_TAGS = frozenset({"struct", "class", "union", "enum", "typename"})
_IGNORED = frozenset({"volatile", "restrict", "__restrict__", "__restrict", "__grid_constant__"})
_QUALIFIERS = frozenset({"const", "*"}) | _IGNORED
_SIZED_STRUCT = re.compile(r"struct\((?P<size>[1-9]\d*)(?:,(?P<align>1|2|4|8|16|32|64|128|256))?\)")
_STANDARD_NAMESPACE = re.compile(r"^(?:::)?(?:(?:cuda::)?std::)?")
_NAME = re.compile(r"(?:::)?[A-Za-z_$][\w$]*(?:<.*>)?(?:::[A-Za-z_$~][\w$]*(?:<.*>)?)*")
_TOKEN = re.compile(
    r"struct\s*\([^)]*\)|(?:::)?[A-Za-z_$][\w$]*(?:\s*<.*>)?(?:::[A-Za-z_$][\w$]*(?:<.*>)?)*|[^\s\w]|\w+"
)

_SCALARS = {
    "bool": DType(BOOL, 8),
    "char": DType(INT, 8),
    "signed char": DType(INT, 8),
    "unsigned char": DType(UINT, 8),
    "short": DType(INT, 16),
    "unsigned short": DType(UINT, 16),
    "int": DType(INT, 32),
    "unsigned int": DType(UINT, 32),
    "long long": DType(INT, 64),
    "unsigned long long": DType(UINT, 64),
    "float": DType(FLOAT, 32),
    "double": DType(FLOAT, 64),
    "__half": DType(FLOAT, 16),
    "__nv_bfloat16": DType(BFLOAT, 16),
    "__nv_fp8_e4m3": DType(10, 8),
    "__nv_fp8_e5m2": DType(12, 8),
    "__nv_fp8_e8m0": DType(14, 8),
}
# Spelled by other names than the ones messages use.
_ALIASES = {
    "long": "long long",
    "unsigned long": "unsigned long long",
    "half": "__half",
    "nv_bfloat16": "__nv_bfloat16",
    "half2": "__half2",
    "nv_bfloat162": "__nv_bfloat162",
    "size_t": "unsigned long long",
    "uintptr_t": "unsigned long long",
    **dict.fromkeys(("ssize_t", "ptrdiff_t", "intptr_t"), "long long"),
    **{f"int{bits}_t": name for bits, name in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))},
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long long",
}
_VECTORS = {
    **{f"char{n}": DType(INT, 8, n) for n in (1, 2, 3, 4)},
    **{f"uchar{n}": DType(UINT, 8, n) for n in (1, 2, 3, 4)},
    **{f"short{n}": DType(INT, 16, n) for n in (1, 2, 3, 4)},
    **{f"ushort{n}": DType(UINT, 16, n) for n in (1, 2, 3, 4)},
    **{f"int{n}": DType(INT, 32, n) for n in (1, 2, 3, 4)},
    **{f"uint{n}": DType(UINT, 32, n) for n in (1, 2, 3, 4)},
    **{f"longlong{n}": DType(INT, 64, n) for n in (1, 2, 3, 4)},
    **{f"ulonglong{n}": DType(UINT, 64, n) for n in (1, 2, 3, 4)},
    **{f"float{n}": DType(FLOAT, 32, n) for n in (1, 2, 3, 4)},
    **{f"double{n}": DType(FLOAT, 64, n) for n in (1, 2)},
    "__half2": DType(FLOAT, 16, 2),
    "__nv_bfloat162": DType(BFLOAT, 16, 2),
}


def _vector(dtype: DType) -> Known:
    """Lay out a vector type: three lanes align as one, others as a whole, up to 16 bytes."""
    size = dtype.itemsize
    return Known(dtype, size, size // 3 if dtype.lanes == 3 else min(size, 16))


_KNOWN: dict[str, Known] = {
    **{name: Known(dtype, dtype.itemsize, dtype.itemsize) for name, dtype in _SCALARS.items()},
    **{name: _vector(dtype) for name, dtype in _VECTORS.items()},
    "void": Known(DType(VOID, 0, 0), 0, 0),
    "CUtensorMap": Known(DType(STRUCT, 0, 0), 128, 64),
}
_KNOWN |= {alias: _KNOWN[name] for alias, name in _ALIASES.items()}
_SPELLING: dict[DType, str] = {
    DType(VOID, 0, 0): "void",
    **{dtype: name for name, dtype in _VECTORS.items() if dtype.lanes > 1},
    **{dtype: name for name, dtype in _SCALARS.items()},
    DType(INT, 8): "char",
}
_INTEGERS = {
    " ".join(sorted(words)): name
    for name in _KNOWN
    if (words := [word for word in name.split() if word != "int"] or ["int"]) and set(words) <= _INTEGER_WORDS
}
_INTEGERS |= {"signed": "int", "short signed": "short", "long signed": "long", "long long signed": "long long"}
