"""What CUDA C++ text tells without a compiler: the kernels it declares and the headers it includes.

Both readings may miss what macros generate.  They never decide what a program means: a kernel name found here is put
to the compiler, and a header list only keys a cache.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ._c_types import split


class Headers(NamedTuple):
    """The files that a source can include; `is_complete` is False when a macro names one of them."""

    digests: tuple[tuple[str, str], ...]
    is_complete: bool


def normalise(expression: str) -> str:
    """Return a name expression without the white space, `&` and leading `::` that do not change what it names."""
    text = re.sub(r"\s*([^\w\s])\s*", r"\1", expression.strip())
    return re.sub(r"\s+", " ", text).removeprefix("&").removeprefix("::")


def kernel_names(source: str) -> tuple[str, ...]:
    """Return the qualified names of the kernels and of the explicit instantiations that a source declares."""
    return tuple(dict.fromkeys(_kernels(_TOKEN.findall(_strip(source)))))


def parameter_lists(source: str) -> dict[str, tuple[str, ...]]:
    """Return the parameter declarations by plain kernel name; kernels of one name but several lists are left out."""
    tokens = _TOKEN.findall(_strip(source))
    found: dict[str, set[tuple[str, ...]]] = {}
    for index in (i for i, token in enumerate(tokens) if token == "__global__"):
        for opening in (i for i in range(index + 2, min(index + 24, len(tokens))) if tokens[i] == "("):
            end = _closing(tokens, opening)
            if tokens[end + 1 : end + 2] and tokens[end + 1] in _AFTER_PARAMETERS:
                found.setdefault(tokens[opening - 1], set()).add(tuple(split(" ".join(tokens[opening + 1 : end]))))
                break
    return {name: next(iter(lists)) for name, lists in found.items() if len(lists) == 1}


def parameter_names(source: str) -> dict[str, tuple[str, ...]]:
    """Return the parameters' names by plain kernel name, empty for a parameter that has but a type."""
    return {name: tuple(map(_last_word, declared)) for name, declared in parameter_lists(source).items()}


def _last_word(declaration: str) -> str:
    """Return the last identifier of a declaration, before any array bounds; empty where there is but a type."""
    words = re.sub(r"\[.*|=.*", "", declaration).split()
    return words[-1] if len(words) > 1 and _IDENTIFIER.fullmatch(words[-1]) else ""


def included_files(source: str, directory: Path, search: Sequence[str], *, toolkit: Sequence[str] = ()) -> Headers:
    """Find by name, recursively, each file that `source` in `directory` may include, and digest it.

    Conditions are not evaluated and every directory is tried, so that the list has at least the files used.  A macro
    as the name of a header makes the list incomplete, except inside `toolkit`, where such macros stay in the toolkit.
    """
    first = _parse_includes(source.encode("utf-8", "surrogateescape"))
    everywhere = [str(directory), *search, *toolkit]
    inside = tuple(os.path.join(folder, "") for folder in toolkit)
    found: dict[str, str] = {}
    tried: set[str] = set()
    is_complete, pending = not first.has_macro, [(str(directory), first.names)]
    while pending:
        origin, names = pending.pop()
        paths = {os.path.join(folder, name) for folder in (origin, *everywhere) for name in names} - tried
        tried |= paths
        for path in filter(os.path.isfile, paths):
            header = _read_header(path, os.stat(path).st_mtime_ns)
            found[path] = header.digest
            is_complete &= not header.includes.has_macro or path.startswith(inside)
            pending.append((os.path.dirname(path), header.includes.names))
    return Headers(tuple(sorted(found.items())), is_complete)


_NOT_CODE = re.compile(
    r"(?P<number>\b\d[\w'.]*)|//(?:\\\n|[^\n])*|/\*.*?\*/"
    r'|R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|\d[\w.]*|\S")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# What may follow the parameter list; anything else in parentheses is an attribute or a macro call.
_AFTER_PARAMETERS = frozenset({"{", ";", "-", "noexcept", "requires"})


def _strip(source: str) -> str:
    """Remove comments, literals and preprocessor lines."""
    return _DIRECTIVE.sub("", _NOT_CODE.sub(lambda match: match["number"] or " ", source))


def _kernels(tokens: list[str]) -> Iterator[str]:
    """Walk the tokens with the stack of open scopes; None marks one in which no kernel can be named."""
    scopes: list[str | None] = []
    start = 0
    for index, token in enumerate(tokens):
        if token == "{":
            scopes.append(_scope(tokens[start:index]))
        elif token == "}":
            del scopes[-1:]
        elif token == "__global__":
            name = "" if None in scopes else _declared_name(tokens, start, index)
            if name:
                yield "::".join([scope for scope in scopes if scope] + [name])
        if token in "{};":
            start = index + 1


def _scope(declaration: list[str]) -> str | None:
    """Name the namespace that a declaration opens, empty for an unnamed one or `extern "C"`, None for other scopes."""
    if "namespace" in declaration:
        words = declaration[declaration.index("namespace") + 1 :]
        return "".join(word for word in words if word != "inline" and (word == "::" or _IDENTIFIER.fullmatch(word)))
    return "" if declaration[-1:] == ["extern"] else None


def _declared_name(tokens: list[str], start: int, index: int) -> str:
    """Return the name of the kernel declared around `index`; empty for a template, which has no address."""
    head = tokens[start:index]
    template = head.index("template") if "template" in head else None
    if (
        template is not None
        and head[template + 1 : template + 2] == ["<"]
        and head[template + 2 : template + 3] != [">"]
    ):
        return ""
    position = index + 1
    while position < len(tokens) and tokens[position] not in ("{", ";", "}"):
        if tokens[position] != "(":
            position += 1
            continue
        end = _closing(tokens, position)
        if end + 1 < len(tokens) and tokens[end + 1] in _AFTER_PARAMETERS:
            return _name_before(tokens, position)
        position = end + 1
    return ""


def _closing(tokens: list[str], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index] == "(") - (tokens[index] == ")")
        if depth == 0:
            return index
    return len(tokens)


def _name_before(tokens: list[str], end: int) -> str:
    """Return the name, template arguments and qualifiers included, that ends before `end`."""
    first = end - 1
    if tokens[first] == ">":
        depth = 1
        while depth and first > 0:
            first -= 1
            depth += (tokens[first] == ">") - (tokens[first] == "<")
        first -= 1
    if not _IDENTIFIER.fullmatch(tokens[first]):
        return ""
    while tokens[first - 1] == "::" and _IDENTIFIER.fullmatch(tokens[first - 2]) and tokens[first - 2] != "void":
        first -= 2
    return normalise(" ".join(tokens[first:end]))


class _Includes(NamedTuple):
    names: tuple[str, ...]
    has_macro: bool


class _Header(NamedTuple):
    digest: str
    includes: _Includes


_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:<([^>\n]+)>|"([^"\n]+)"|([A-Za-z_]))', re.MULTILINE)


def _parse_includes(text: bytes) -> _Includes:
    found = _INCLUDE.findall(text)
    names = tuple(os.fsdecode(angle or quoted) for angle, quoted, _ in found if angle or quoted)
    return _Includes(names, any(macro for _, _, macro in found))


@functools.lru_cache(maxsize=4096)
def _read_header(path: str, mtime_ns: int) -> _Header:  # the time only keys the cache
    text = Path(path).read_bytes()
    return _Header(hashlib.sha256(text).hexdigest(), _parse_includes(text))
