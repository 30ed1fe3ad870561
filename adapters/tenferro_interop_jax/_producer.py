"""What JAX adds to DLPack: tracers, deleted and sharded arrays, and that every eager `jax.Array` is read-only."""

from __future__ import annotations

from typing import Any

import jax
import tenferro_interop as tfi


class JaxProducer(tfi.Producer):
    """Producer for `jax.Array`, tracers, and the buffers of `jax.experimental.buffer_callback`."""

    name = "jax"

    def claims(self, tp: type) -> bool:
        """Take tracers too, so that they get their own error."""
        return issubclass(tp, jax.core.Tracer)

    def is_read_only(self, tp: type) -> bool:
        """Refuse writes to arrays: JAX assumes they never change, and its legacy capsule cannot say so."""
        return issubclass(tp, jax.Array)

    def check(self, tensor: Any, write: bool) -> None:
        """Refuse tracers, deleted arrays and arrays that are spread over several devices.

        Raises `UnsupportedError`, `RuntimeStateError` or `ValidationError`.
        """
        if isinstance(tensor, jax.core.Tracer):
            raise tfi.UnsupportedError(
                f"JAX array must be concrete, got {type(tensor).__name__} inside jit, vmap or grad. Register the kernel "
                "as an operator of the JAX adapter instead",
                op="tensor",
                actual=type(tensor).__name__,
            )
        if not isinstance(tensor, jax.Array):
            return
        if tensor.is_deleted():
            raise tfi.RuntimeStateError("JAX array must be alive, got a deleted or donated one", op="tensor", actual="deleted")
        if len(tensor.sharding.device_set) > 1:
            raise tfi.ValidationError(
                f"JAX array must be on one device, got one on {len(tensor.sharding.device_set)}. Pass one shard: "
                "`x.addressable_shards[i].data`",
                op="tensor",
                actual="sharded",
            )

    def stream_of(self, obj: Any) -> int | None:
        """Return the stream of a `buffer_callback` context."""
        return int(obj.stream) if hasattr(obj, "stage") and hasattr(obj, "stream") else None


PRODUCER = JaxProducer()
