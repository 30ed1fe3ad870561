"""XLA's custom call that launches a declared kernel: the primitive, and how it is lowered on each platform."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core
import numpy as np
from jax.interpreters import ad, batching, mlir

import tenferro_interop as tfi

from ._batch import batch

TARGET = "tenferro_interop"


class Numbers:
    """The numbers of one call, by name; equal only where type and digits are, for 1, 1.0 and True make other calls."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self._key = tuple((name, type(value), repr(value)) for name, value in values.items())

    def __eq__(self, other: object) -> bool:
        """Compare names, types and digits."""
        return isinstance(other, Numbers) and self._key == other._key

    def __hash__(self) -> int:
        """Hash as compared."""
        return hash(self._key)


@dataclass(frozen=True)
class Call:
    """What is known of a call without its tensors; `spec` compares by identity."""

    spec: tfi.KernelSpec
    numbers: Numbers
    leading: tuple[str, ...]
    has_side_effect: bool

    @functools.cached_property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that XLA passes."""
        return tuple(p.name for p in self.spec.arguments if p.is_tensor)

    @functools.cached_property
    def results(self) -> tuple[str, ...]:
        """The tensors that XLA gets back: made or changed by the kernel."""
        return tuple(p.name for p in self.spec.parameters if p.role in ("output", "inout"))

    @functools.cached_property
    def aliases(self) -> dict[int, int]:
        """For each tensor that the kernel changes, its place among the inputs and the results."""
        updated = [p.name for p in self.spec.arguments if p.role == "inout"]
        return {self.inputs.index(name): self.results.index(name) for name in updated}

    def arguments(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """Return what the caller passes, in the kernel's order."""
        described = {name: describe(name, x) for name, x in zip(self.inputs, tensors, strict=True)}
        return {p.name: described.get(p.name, self.numbers.values.get(p.name)) for p in self.spec.arguments}

    def result_specs(self, tensors: Sequence[Any]) -> list[tfi.TensorSpec]:
        """Return shape and element type of each result."""
        arguments = self.arguments(tensors)
        made = self.spec.output_specs(arguments)
        return [made.get(name) or arguments[name] for name in self.results]


def describe(name: str, x: Any) -> tfi.TensorSpec:
    """Return shape and element type of an array or its abstract value.

    Raises `DTypeError` for an element type without a raw form.
    """
    found = tfi.DType.named(str(x.dtype))
    if found is None:
        raise tfi.DTypeError(
            f"argument {name!r} must have an element type that kernels read, got {x.dtype}",
            op="op",
            argument=name,
            actual=str(x.dtype),
        )
    return tfi.TensorSpec(tuple(x.shape), found)


@functools.cache
def _effects() -> Any:
    """Return the effect that JAX gives to FFI calls with side effects, which all its transforms know."""
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct((), np.float32), has_side_effect=True)
    return jax.make_jaxpr(call)().effects


def _abstract(*tensors: Any, call: Call) -> tuple[list[Any], Any]:
    like = _require_same_axes(tensors)
    specs = zip(call.results, call.result_specs(tensors), strict=True)
    results = [_result(call, name, made, like) for name, made in specs]
    return results, _effects() if call.has_side_effect else jax.extend.core.no_effects


def vary_together(tensors: Sequence[Any]) -> list[Any]:
    """Let all arrays vary along the mesh axes of `jax.shard_map` that one of them varies along, as JAX's own do."""
    types = [jax.typeof(x).mat for x in tensors]
    axes = frozenset().union(*(each.varying for each in types))
    missing = [tuple(sorted(axes - each.varying)) for each in types]
    return [jax.lax.pcast(x, m, to="varying") if m else x for x, m in zip(tensors, missing, strict=True)]


def _require_same_axes(tensors: Sequence[Any]) -> Any:
    """Return an argument whose mesh, and axes of `jax.shard_map` that it varies along, are those of the results too."""
    first, *others = (x.mat for x in tensors)
    if any(each != first for each in others):
        raise tfi.UnsupportedError(
            f"arguments of an operator must vary along the same axes inside shard_map, got {[first, *others]}. Use "
            '`jax.lax.pcast(x, axes, to="varying")`',
            op="op",
            actual=[first, *others],
        )
    return tensors[0]


def _result(call: Call, name: str, made: tfi.TensorSpec, like: Any) -> Any:
    dtype = jax.numpy.dtype(made.dtype.name)
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise tfi.DTypeError(
            f"output {name!r} of kernel {call.spec.name!r} must have an element type that JAX has enabled, got "
            f'{dtype}. Call `jax.config.update("jax_enable_x64", True)`',
            op="op",
            argument=name,
            actual=made.dtype,
        )
    whole = jax.sharding.PartitionSpec(*(None for _ in made.shape))
    sharding = jax.sharding.NamedSharding(like.sharding.mesh, whole)
    return like.update(shape=made.shape, dtype=dtype, weak_type=False, sharding=sharding)


def _lower(ctx: Any, *operands: Any, call: Call, device: str) -> Any:
    """Compile, check and register the kernel for the platform at hand, and emit the custom call."""
    with tfi.session(device) as session:
        made = tfi.xla_call(session, call.spec, call.arguments(ctx.avals_in))
    rule = jax.ffi.ffi_lowering(TARGET, has_side_effect=call.has_side_effect, operand_output_aliases=dict(call.aliases))
    return rule(
        ctx,
        *operands,
        kernel=np.uint64(made.kernel),
        plan=np.array(bytearray(made.plan)),
        numbers=np.array(bytearray(made.numbers)),
        launch=np.array(made.launch, np.uint32),
    )


def _no_derivative(primals: Any, tangents: Any, *, call: Call) -> Any:
    raise tfi.UnsupportedError(
        f"operator of kernel {call.spec.name!r} must have a derivative to be differentiated, got none. Pass `vjp=` to "
        "`op`: an operator or a function that computes the gradients",
        op="grad",
        argument="vjp",
        kernel=call.spec.name,
    )


def _run(*tensors: Any, call: Call) -> Any:
    """Run outside of jit, as under `jax.disable_jit`."""
    with jax.disable_jit(False):
        return jax.jit(functools.partial(launch.bind, call=call))(*tensors)


launch = jax.extend.core.Primitive(TARGET)
launch.multiple_results = True
launch.def_impl(_run)
launch.def_effectful_abstract_eval(_abstract)
ad.primitive_jvps[launch] = _no_derivative
batching.primitive_batchers[launch] = functools.partial(batch, launch)
for _device, _platform in (("cpu", "cpu"), ("cuda", "CUDA")):
    jax.ffi.register_ffi_target(TARGET, tfi.xla_handler(_device), platform=_platform)
    mlir.register_lowering(launch, functools.partial(_lower, device=_device), platform=_device)
