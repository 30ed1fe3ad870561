"""A session's stream as a PyTorch stream."""

from __future__ import annotations

import torch

import tenferro_interop as tfi


def external_stream(session: tfi.Session) -> torch.cuda.Stream:
    """Return the session's stream for `torch.cuda.stream(...)`; it must not be used after the session is closed.

    The other way needs no call: a session opened `like` a tensor captures PyTorch's current stream, and
    `session(stream=s)` takes a `torch.cuda.Stream`.  A tensor made on another stream must be ordered by the caller
    (`wait_stream`), as between any two streams of PyTorch; and one that is freed while this stream still uses it must
    be told so by `record_stream`.

    Raises `UnsupportedError` for a session on the CPU device.
    """
    kind, _, ordinal = session.device.partition(":")
    if kind != "cuda":
        raise tfi.UnsupportedError(
            f"session must be on a GPU to have a stream, got {session.device}", op="stream", actual=session.device
        )
    return torch.cuda.ExternalStream(session.stream.handle, device=int(ordinal))
