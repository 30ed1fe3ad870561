"""Streams in and out: what a session accepts as a stream, and the reference it hands to others."""

from __future__ import annotations

from ._errors import RuntimeStateError, UnsupportedError, ValidationError
from ._producers import producer_of

PER_THREAD_DEFAULT = 2


class StreamRef:
    """A borrowed execution stream: whoever made it destroys it, and it must outlive its use here.

    Speaks `__cuda_stream__` (version 0, https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html),
    so that torch, CuPy, numba and cuda.core accept it; PyTorch also by
    ``torch.cuda.ExternalStream(ref.handle, device)``.

    Example:
        >>> StreamRef.from_handle(0).handle
        0
    """

    __slots__ = ("__weakref__", "handle", "owner")

    handle: int
    owner: object

    def __init__(self) -> None:
        raise RuntimeStateError(
            "StreamRef must come from `Session.stream` or `StreamRef.from_handle`, got a direct construction",
            op="stream",
        )

    @classmethod
    def from_handle(cls, handle: int, *, owner: object = None) -> StreamRef:
        """Wrap a raw `cudaStream_t`/`CUstream` value; `owner` is kept alive as long as the reference.

        Raises `ValidationError` unless `handle` is a non-negative int, `UnsupportedError` for the per-thread default
        stream (2), which names another stream in every thread.
        """
        if isinstance(handle, bool) or not isinstance(handle, int) or not 0 <= handle < 2**64:
            raise ValidationError(
                f"stream handle must be a non-negative int, got {handle!r}", op="stream", actual=handle
            )
        if handle == PER_THREAD_DEFAULT:
            raise UnsupportedError(
                "stream must be the same in every thread, got the per-thread default stream (2). Create a stream and "
                "pass that",
                op="stream",
            )
        self = object.__new__(cls)
        self.handle = handle
        self.owner = owner
        return self

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return (protocol version, handle)."""
        return (0, self.handle)

    def __repr__(self) -> str:
        """Return a text without the handle, which means nothing to a reader."""
        return f"<StreamRef {'default stream' if self.handle <= 1 else 'stream'}>"


def resolve(stream: object) -> StreamRef:
    """Return a `StreamRef` for anything that stands for a stream.

    Raises `ValidationError` for bare ints and for objects that do not answer the protocol rightly.
    """
    if isinstance(stream, StreamRef):
        return stream
    if isinstance(stream, int):
        raise ValidationError(
            f"stream must be a stream object, got the int {stream}. Pass `StreamRef.from_handle({stream})` if you "
            "vouch for it",
            op="session",
            argument="stream",
        )
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return StreamRef.from_handle(_ask(stream, protocol), owner=stream)
    producer = producer_of(type(stream))
    handle = None if producer is None else producer.stream_of(stream)
    if handle is None:
        raise ValidationError(
            f"stream must offer __cuda_stream__, got {type(stream).__module__}.{type(stream).__qualname__}",
            op="session",
            argument="stream",
        )
    return StreamRef.from_handle(handle, owner=stream)


def _ask(stream: object, protocol: object) -> int:
    answer = protocol() if callable(protocol) else protocol
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(type(part) is int for part in answer):
        raise ValidationError(
            f"__cuda_stream__ of {type(stream).__qualname__} must return (version, handle), got {answer!r}",
            op="session",
            argument="stream",
            actual=answer,
        )
    version, handle = answer
    if version != 0:
        raise ValidationError(
            f"__cuda_stream__ protocol version must be 0, got {version} from {type(stream).__qualname__}",
            op="session",
            argument="stream",
            actual=answer,
        )
    return int(handle)
