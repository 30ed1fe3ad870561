"""The words for one argument that was refused: its kind, range, type, layout, place, or what it overlaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core
from ._case import Case, measure
from ._errors import (
    AliasError,
    DTypeError,
    LayoutError,
    RuntimeStateError,
    ScalarRangeError,
    SignatureError,
    TenferroError,
    ValidationError,
)
from ._explain_import import device_error
from ._signature import Parameter
from ._tensors import TensorRef


def reference_error(refusal: str, session: Any, x: object, ref: Any, op: str) -> TenferroError:
    """Return the error for a tensor that may not become a reference."""
    subject = "tensor"
    if refusal == "DEVICE":
        return device_error(session, ref.device, subject, op)
    if refusal == "READ_ONLY":
        return read_only_error(x, subject, op)
    if refusal == "LAYOUT":
        return layout_error(ref, subject, op)
    if refusal == "NULL_DATA":
        return null_data_error(x, subject, op)
    if refusal == "BAD_DTYPE":
        return bad_dtype_error(ref, subject, op)
    return LayoutError(f"tensor must have an extent that 63-bit addresses can span, got shape {ref.shape}", op=op)


def overlap_error(ref: TensorRef, op: str) -> LayoutError:
    """Return the error for writing through a tensor whose elements share memory."""
    return LayoutError(
        f"tensor_mut must get elements that do not overlap, got shape {ref.shape} with strides {ref.strides}. "
        "Write to a copy",
        op=op,
        actual=ref.strides,
    )


def _kind(case: Case) -> TenferroError:
    parameter, value = case.parameter, case.value
    got = type(value).__name__
    hint = ""
    if parameter is not None and parameter.kind == "pointer":
        hint = " Pass a tensor, `s.tensor(x)`, a DeviceBytes, or `KernelArg.null()`; a bare address is never taken."
    elif isinstance(value, bool):
        hint = " A bool is converted only for a bool parameter: pass `int(flag)`."
    elif hasattr(value, "__dlpack__"):
        hint = " Pass a number: `x.item()`."
    elif isinstance(value, complex):
        hint = " Pass `KernelArg.c64(z)` or `KernelArg.c128(z)` for a complex parameter."
    elif parameter is not None and parameter.kind == "struct":
        hint = " Pass `KernelArg.struct(value)`, bytes, a ctypes structure or a NumPy record."
    elif isinstance(value, float):
        hint = " Pass `int(x)` if that is meant."
    text = f"{case.subject} must be {_wanted(parameter)}, got {got}.{hint}"
    return case.error(SignatureError, text.rstrip("."), expected=_wanted(parameter), actual=got)


def _wanted(parameter: Parameter | None) -> str:
    if parameter is None:
        return "a typed argument"
    words = {"pointer": "a tensor", "scalar": f"a number for {parameter.c_name}", "struct": f"a {parameter.c_name}"}
    return words.get(parameter.kind, "a typed argument")


def _scalar_range(case: Case) -> TenferroError:
    parameter = case.parameter
    declared = parameter.c_name if parameter else "the declared type"
    return case.error(
        ScalarRangeError,
        f"{case.subject} must fit {declared}, got {case.value!r}",
        expected=declared,
        actual=case.value,
    )


def _scalar_type(case: Case) -> TenferroError:
    parameter = case.parameter
    declared = parameter.c_name if parameter else "the declared type"
    got = getattr(getattr(case.value, "dtype", None), "name", None) or repr(case.value)
    return case.error(
        SignatureError,
        f"{case.subject} must be {declared}, got a typed scalar {got}. Pass a Python number, which is converted with "
        "a range check, or the exact type",
        expected=declared,
        actual=got,
    )


def _struct_size(case: Case) -> TenferroError:
    parameter = case.parameter
    size = None if parameter is None else parameter.size
    got = len(case.value.data) if isinstance(case.value, _core.TypedArgument) else 8
    got = len(case.value) if isinstance(case.value, bytes) else got
    if hasattr(case.value, "nbytes") and not isinstance(case.value, _core.MemoryRef):
        got = case.value.nbytes
    return case.error(
        SignatureError,
        f"{case.subject} must have {size} bytes, got {got}. Match the kernel's struct, padding included "
        "(`np.dtype(..., align=True)`)",
        expected=size,
        actual=got,
    )


def _untyped(case: Case) -> TenferroError:
    return case.error(
        SignatureError,
        f"{case.subject} must say its type, for the image does not, got {type(case.value).__name__}. Pass "
        "`s.tensor(x)`, `s.tensor_mut(x)` or `KernelArg.i32(n)`, or give `module.function(name, signature=...)`",
        actual=type(case.value).__name__,
    )


def _null(case: Case) -> TenferroError:
    return case.error(
        SignatureError, f"{case.subject} must be a tensor, got None. A null pointer is `KernelArg.null()`", actual=None
    )


def _device(case: Case) -> TenferroError:
    return device_error(case.session, measure(case).device, case.subject, case.op, **case.facts)


def _dtype(case: Case) -> TenferroError:
    ref, parameter = measure(case), case.parameter
    assert parameter is not None
    return case.error(
        DTypeError,
        f"{case.subject} must point to {parameter.dtype}, got {ref.dtype}. Convert the tensor, or use a kernel for "
        f"{ref.dtype}",
        expected=parameter.dtype.name,
        actual=ref.dtype.name,
    )


def _layout(case: Case) -> TenferroError:
    return layout_error(measure(case), case.subject, case.op, **case.facts)


def layout_error(ref: Any, subject: str, op: str, **facts: Any) -> LayoutError:
    """Return the error for a tensor that is not compact row-major."""
    return LayoutError(
        f"{subject} must be compact row-major, got shape {ref.shape} with strides {ref.strides}. Pass "
        "`x.contiguous()` (NumPy: `np.ascontiguousarray(x)`), or take the strides yourself with "
        "`s.tensor(x, strided=True)`",
        op=op,
        actual=ref.strides,
        **{"argument": subject, **facts},
    )


def _alignment(case: Case) -> TenferroError:
    ref, parameter = measure(case), case.parameter
    assert parameter is not None
    return case.error(
        LayoutError,
        f"{case.subject} must be aligned to {parameter.element_align} bytes, got an address that is "
        f"{ref._address % parameter.element_align} past it. Pass a copy, or a view that starts on the boundary",
        expected=parameter.element_align,
    )


def _element_multiple(case: Case) -> TenferroError:
    ref, parameter = measure(case), case.parameter
    assert parameter is not None
    return case.error(
        LayoutError,
        f"{case.subject} must hold whole elements of {parameter.element_size} bytes, got {ref.nbytes} bytes",
        expected=parameter.element_size,
        actual=ref.nbytes,
    )


def _read_only(case: Case) -> TenferroError:
    return read_only_error(case.value, case.subject, case.op, **case.facts)


def read_only_error(value: object, subject: str, op: str, **facts: Any) -> ValidationError:
    """Return the error for writing what may not be written."""
    return ValidationError(
        f"{subject} must be writable, got a read-only {type(value).__module__}.{type(value).__qualname__}. Write to a "
        "copy, or to `s.alloc_output(...)`",
        op=op,
        actual="read-only",
        **{"argument": subject, **facts},
    )


def _write_through_ref(case: Case) -> TenferroError:
    return case.error(
        SignatureError, f"{case.subject} is written by the kernel and must be a TensorMut, got a TensorRef. Pass "
        "`s.tensor_mut(x)`"
    )  # fmt: skip


def _null_data(case: Case) -> TenferroError:
    return null_data_error(case.value, case.subject, case.op, **case.facts)


def null_data_error(value: object, subject: str, op: str, **facts: Any) -> ValidationError:
    """Return the error for elements without memory: fake and meta tensors, freed storage."""
    return ValidationError(
        f"{subject} must have memory, got a null pointer with elements from {type(value).__qualname__}. Fake, meta and "
        "freed tensors have none",
        op=op,
        **{"argument": subject, **facts},
    )


def _explicit(case: Case) -> TenferroError:
    return case.error(
        SignatureError,
        f"{case.subject} points to a struct, so the tensor must be given as `s.tensor(x)` or `s.tensor_mut(x)`, got "
        f"{type(case.value).__name__}",
    )


def _foreign_ref(case: Case) -> TenferroError:
    state = "another session" if case.value.is_valid else "a closed session"
    return case.error(
        RuntimeStateError, f"{case.subject} must be a reference of this session, got one of {state}. Make it with "
        "this session's `tensor`, `tensor_mut` or `alloc_bytes`"
    )  # fmt: skip


def _extent(case: Case) -> TenferroError:
    return case.error(LayoutError, f"{case.subject} must have an extent that 63-bit addresses can span, got more")


def _alias(case: Case) -> TenferroError:
    return case.error(
        AliasError,
        f"{case.subject} is written and must not overlap another argument, got overlapping memory. Pass a copy, or "
        "declare the kernel's contract with `module.function(name, may_alias=True)`",
    )


def _bad_dtype(case: Case) -> TenferroError:
    return bad_dtype_error(measure(case), case.subject, case.op, **case.facts)


def bad_dtype_error(ref: Any, subject: str, op: str, **facts: Any) -> DTypeError:
    """Return the error for an element type without an agreed raw form."""
    code, bits, lanes = ref.dtype_code
    return DTypeError(
        f"{subject} must have a whole-byte element type that DLPack names, got code={code} bits={bits} lanes={lanes}. "
        "View it as an integer type of the same width first",
        op=op,
        actual=(code, bits, lanes),
        **{"argument": subject, **facts},
    )


ARGUMENT_TEXTS: dict[str, Callable[[Case], TenferroError]] = {
    "KIND": _kind,
    "SCALAR_RANGE": _scalar_range,
    "SCALAR_TYPE": _scalar_type,
    "STRUCT_SIZE": _struct_size,
    "UNTYPED": _untyped,
    "DEVICE": _device,
    "DTYPE": _dtype,
    "LAYOUT": _layout,
    "ALIGNMENT": _alignment,
    "READ_ONLY": _read_only,
    "WRITE_THROUGH_REF": _write_through_ref,
    "NULL_DATA": _null_data,
    "EXPLICIT": _explicit,
    "FOREIGN_REF": _foreign_ref,
    "EXTENT": _extent,
    "ALIAS": _alias,
    "ELEMENT_MULTIPLE": _element_multiple,
    "BAD_DTYPE": _bad_dtype,
    "NULL_ARGUMENT": _null,
}
