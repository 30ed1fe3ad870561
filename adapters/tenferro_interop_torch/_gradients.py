"""Backward by other operators: arguments and gradients are matched by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tenferro_interop as tfi

from ._autograd import Backward, SetupContext

PREFIX = "grad_"


def backward_by_operators(forward: tfi.KernelSpec, operators: Sequence[Any]) -> tuple[Backward, SetupContext]:
    """Return backward and setup_context that call operators of a `KernelSpec`.

    An argument ``grad_y`` of a backward operator is the gradient of the output `y`; any other is the forward's argument
    or output of that name.  Its output ``grad_x`` is the gradient of the argument `x`.

    Raises `ValidationError` for names that the forward does not have.
    """
    arguments = [p.name for p in forward.arguments]
    outputs = [p.name for p in forward.parameters if p.role == "output"]
    known = {*arguments, *outputs, *(PREFIX + name for name in outputs)}
    wanted = [[p.name for p in operator.spec.arguments] for operator in operators]
    made = [[p.name for p in operator.spec.parameters if p.role == "output"] for operator in operators]
    _require_known("arguments", {n for names in wanted for n in names}, known)
    _require_known("outputs", {n for names in made for n in names}, {PREFIX + name for name in arguments})
    saved = [n for n in (*arguments, *outputs) if any(n in names for names in wanted)]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, (tuple, list)) else (output,)
        values = dict(zip((*arguments, *outputs), (*inputs, *results), strict=True))
        ctx.numbers = {n: values[n] for n in saved if not isinstance(values[n], torch.Tensor)}
        ctx.save_for_backward(*(values[n] for n in saved if n not in ctx.numbers))

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        tensors = iter(ctx.saved_tensors)
        values = {n: ctx.numbers[n] if n in ctx.numbers else next(tensors) for n in saved}
        values |= {PREFIX + n: grad for n, grad in zip(outputs, grads, strict=True)}
        found: dict[str, Any] = {}
        needed = {PREFIX + n for n, need in zip(arguments, ctx.needs_input_grad[1:], strict=True) if need}
        for operator, takes, gives in zip(operators, wanted, made, strict=True):
            if needed.isdisjoint(gives):
                continue
            result = operator(*(values[n] for n in takes))
            found |= dict(zip(gives, result if isinstance(result, tuple) else (result,), strict=True))
        return tuple(found.get(PREFIX + n) for n in arguments)

    return backward, setup_context


def _require_known(kind: str, names: set[str], known: set[str]) -> None:
    wrong = sorted(names - known)
    if wrong:
        raise tfi.ValidationError(
            f"{kind} of a backward operator must be named among {sorted(known)}, got {wrong}",
            op="op",
            argument="backward",
            actual=wrong,
        )
