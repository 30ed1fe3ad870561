"""`session(...)`: which device and which stream a session captures."""

from __future__ import annotations

from . import _core
from ._devices.cuda_driver import device_count
from ._errors import ValidationError
from ._producers import current_stream
from ._runtime import runtime_of
from ._session import Session
from ._stream import StreamRef, resolve


def _open_slowly(device: object, stream: object, like: object) -> Session:
    """Open a session where the compiled `session` cannot tell device and stream by the C exchange API alone."""
    kind, ordinal = _device(device, like)
    runtime = runtime_of(kind, ordinal)
    if kind == "cpu":
        if stream is not None:
            raise ValidationError(
                "stream must be None for the CPU device, got a stream", op="session", argument="stream"
            )
        return Session._open(runtime, StreamRef.from_handle(0))
    if stream is not None:
        captured = resolve(stream)
        runtime.device.check_stream(captured.handle)
        return Session._open(runtime, captured)
    handle = None if like is None else current_stream(like, ordinal)
    if handle is None:
        return Session._open(runtime, StreamRef.from_handle(runtime.take_stream()), own_stream=True)
    return Session._open(runtime, StreamRef.from_handle(handle))


def _device(device: object, like: object) -> tuple[str, int]:
    """Return (kind, ordinal) from what the caller said."""
    named = None if device is None else _parse(device)
    found = None if like is None else _device_of(like)
    if named is not None and found is not None and (named[0] != found[0] or (named[1] not in (None, found[1]))):
        where = "cpu" if found[0] == "cpu" else f"cuda:{found[1]}"
        raise ValidationError(
            f"device must be where `like` lives, got {device} and {where}", op="session", argument="device"
        )
    if found is not None:
        return found
    if named is not None:
        return named[0], named[1] or 0
    return ("cuda", 0) if device_count() else ("cpu", 0)


def _parse(device: object) -> tuple[str, int | None]:
    kind, index = getattr(device, "type", None), getattr(device, "index", None)
    if isinstance(device, str):
        kind, _, text = device.partition(":")
        index = int(text) if text.isdecimal() else None if not text else -1
    if kind not in ("cpu", "cuda") or (isinstance(index, int) and index < 0):
        raise ValidationError(
            f"device must be 'cpu', 'cuda' or 'cuda:N', got {device!r}", op="session", argument="device", actual=device
        )
    return kind, index if kind == "cuda" and isinstance(index, int) else None


def _device_of(like: object) -> tuple[str, int]:
    device_type, ordinal = _core.device_of(like)
    if device_type in (_core.DL_CUDA, _core.DL_CUDA_MANAGED):
        return "cuda", ordinal
    if device_type in (_core.DL_CPU, _core.DL_CUDA_HOST):
        return "cpu", 0
    raise ValidationError(
        f"like must be a CPU or CUDA tensor, got DLPack device type {device_type}", op="session", argument="like"
    )


_core.install_open(_open_slowly, Session)
session = _core.session
