"""The words for a tensor that could not be imported, and for an object that must not be constructed."""

from __future__ import annotations

from typing import Any

from . import _core
from ._errors import (
    DTypeError,
    ExportError,
    RuntimeStateError,
    SignatureError,
    TenferroError,
    UnsupportedError,
    ValidationError,
)
from ._tensors import device_name


def explain_import(what: str, obj: Any, detail: Any) -> Exception:
    """Return the error for a tensor that could not be imported, or an object that must not be constructed."""
    name = f"{type(obj).__module__}.{type(obj).__qualname__}"
    if what == "construct":
        made, op = type(obj).__name__, "tensor"
        where = "a session"
        if made == "Session":
            where, op = "`tenferro_interop.session(...)`", "session"
        return RuntimeStateError(f"{made} must come from {where}, got a direct construction", op=op)
    if what == "device":
        session, declared = detail
        return device_error(session, device_name(*declared), "tensor", "tensor")
    if what == "export":
        return _export_refused(obj, name, *detail)
    texts = {
        "producer": f"tensor must offer __dlpack__ or __cuda_array_interface__, got {name}. "
        "A scalar is passed as a number",
        "capsule": f"__dlpack__ of {name} must return an unused DLPack capsule, got {_capsule_text(detail)}",
        "version": f"DLPack major version of {name} must be 1, got {detail}",
        "device_mismatch": f"__dlpack_device__ of {name} and its capsule must agree on the device type, got {detail}",
        "device_query": f"__dlpack_device__ of {name} failed: {detail}",
    }
    cls = SignatureError if what in ("producer", "capsule", "device_query") else ValidationError
    return cls(texts[what], op="tensor", actual=name)


def device_error(session: Any, where: str, subject: str, op: str, **facts: Any) -> RuntimeStateError:
    """Return the error for a tensor that lives elsewhere."""
    here = session.runtime.name
    hint = "Copy it there first" if here == "cpu" else f"Move it with its framework, or open `tfi.session({where!r})`"
    return RuntimeStateError(
        f"{subject} must be on {here}, got {where}. {hint}",
        op=op,
        expected=here,
        actual=where,
        device=where,
        **{"argument": subject, **facts},
    )


def _capsule_text(answer: object) -> str:
    kind = type(answer).__name__
    return "one already consumed or of another kind" if kind == "PyCapsule" else kind


def _export_refused(obj: Any, name: str, session: Any, producer: Any, error: Exception) -> Exception:
    better = None if producer is None else producer.explain(obj, error)
    if better is not None:
        explained: Exception = better
        return explained
    declared = obj.__dlpack_device__()
    if not _lives_on(declared, session):
        return explain_import("device", obj, (session, declared))
    text = f"{name} refused to export itself: {error}"
    lowered = str(error).lower()
    if "dtype" in lowered or "dlpack equivalent" in lowered or "byte order" in lowered:
        return DTypeError(text, op="tensor", actual=name)
    if isinstance(error, TenferroError):
        return error
    if isinstance(error, NotImplementedError):
        return UnsupportedError(text, op="tensor", actual=name)
    return ExportError(text, op="tensor", actual=name)


def _lives_on(declared: tuple[int, int], session: Any) -> bool:
    if session.device_type == _core.DL_CPU:
        return declared[0] in (_core.DL_CPU, _core.DL_CUDA_HOST)
    return declared[0] in (_core.DL_CUDA, _core.DL_CUDA_MANAGED)
