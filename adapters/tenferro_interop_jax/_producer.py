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

    def needs_check(self, tp: type) -> bool:
        """Look at tracers only: an array's own export refuses the other states, and `explain` names them."""
        return issubclass(tp, jax.core.Tracer)

    def check(self, tensor: Any, write: bool) -> None:
        """Refuse tracers.

        Raises `UnsupportedError`.
        """
        raise tfi.UnsupportedError(
            f"JAX array must be concrete, got {type(tensor).__name__} inside jit, vmap or grad. Register the kernel "
            "as an operator of the JAX adapter instead",
            op="tensor",
            actual=type(tensor).__name__,
        )

    def explain(self, tensor: Any, error: Exception) -> Exception | None:
        """Name deleted arrays, arrays spread over several devices, and element types DLPack has no word for."""
        if not isinstance(tensor, jax.Array):
            return None
        if tensor.is_deleted():
            return tfi.RuntimeStateError(
                "JAX array must be alive, got a deleted or donated one", op="tensor", actual="deleted"
            )
        count = len(tensor.sharding.device_set)
        if count > 1:
            return tfi.ValidationError(
                f"JAX array must be on one device, got one on {count}. Pass one shard: `x.addressable_shards[i].data`",
                op="tensor",
                actual="sharded",
            )
        if "dtype" in str(error).lower() or "equivalent" in str(error).lower():
            return tfi.DTypeError(
                f"JAX element type must be one that DLPack names, got {tensor.dtype}: {error}",
                op="tensor",
                actual=str(tensor.dtype),
            )
        return None

    def stream_of(self, obj: Any) -> int | None:
        """Return the stream of a `buffer_callback` context."""
        return int(obj.stream) if hasattr(obj, "stage") and hasattr(obj, "stream") else None


PRODUCER = JaxProducer()
