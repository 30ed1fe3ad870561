"""The Autograd layer of an operator: records its backward, or says by name why it cannot.

Below autograd the operator is redispatched with both modes of differentiation enabled, which a Function's forward turns
off: inside `torch.func.grad` the next outer level must record as well.  The kernel is one level's, as PyTorch's are,
so every transform of `torch.func` composes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.autograd_function import (  # type: ignore[attr-defined]  # not in its __all__
    enable_single_level_autograd_function,
)
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

import tenferro_interop as tfi

Backward = Callable[..., Any]
SetupContext = Callable[[Any, tuple[Any, ...], Any], None]


def save_nothing(_ctx: Any, _inputs: tuple[Any, ...], _output: Any) -> None:
    """Save nothing for backward."""


def missing_derivative(name: str) -> Backward:
    """Return a backward that raises `UnsupportedError`."""

    def backward(_ctx: Any, *_grads: Any) -> Any:
        raise tfi.UnsupportedError(
            f"operator {name!r} must have a backward to be differentiated, got none. Declare it with "
            "`op(..., backward=...)`, or detach its inputs",
            op="backward",
            actual=name,
        )

    return backward


def autograd_kernel(overload: Any, backward: Backward, setup_context: SetupContext) -> Callable[..., Any]:
    """Return the kernel for the Autograd key."""
    mutates = overload._schema.is_mutable
    count = sum(argument.type.kind() == "TensorType" for argument in overload._schema.arguments)
    name = overload.name()
    function = _function(overload, backward, setup_context)
    below, transforms = torch._C._after_autograd_keyset, torch._C._are_functorch_transforms_active

    def kernel(keyset: Any, *args: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if len(tensors) != count:
            _refuse_no_tensor(overload, args)
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, tensors)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            if mutates:
                _refuse_recorded_write(name)
            if not transforms():
                return function.apply(keyset, *args)
            with enable_single_level_autograd_function():
                return function.apply(keyset, *args)
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & below, *args)

    return kernel


def _function(overload: Any, backward: Backward, setup_context: SetupContext) -> Any:
    name, below = overload.name(), torch._C._after_autograd_keyset
    transforms = torch._C._are_functorch_transforms_active
    names = [argument.name for argument in overload._schema.arguments]

    class Recorded(_SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, keyset: Any, *args: Any) -> Any:
            if transforms():
                modes = torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True)
                with modes[0], modes[1], torch._C._AutoDispatchBelowAutograd():
                    output = overload.redispatch(keyset & below, *args)
            else:
                with torch._C._AutoDispatchBelowAutograd():
                    output = overload.redispatch(keyset & below, *args)
            setup_context(ctx, args, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            result = backward(ctx, *grads)
            result = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            _require_gradients(name, names, ctx.needs_input_grad[1:], result)
            return (None, *result)

    return Recorded


def _require_gradients(name: str, names: Sequence[str], needed: Sequence[bool], result: tuple[Any, ...]) -> None:
    """Raise where backward gives too few gradients, or none for an input that needs it: PyTorch reads that as zero."""
    if len(result) != len(names):
        raise tfi.ValidationError(
            f"backward of operator {name!r} must return {len(names)} gradients, for {list(names)}, got {len(result)}",
            op="backward",
            expected=len(names),
            actual=len(result),
        )
    missing = [each for each, need, grad in zip(names, needed, result, strict=True) if need and grad is None]
    if missing:
        raise tfi.UnsupportedError(
            f"backward of operator {name!r} must give a gradient for {missing}, got None. Return zeros where it is "
            "zero, or detach that input",
            op="backward",
            argument=missing[0],
            actual=missing,
        )


def _refuse_no_tensor(overload: Any, args: Sequence[Any]) -> None:
    """Raise for None, which PyTorch takes for any tensor."""
    for argument, given in zip(overload._schema.arguments, args, strict=True):
        if argument.type.kind() == "TensorType" and given is None:
            raise tfi.ValidationError(
                f"argument {argument.name!r} of operator {overload.name()!r} must be a tensor, got None",
                op="op",
                argument=argument.name,
            )


def _refuse_tangents(name: str, tensors: Sequence[torch.Tensor]) -> None:
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise tfi.UnsupportedError(
            f"operator {name!r} must be differentiated in reverse mode, got forward mode (jvp, jacfwd). Use "
            "`torch.func.vjp` or `jacrev`",
            op="jvp",
            actual=name,
        )


def _refuse_recorded_write(name: str) -> None:
    raise tfi.UnsupportedError(
        f"operator {name!r} writes its arguments and must not be recorded by autograd, got an input that requires "
        "grad. Call it under `torch.no_grad()`, or declare the written tensors as `outputs=` and give a backward",
        op="backward",
        actual=name,
    )
