"""The parameters of a `KernelSpec`: what the text declares, which role each has, what a compiler confirms."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from . import _c_types as ctype
from ._cuda_source import parameter_lists
from ._dtypes import STRUCT, VOID, DType
from ._errors import SignatureError, ValidationError
from ._signature import Signature

Role = Literal["input", "inout", "output", "scalar", "value"]
PLACEHOLDER = re.compile(r"\{\s*(\w+)\s*\}")


@dataclass(frozen=True, slots=True)
class SpecParameter:
    """One parameter of a declared kernel.

    `role` is ``input`` (``const T*``), ``inout`` (``T*`` that the caller passes), ``output`` (``T*`` that the call
    makes), ``scalar`` (passed by the caller) or ``value`` (computed from the other arguments).  `dtype` is the type of
    one element or of the scalar; None where it is that of the argument `dtype_of`, or a type of the caller's own.
    """

    name: str
    role: Role
    dtype: DType | None
    dtype_of: str | None
    declaration: str

    @property
    def is_tensor(self) -> bool:
        """Whether it is a pointer."""
        return self.role in ("input", "inout", "output")


def read_parameters(
    source: str, name: str, signature: str | None, outputs: Sequence[str], values: Sequence[str]
) -> tuple[SpecParameter, ...]:
    """Return the parameters of the kernel `name` of `source`, or of the C parameter list `signature`.

    Raises `SignatureError` for a declaration that cannot be read, `ValidationError` for a kernel that the text does
    not hold and for outputs or values that are no such parameters.
    """
    lines = _declarations(source, name) if signature is None else tuple(ctype.split(signature))
    declared = [_python_name(ctype.parse(re.sub(r"=.*", "", line))) for line in lines]
    bound = {_base_of(declared, argument): argument for argument in PLACEHOLDER.findall(name)}
    parameters = tuple(
        _parameter(each, line, bound, outputs, values) for each, line in zip(declared, lines, strict=True)
    )
    _require_names(name, parameters)
    for kind, named, role in (("outputs", outputs, "output"), ("values", values, "value")):
        wrong = [each for each in named if each not in {p.name for p in parameters if p.role == role}]
        if wrong:
            must = "pointers to non-const" if kind == "outputs" else "passed by value"
            raise _invalid(kind, f"parameters that are {must}", wrong)
    return parameters


def confirm(name: str, parameters: Sequence[SpecParameter], signature: Signature) -> None:
    """Raise `SignatureError` where the compiler read the kernel otherwise than the text was read."""
    if len(parameters) != len(signature.parameters):
        raise _disagreement(name, "the parameter list", str(len(signature.parameters)), str(len(parameters)))
    for read, known in zip(parameters, signature.parameters, strict=True):
        if known.kind == "unknown":
            continue
        if read.is_tensor != (known.kind == "pointer") or (read.role == "input") != (known.written is False):
            raise _disagreement(name, f"parameter {read.name!r}", known.c_name, read.declaration)


def _declarations(source: str, name: str) -> tuple[str, ...]:
    plain = PLACEHOLDER.sub("", name).partition("<")[0].rpartition("::")[2].strip()
    found = parameter_lists(source)
    if plain not in found:
        raise ValidationError(
            f"kernel {plain!r} must be declared once in the source's text, which declares {sorted(found)}. Say its "
            'parameters: `KernelSpec(..., signature="const float* x, float* y, int n")`',
            op="KernelSpec",
            argument="name",
            actual=name,
            candidates=sorted(found),
        )
    return found[plain]


def _python_name(declared: ctype.Declaration) -> ctype.Declaration:
    """Call a parameter `in` of the kernel `in_` in Python, where `in` could be no argument of a call or a rule."""
    return declared._replace(name=declared.name + "_") if keyword.iskeyword(declared.name) else declared


def _base_of(declared: Sequence[ctype.Declaration], argument: str) -> str:
    for each in declared:
        if each.name == argument:
            return each.base
    raise ValidationError(
        f"placeholder must name a parameter, one of {[each.name for each in declared]}, got {{{argument}}}",
        op="KernelSpec",
        argument="name",
        actual=argument,
    )


def _parameter(
    declared: ctype.Declaration, line: str, bound: dict[str, str], outputs: Sequence[str], values: Sequence[str]
) -> SpecParameter:
    source = bound.get(declared.base)
    known = None if source else ctype.lookup(declared.base)
    dtype = None if known is None or known.dtype.code in (VOID, STRUCT) else known.dtype
    if not declared.pointers:
        role: Role = "value" if declared.name in values else "scalar"
    elif declared.is_const if len(declared.pointers) == 1 else declared.pointers[-2]:
        role = "input"
    else:
        role = "output" if declared.name in outputs else "inout"
    return SpecParameter(declared.name, role, dtype, source, " ".join(line.split()))


def _require_names(name: str, parameters: Sequence[SpecParameter]) -> None:
    names = [p.name for p in parameters]
    if "" in names or len(set(names)) != len(names):
        raise SignatureError(
            f"kernel {name!r} must have a name of its own for each parameter, got {names}",
            op="KernelSpec",
            argument="signature",
            actual=names,
        )


def _invalid(argument: str, expected: str, actual: object) -> ValidationError:
    return ValidationError(
        f"{argument} must name {expected}, got {actual!r}", op="KernelSpec", argument=argument, actual=actual
    )


def _disagreement(name: str, what: str, compiler: str, text: str) -> SignatureError:
    return SignatureError(
        f"{what} of kernel {name!r} must be read as the compiler does: {compiler}; its text was read as {text}. Say "
        'the parameters: `KernelSpec(..., signature="const float* x, float* y, int n")`',
        op="KernelSpec",
        argument="signature",
        expected=compiler,
        actual=text,
    )
