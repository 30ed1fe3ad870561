"""`op(...)`: one declaration as a function of JAX arrays, under every transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import tenferro_interop as tfi

from ._gradients import Vjp, with_gradient
from ._handler import Call, Numbers, launch, vary_together


class Op:
    """An operator made by `op`: a function of arrays and numbers.

    Attributes:
        spec: the declaration.
    """

    spec: tfi.KernelSpec
    _apply: Callable[..., Any]

    def __init__(self) -> None:
        raise tfi.RuntimeStateError("Op must come from `op`, got a direct construction", op="op")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the kernel makes and what it changes, in the kernel's order: one array or a tuple.

        Raises `SignatureError` for arguments that do not fit the declaration, and what a launch raises.
        """
        given = self.spec.bind(args, kwargs)
        tensors, values = [], {}
        for p in self.spec.arguments:
            if p.is_tensor:
                tensors.append(_array(self.spec, p.name, given[p.name]))
            else:
                values[p.name] = _number(self.spec, p.name, given[p.name])
        results = self._apply(Numbers(values), *tensors)
        return results[0] if len(results) == 1 else tuple(results)

    def __repr__(self) -> str:
        """Return the declaration."""
        return f"<Op of {self.spec!r}>"


def op(
    spec: tfi.KernelSpec,
    *,
    vjp: Vjp | Op | None = None,
    vmap: Sequence[str] | None = None,
    has_side_effect: bool = False,
) -> Op:
    """Return a declared kernel as a function of JAX arrays, eager or inside `jit`, `vmap`, `grad` and control flow.

    XLA launches the kernel on its own stream, without Python; on the CPU backend, on the CPU device.  The kernel is
    compiled when a call is lowered.  Numbers are Python numbers, fixed at compile time.  A tensor that the kernel
    changes (``T*`` that the caller passes) is an argument and a result: JAX's arrays never change, and XLA copies
    first where the argument is not donated.

    Args:
        spec: the declaration.
        vjp: an `Op` whose arguments and results are matched by name (``grad_y`` is the gradient of the result `y`,
            ``grad_x`` that of the argument `x`), or a function whose parameters are such names, and which returns the
            gradients as a dict, or as one array where there is one tensor to differentiate.
        vmap: names of the tensors that may be given the batch as a further leading axis, in one call that recomputes
            the geometry; a batch of others, and all without it, is looped over.
        has_side_effect: the call must happen even where its results are not used; it may not be differentiated.

    Raises `ValidationError` for a declaration without results, and for a `vmap` or `vjp` that does not fit it.

    Example:
        >>> import jax, jax.numpy as jnp, tenferro_interop as tfi
        >>> square = op(
        ...     tfi.KernelSpec(
        ...         'extern "C" __global__ void square(const float* x, float* y, int n) {'
        ...         "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }",
        ...         "square",
        ...         outputs={"y": "x"},
        ...         values={"n": lambda x: x.size},
        ...         config=lambda n: tfi.LaunchConfig.flat(n),
        ...     ),
        ...     vjp=lambda x, grad_y: 2 * x * grad_y,
        ...     vmap=["x"],
        ... )
        >>> jax.grad(lambda x: square(x).sum())(jnp.array([1.0, 3.0])).tolist()
        [2.0, 6.0]
    """
    if not isinstance(spec, tfi.KernelSpec):
        raise _invalid("spec", "be a KernelSpec", spec)
    call = Call(spec, Numbers({}), tuple(vmap or ()), has_side_effect)
    if not call.inputs:
        raise _invalid("spec", "take a tensor that says where to run", spec.name)
    if not call.results:
        raise _invalid("spec", "write a tensor, for JAX sees only results", spec.name)
    wrong = [name for name in call.leading if name not in call.inputs]
    if wrong or isinstance(vmap, str):
        raise _invalid("vmap", f"be a list of tensors among {list(call.inputs)}", vmap)
    if vjp is not None and has_side_effect:
        raise _invalid("has_side_effect", "be False for an operator with a derivative", has_side_effect)

    def bind(numbers: Numbers, *tensors: Any) -> tuple[Any, ...]:
        made = launch.bind(*tensors, call=Call(spec, numbers, call.leading, has_side_effect))
        return tuple(made)

    made = object.__new__(Op)
    made.spec = spec
    apply = bind if vjp is None else with_gradient(call, bind, vjp)
    made._apply = jax.jit(lambda numbers, *tensors: apply(numbers, *vary_together(tensors)), static_argnums=0)
    return made


def _array(spec: tfi.KernelSpec, name: str, x: Any) -> Any:
    if not isinstance(x, (jax.Array, np.ndarray)):
        raise tfi.SignatureError(
            f"argument {name!r} of kernel {spec.name!r} must be a JAX or NumPy array, got {type(x).__name__}. Pass "
            "`jnp.asarray(x)`",
            op="op",
            argument=name,
            actual=x,
        )
    return x


def _number(spec: tfi.KernelSpec, name: str, value: Any) -> Any:
    if isinstance(value, (jax.Array, np.ndarray)):
        raise tfi.SignatureError(
            f"argument {name!r} of kernel {spec.name!r} must be a Python number, fixed when the call is compiled, got "
            f"{type(value).__name__}. Pass it as a static argument, or let the kernel read it through a pointer",
            op="op",
            argument=name,
            actual=type(value).__name__,
        )
    return value


def _invalid(argument: str, condition: str, actual: object) -> tfi.ValidationError:
    return tfi.ValidationError(
        f"{argument} must {condition}, got {actual!r}", op="op", argument=argument, actual=actual
    )
