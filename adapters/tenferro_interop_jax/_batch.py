"""The batching rule: one call that recomputes its geometry, or a loop over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

import tenferro_interop as tfi


def batch(launch: Any, tensors: Sequence[Any], dims: Sequence[int | None], *, call: Any) -> tuple[Any, list[int]]:
    """Give the batch as a leading axis where the operator's `vmap` allows it for all that are batched, else loop."""
    size = next(x.shape[d] for x, d in zip(tensors, dims, strict=True) if d is not None)
    front = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(tensors, dims, strict=True)]
    batched = [d is not None for d in dims]
    folds = all(name in call.leading for name, each in zip(call.inputs, batched, strict=True) if each)
    rule = _fold if folds and size else _loop
    results = rule(launch, front, batched, size, call)
    return results, [0] * len(results)


def _fold(launch: Any, tensors: Sequence[Any], batched: Sequence[bool], size: int, call: Any) -> Any:
    """Call once; what may lead gets the batch, also where it has none of its own."""
    one = call.result_specs([x[0] if each else x for x, each in zip(tensors, batched, strict=True)])
    folded = [
        x if each or name not in call.leading else jnp.broadcast_to(x, (size, *x.shape))
        for name, x, each in zip(call.inputs, tensors, batched, strict=True)
    ]
    made = call.result_specs(folded)
    for name, alone, together in zip(call.results, one, made, strict=True):
        if together.shape != (size, *alone.shape):
            raise tfi.ValidationError(
                f"result {name!r} of kernel {call.spec.name!r} must have shape {(size, *alone.shape)} with the leading "
                f"axis that vmap adds, got {together.shape}. Leave out `vmap=`, which loops over the batch",
                op="vmap",
                argument="vmap",
                actual=together.shape,
            )
    return launch.bind(*folded, call=call)


def _loop(launch: Any, tensors: Sequence[Any], batched: Sequence[bool], size: int, call: Any) -> Any:
    """Call once for each element of the batch, in order."""

    def one(taken: list[Any]) -> Any:
        rest = iter(taken)
        return launch.bind(*(next(rest) if each else x for x, each in zip(tensors, batched, strict=True)), call=call)

    return jax.lax.map(one, [x for x, each in zip(tensors, batched, strict=True) if each])
