"""`callback(...)`: a Python function that launches in a session on XLA's stream, inside jitted programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import buffer_callback

import tenferro_interop as tfi

_DL_CPU = 1


def callback(
    fn: Callable[..., None],
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
) -> Callable[..., Any]:
    """Return a function of JAX arrays whose results `fn` writes, each time XLA comes to it.

    `fn(session, out, *args)` is given a session on XLA's stream (on the CPU backend, on the CPU device), the results
    as `TensorMut`, in the structure of `result_shape_dtypes`, and the arguments as `TensorRef`: they are read-only.
    All belong to the session, which is closed when `fn` returns, and refuse use afterwards.  `fn` must not call JAX,
    which may wait for the very program that called it; it may be dropped where its results are not used, or run again,
    unless `has_side_effect` is set.  Prefer `op` where one kernel is launched: it needs no Python at run time.

    Args:
        fn: the function, called with the GIL held on a thread of XLA.
        result_shape_dtypes: one `jax.ShapeDtypeStruct` or a pytree of them.
        has_side_effect: `fn` must be called even where its results are not used.
        vmap_method: as `jax.pure_callback` takes it; without it `jax.vmap` is refused.

    What `fn` raises reaches the caller as text in `jax.errors.JaxRuntimeError`; the next call works on.

    Raises `ValidationError` for no results; `UnsupportedError` from differentiation: wrap the function in
    `jax.custom_vjp`.

    Example:
        >>> import jax, jax.numpy as jnp, tenferro_interop as tfi
        >>> def twice(s, out, x):
        ...     source = 'extern "C" __global__ void twice(const float* x, float* y) { *y = 2 * *x; }'
        ...     s.launch(s.compile_nvrtc(source).function("twice"), tfi.LaunchConfig(1, 1), [x, out])
        >>> float(jax.jit(callback(twice, jax.ShapeDtypeStruct((), "float32")))(jnp.float32(3)))
        6.0
    """
    if not jax.tree.leaves(result_shape_dtypes):
        raise tfi.ValidationError(
            "result_shape_dtypes must name a result, got none. Return a flag of shape () where there is none",
            op="callback",
            argument="result_shape_dtypes",
            actual=result_shape_dtypes,
        )
    call = buffer_callback.buffer_callback(
        functools.partial(_run, fn), result_shape_dtypes, has_side_effect=has_side_effect, vmap_method=vmap_method
    )
    # JAX takes no effects inside custom derivatives, and refuses to differentiate those calls itself.
    return call if has_side_effect else _without_derivative(call, getattr(fn, "__name__", repr(fn)))


def _run(fn: Callable[..., None], ctx: Any, out: Any, *args: Any) -> None:
    device_type, ordinal = jax.tree.leaves(out)[0].__dlpack_device__()
    on_cpu = device_type == _DL_CPU
    with tfi.session("cpu") if on_cpu else tfi.session(f"cuda:{ordinal}", stream=ctx) as session:
        made = jax.tree.map(session.tensor_mut, out)
        given = jax.tree.map(session.tensor, args)
        returned: Any = fn(session, made, *given)  # type: ignore[func-returns-value]  # that it returns None is checked
    if returned is not None:
        raise tfi.ValidationError(
            f"callback must write its results and return None, got {type(returned).__name__}",
            op="callback",
            argument="fn",
            actual=returned,
        )


def _without_derivative(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def refuse(primals: Any, tangents: Any) -> Any:
        raise tfi.UnsupportedError(
            f"callback {name!r} must have a derivative to be differentiated, got none. Wrap it in `jax.custom_vjp`, or "
            "make an operator: `op(spec, vjp=...)`",
            op="grad",
            argument="vjp",
        )

    made = jax.custom_jvp(call)
    made.defjvp(refuse)
    refusing: Callable[..., Any] = made
    return refusing
