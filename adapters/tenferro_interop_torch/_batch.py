"""Batching rules: one call that recomputes its geometry, or a loop over the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tenferro_interop as tfi

Rule = Callable[..., tuple[Any, Any]]


def loop_rule(overload: Any, fake: Callable[..., Any]) -> Rule:
    """Return a rule that calls the operator once for each element of the batch."""
    written = [a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments]

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
        _require_batched_writes(overload, written, in_dims)
        if info.batch_size == 0:
            return _no_results(fake, in_dims, args)
        results = []
        for index in range(info.batch_size):
            taken = [a if d is None else a.select(d, index) for a, d in zip(args, in_dims, strict=True)]
            results.append(_call(overload, written, taken))
        return _stacked(results)

    return rule


def fold_rule(overload: Any, fake: Callable[..., Any], leading: Sequence[str]) -> Rule:
    """Return a rule that gives the batch to the kernel as a leading axis of the named tensors.

    A batch of any other tensor is looped over.
    """
    names = [argument.name for argument in overload._schema.arguments]
    loop = loop_rule(overload, fake)
    written = [a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments]

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
        folds = [d is None or n in leading for n, d in zip(names, in_dims, strict=True)]
        if not all(folds) or info.batch_size == 0:
            return loop(info, in_dims, *args)
        _require_batched_writes(overload, written, in_dims)
        folded = [
            arg if name not in leading else _with_leading(arg, dim, info.batch_size)
            for name, arg, dim in zip(names, args, in_dims, strict=True)
        ]
        result = _call(overload, written, folded)
        if result is None:
            return None, None
        _require_leading(overload, result, info.batch_size)
        return result, 0 if isinstance(result, torch.Tensor) else (0,) * len(result)

    return rule


def _with_leading(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _call(overload: Any, written: Sequence[bool], args: Sequence[Any]) -> Any:
    """Call with written tensors in compact memory, and copy back what the kernel wrote elsewhere."""
    compact = [arg.contiguous() if write else arg for arg, write in zip(args, written, strict=True)]
    result = overload(*compact)
    for given, used in zip(args, compact, strict=True):
        if given is not used:
            given.copy_(used)
    return result


def _stacked(results: list[Any]) -> tuple[Any, Any]:
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results), 0
    if not results[0]:
        return None, None
    columns = tuple(torch.stack(column) for column in zip(*results, strict=True))
    return columns, (0,) * len(columns)


def _no_results(fake: Callable[..., Any], in_dims: Sequence[int | None], args: Sequence[Any]) -> tuple[Any, Any]:
    """Return empty results of the right shapes for a batch of no elements."""
    one = [
        arg if dim is None else arg.new_empty(arg.shape[:dim] + arg.shape[dim + 1 :])
        for arg, dim in zip(args, in_dims, strict=True)
    ]
    made = fake(*one)
    if made is None:
        return None, None
    if isinstance(made, torch.Tensor):
        return made.new_empty((0, *made.shape)), 0
    return tuple(each.new_empty((0, *each.shape)) for each in made), (0,) * len(made)


def _require_batched_writes(overload: Any, written: Sequence[bool], in_dims: Sequence[int | None]) -> None:
    """Raise for a written tensor without a batch: each element of the batch would overwrite the others' result."""
    batched = any(dim is not None for dim in in_dims)
    for argument, write, dim in zip(overload._schema.arguments, written, in_dims, strict=True):
        if batched and write and dim is None:
            raise tfi.ValidationError(
                f"argument {argument.name!r} that operator {overload.name()!r} writes must be batched inside vmap, "
                "got one tensor for the whole batch. Give it a batch axis",
                op="vmap",
                argument=argument.name,
            )


def _require_leading(overload: Any, result: Any, size: int) -> None:
    for made in (result,) if isinstance(result, torch.Tensor) else result:
        if made.ndim == 0 or made.shape[0] != size:
            raise tfi.ValidationError(
                f"outputs of operator {overload.name()!r} must keep the leading axis of {size} elements that vmap "
                f"adds, got shape {tuple(made.shape)}. Leave out `vmap=`, which loops over the batch",
                op="vmap",
                argument="vmap",
                actual=tuple(made.shape),
            )
