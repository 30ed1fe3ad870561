"""What a caller may tell NVRTC, checked once, at construction."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ._errors import ValidationError

Defines = Mapping[str, str | int | None] | tuple[tuple[str, str | int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvrtcOptions:
    """Options of a compilation; equal options compare and hash as equal.

    `arch` is ``sm_90``, ``sm_90a`` or ``compute_90``, by default the device's own.  `defines` is a mapping, None for a
    macro without a value.  `name_expressions` are the template instances to compile, such as ``scale<double>``.
    `extra` are further options, one an element.  `check` adds bounds and race checks on the CPU device.

    Raises ValidationError naming the field.

    >>> NvrtcOptions(defines={"TILE": 32}, name_expressions=("scale<double>",)).defines
    (('TILE', '32'),)
    """

    arch: str | None = None
    std: str = "c++17"
    include_paths: tuple[str, ...] = ()
    defines: Defines = ()
    extra: tuple[str, ...] = ()
    name_expressions: tuple[str, ...] = ()
    check: bool = False

    def __post_init__(self) -> None:
        """Check each field and bring it to its stored form."""
        if self.arch is not None and not _ARCH.fullmatch(self.arch):
            raise _invalid("arch", 'be such as "sm_90", "sm_90a" or "compute_90"', self.arch)
        if not _STD.fullmatch(self.std):
            raise _invalid("std", 'be such as "c++17"', self.std)
        for field in ("include_paths", "extra", "name_expressions"):
            object.__setattr__(self, field, _texts(field, getattr(self, field)))
        for option in self.extra:
            _refuse_own_field(option)
        object.__setattr__(self, "defines", _definitions(self.defines))

    def arguments(self, arch: str, toolkit: Sequence[str]) -> tuple[str, ...]:
        """Return the option list for one architecture; the directories of `toolkit` are searched last."""
        return (
            f"--gpu-architecture={arch}",
            f"--std={self.std}",
            *(f"--include-path={path}" for path in (*self.include_paths, *toolkit)),
            *(
                f"--define-macro={name}" if value is None else f"--define-macro={name}={value}"
                for name, value in _pairs(self.defines)
            ),
            *self.extra,
        )


_ARCH = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")
_STD = re.compile(r"c\+\+\d\d")
_MACRO = re.compile(r"[A-Za-z_]\w*(?:\([\w\s,.]*\))?")
_FIELD_OF_OPTION = (
    ("std", re.compile(r"--?std\b")),
    ("arch", re.compile(r"--gpu-architecture\b|-arch\b")),
    ("include_paths", re.compile(r"--include-path\b|-I")),
)


def _texts(field: str, values: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(values, (str, bytes, os.PathLike)):
        raise _invalid(field, f"be a tuple of strings. Pass {field}=({os.fspath(values)!r},)", values)
    texts = tuple(os.fspath(value) if isinstance(value, os.PathLike) else value for value in values)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise _invalid(field, "hold non-empty strings", text)
        _refuse_nul(field, text)
    return texts


def _refuse_own_field(option: str) -> None:
    """Refuse what has a field of its own: NVRTC would take one of the two, with a warning at most."""
    for field, pattern in _FIELD_OF_OPTION:
        if pattern.match(option):
            raise _invalid("extra", f"not repeat what the field {field} says", option)


def _definitions(defines: Defines) -> tuple[tuple[str, str | None], ...]:
    if isinstance(defines, (str, bytes)):
        raise _invalid("defines", 'be a mapping, such as {"TILE": 32}', defines)
    return tuple(sorted(((name, _value(name, value)) for name, value in _pairs(defines)), key=lambda pair: pair[0]))


def _pairs(defines: Defines) -> Iterable[tuple[str, str | int | None]]:
    return defines.items() if isinstance(defines, Mapping) else defines


def _value(name: str, value: str | int | None) -> str | None:
    if not _MACRO.fullmatch(name):
        raise _invalid("defines", "have macro names for keys", name)
    if value is None:
        return None
    text = str(int(value)) if isinstance(value, int) else value
    if not isinstance(text, str):
        raise _invalid("defines", "have strings, integers or None for values", value)
    _refuse_nul("defines", text)
    return text


def _refuse_nul(field: str, text: str) -> None:
    if "\0" in text:
        raise _invalid(field, "not contain NUL", text)


def _invalid(field: str, condition: str, actual: object) -> ValidationError:
    must, _, fix = condition.partition(". ")
    text = f"{field} must {must}, got {actual!r}" + (f". {fix}" if fix else "")
    return ValidationError(text, op="NvrtcOptions", argument=field, actual=actual)
