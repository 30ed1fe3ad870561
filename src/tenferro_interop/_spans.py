"""Checks of memory spans off the hot path: copies, downloads, and tensors whose elements share memory."""

from __future__ import annotations

from typing import Any

from . import _core
from ._errors import AliasError, RuntimeStateError, SignatureError, ValidationError
from ._explain_arguments import layout_error, read_only_error
from ._producers import producer_of
from ._tensors import DeviceBytes, TensorMut, TensorRef


def copied_nbytes(
    session: _core.SessionCore, dst: DeviceBytes | TensorMut, src: DeviceBytes | TensorRef, nbytes: int | None
) -> int:
    """Return how many bytes a copy from `src` to `dst` moves, or raise where it may not."""
    for name, span in (("dst", dst), ("src", src)):
        require_span(session, name, span, "copy_bytes")
    count = src.nbytes if nbytes is None else nbytes
    for name, span in (("dst", dst), ("src", src)):
        _require_room(name, span, count)
    if isinstance(dst, TensorRef) and not isinstance(dst, TensorMut):
        raise ValidationError(
            "dst must be writable, got a TensorRef. Pass `s.tensor_mut(x)`", op="copy_bytes", argument="dst"
        )
    if dst.read_only:
        raise read_only_error(dst, "dst", "copy_bytes")
    if count and dst._address < src._address + count and src._address < dst._address + count:
        raise AliasError(
            f"dst must not overlap src within {count} bytes, got overlapping spans", op="copy_bytes", argument="dst"
        )
    return count


def require_span(session: _core.SessionCore, name: str, span: Any, op: str) -> None:
    """Raise unless `span` is a compact reference of this session."""
    if not isinstance(span, (DeviceBytes, TensorRef)):
        raise SignatureError(
            f"{name} must be a DeviceBytes or tensor reference, got {type(span).__name__}", op=op, argument=name
        )
    if span.session is not session:
        raise RuntimeStateError(
            f"{name} must be a reference of this session, got one of another session", op=op, argument=name
        )
    if isinstance(span, TensorRef) and not span.is_contiguous:
        raise layout_error(span, name, op)


def note_write(dst: DeviceBytes | TensorMut) -> None:
    """Tell the producer that its tensor was written, as a launch does."""
    producer = producer_of(type(dst.owner)) if isinstance(dst, TensorMut) else None
    if producer is not None and producer.tracks_writes:
        producer.wrote(dst.owner)


def overlaps_itself(ref: TensorRef) -> bool:
    """Return whether two elements may share memory: some axis steps over less than the axes inside it span."""
    axes = sorted((abs(step), extent) for step, extent in zip(ref.strides, ref.shape, strict=True) if extent > 1)
    reach = 0
    for step, extent in axes:
        if step <= reach:
            return True
        reach += step * (extent - 1)
    return False


def _require_room(name: str, span: DeviceBytes | TensorRef, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= span.nbytes:
        raise ValidationError(
            f"nbytes must be between 0 and the {span.nbytes} bytes of {name}, got {count!r}",
            op="copy_bytes",
            argument="nbytes",
            actual=count,
        )
