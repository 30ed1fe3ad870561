"""Gradients of an operator: arguments, results and gradients are matched by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tenferro_interop as tfi

Vjp = Callable[..., Any]
PREFIX = "grad_"


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Likes:
    """Shape and element type of each argument, for the backward pass."""

    tensors: tuple[tuple[tuple[int, ...], Any], ...]


def with_gradient(call: Any, bind: Callable[..., tuple[Any, ...]], vjp: Any) -> Callable[..., tuple[Any, ...]]:
    """Return `bind` (numbers, then tensors) with the gradient that `vjp` computes.

    Raises `ValidationError` for names that the operator does not have, and for an operator that lacks a gradient.
    """
    takes, gives, compute = _rule(call, vjp)
    arguments = [p.name for p in call.spec.arguments]
    known = {*arguments, *call.results, *(PREFIX + name for name in call.results)}
    _require_known("arguments", takes, known)
    if gives is not None:
        _require_known("results", gives, {PREFIX + name for name in call.inputs})

    differentiable = jax.custom_vjp(bind, nondiff_argnums=(0,))

    def forward(numbers: Any, *tensors: Any) -> Any:
        results = differentiable(numbers, *tensors)  # not `bind`: it is differentiated again by nested gradients
        values = dict(zip(call.results, results, strict=True)) | dict(zip(call.inputs, tensors, strict=True))
        kept = {name: values[name] for name in takes if name in values}
        return results, (kept, _Likes(tuple((x.shape, x.dtype) for x in tensors)))

    def backward(numbers: Any, saved: Any, cotangents: Any) -> Any:
        kept, likes = saved
        values = numbers.values | kept | {PREFIX + n: g for n, g in zip(call.results, cotangents, strict=True)}
        found = _named(call, compute(**{name: values[name] for name in takes}))
        return tuple(_gradient(call, name, found, like) for name, like in zip(call.inputs, likes.tensors, strict=True))

    differentiable.defvjp(forward, backward)
    made: Callable[..., tuple[Any, ...]] = differentiable
    return made


def _rule(call: Any, vjp: Any) -> tuple[list[str], list[str] | None, Callable[..., Any]]:
    """Return the names that a rule takes, those it gives where they are known, and the rule as a function of names."""
    spec = getattr(vjp, "spec", None)
    if isinstance(spec, tfi.KernelSpec):
        gives = [p.name for p in spec.parameters if p.role in ("output", "inout")]

        def compute(**values: Any) -> dict[str, Any]:
            made = vjp(**values)
            return dict(zip(gives, made if isinstance(made, tuple) else (made,), strict=True))

        return [p.name for p in spec.arguments], gives, compute
    if not callable(vjp):
        raise tfi.ValidationError(f"vjp must be an Op or a function, got {vjp!r}", op="op", argument="vjp", actual=vjp)
    return list(inspect.signature(vjp).parameters), None, vjp


def _named(call: Any, made: Any) -> dict[str, Any]:
    """Return the gradients by the names of what they are gradients of."""
    if isinstance(made, dict):
        short = {name.removeprefix(PREFIX): value for name, value in made.items()}
        if set(short) <= set(call.inputs):
            return short
    elif len(call.inputs) == 1:
        return {call.inputs[0]: made}
    raise tfi.ValidationError(
        f"vjp of kernel {call.spec.name!r} must return a dict with gradients of {list(call.inputs)}, got "
        f"{sorted(made) if isinstance(made, dict) else type(made).__name__}",
        op="grad",
        argument="vjp",
        actual=made,
    )


def _gradient(call: Any, name: str, found: dict[str, Any], like: Any) -> Any:
    """Return one gradient; of an argument that has none, JAX's own kind of zero."""
    shape, dtype = like
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.zeros(shape, jax.dtypes.float0)
    gradient = found.get(name)
    if gradient is None:
        raise tfi.UnsupportedError(
            f"vjp of kernel {call.spec.name!r} must give the gradient of argument {name!r}, got none. Return it, or "
            f"`jnp.zeros_like({name})` where it is zero",
            op="grad",
            argument=name,
            kernel=call.spec.name,
        )
    if gradient.shape != shape or gradient.dtype != dtype:
        raise tfi.ValidationError(
            f"gradient of argument {name!r} of kernel {call.spec.name!r} must be {dtype}{list(shape)}, got "
            f"{gradient.dtype}{list(gradient.shape)}",
            op="grad",
            argument=name,
            actual=gradient.shape,
        )
    return gradient


def _require_known(kind: str, names: list[str], known: set[str]) -> None:
    wrong = sorted(set(names) - known)
    if wrong:
        raise tfi.ValidationError(
            f"{kind} of vjp must be named among {sorted(known)}, got {wrong}", op="op", argument="vjp", actual=wrong
        )
