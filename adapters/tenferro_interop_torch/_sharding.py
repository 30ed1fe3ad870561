"""How an operator runs on distributed tensors (`torch.distributed.tensor`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tenferro_interop as tfi

from ._op import Op


def shard(operator: Op, *ways: Mapping[str, int]) -> None:
    """Say in which ways the operator may run on parts of its tensors; whole copies always work.

    A way names the axis along which each tensor, argument or output, is split; the others are whole on every device:
    ``shard(rms_norm, {"x": 0, "y": 0, "inv": 0})``.  Call it once, where the operator is declared.

    Raises `ValidationError` for names that are not the operator's tensors, `UnsupportedError` for an operator that
    writes its arguments or was not made of a `KernelSpec`.
    """
    spec = operator.spec
    if spec is None or operator.overload._schema.is_mutable:
        raise tfi.UnsupportedError(
            f"operator {operator.name!r} must be functional and made of a KernelSpec to be sharded, got "
            f"{operator.overload._schema}",
            op="shard",
            actual=operator.name,
        )
    inputs = [p.name if p.is_tensor else None for p in spec.arguments]
    outputs = [p.name for p in spec.parameters if p.role == "output"]
    wrong = sorted({name for way in ways for name in way} - {*inputs, *outputs})
    if wrong:
        raise tfi.ValidationError(
            f"shard must name tensors of {operator.name!r}, among {[n for n in (*inputs, *outputs) if n]}, got {wrong}",
            op="shard",
            argument=wrong[0],
            actual=wrong,
        )
    _register(operator, ({}, *ways), inputs, outputs)


def _register(
    operator: Op, ways: Sequence[Mapping[str, int]], inputs: Sequence[str | None], outputs: Sequence[str]
) -> None:
    from torch.distributed.tensor import Replicate, Shard  # slow to import, and absent from some builds
    from torch.distributed.tensor.experimental import register_sharding

    def placement(way: Mapping[str, int], name: str) -> Any:
        return Shard(way[name]) if name in way else Replicate()

    def fits(way: Mapping[str, int], given: Mapping[str, Any]) -> bool:
        return all(name not in given or axis < given[name].ndim for name, axis in way.items())

    def rule(*args: Any) -> list[tuple[list[Any], list[Any]]]:
        given = {name: arg for name, arg in zip(inputs, args, strict=True) if name}
        return [
            ([placement(way, name) for name in outputs], [name and placement(way, name) for name in inputs])
            for way in ways
            if fits(way, given)
        ]

    register_sharding(operator.overload)(rule)
