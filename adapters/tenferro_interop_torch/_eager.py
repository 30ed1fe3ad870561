"""The eager call of an operator: a function written for one declaration, as `dataclasses` writes `__init__`.

A loop over the parameters would cost as much as the launch, so the text below names each of them; its own names begin
with an underscore, since a kernel may call its parameters anything.  A plan (kernel,
geometry, extents of the outputs, computed numbers) is looked up by what the declaration's rules look at.  Where nothing
of PyTorch's dispatcher could matter (exact tensor types, no mode, no transform, no autograd, no autocast) the call goes
to the kernel directly; what the kernel refuses there is given to the dispatcher, which resolves lazy bits and strides.
`TENFERRO_TORCH_BYPASS=0` sends every call through the dispatcher, where profilers see it.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

import tenferro_interop as tfi

from ._dtypes import described, to_torch

_MAX_PLANS = 256
_PRIVATE = ("_len_torch_dispatch_stack", "_len_torch_function_stack", "_are_functorch_transforms_active", "_is_tracing")
_TEXT = """
def make(_overload, _plans, _plan_of, _session, _empty, _empty_like, _is_compiling, _modes, _functions, _transforms,
         _is_tracing, _recording, _autocast, _forward_ad, _Tensor, _Parameter, _refused, _type=type):
    def run({names}):
        {compact}
{launch_in_run}

    def call(_self, {names}):
        if (_is_compiling() or _modes() or _functions() or _transforms() or _is_tracing()
                or _forward_ad._current_level >= 0 {autocast} or {types} or ({recorded}) and _recording()):
            return _overload({names})
        try:
{launch_in_call}
        except _refused:
            pass
        return _overload({names})

    return run, call
"""
_LAUNCH = """\
_plan = _plans.get(({key}))
if _plan is None:
    _plan = _plan_of(({key}), {names})
{plan} = _plan
{made}
with _session(like={like}) as _s:
    _s.launch(_function, _config, ({launched}))
return {result}"""


@dataclass(frozen=True)
class Form:
    """One way to call a declaration: which outputs the call makes, and which the caller passes (the out variant)."""

    spec: tfi.KernelSpec
    makes: tuple[str, ...]

    @property
    def arguments(self) -> tuple[tfi.SpecParameter, ...]:
        """What a caller passes: the declaration's arguments, then the outputs that the call does not make."""
        given = (p for p in self.spec.parameters if p.role == "output" and p.name not in self.makes)
        return (*self.spec.arguments, *given)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors passed."""
        return tuple(p.name for p in self.arguments if p.is_tensor)

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the tensors passed that the kernel writes."""
        return tuple(p.name for p in self.arguments if p.role in ("inout", "output"))


def bypass_is_possible() -> bool:
    """Whether this PyTorch tells what the guards ask, and the user has not turned the bypass off."""
    return os.environ.get("TENFERRO_TORCH_BYPASS", "1") != "0" and all(hasattr(torch._C, name) for name in _PRIVATE)


def fake_of(form: Form) -> Callable[..., Any]:
    """Return the function that makes the outputs' shapes without data."""
    spec, names, tensors = form.spec, [p.name for p in form.arguments], form.tensors

    def fake(*args: Any) -> Any:
        given = dict(zip(names, args, strict=True))
        known = {p.name: described(given[p.name]) if p.is_tensor else given[p.name] for p in spec.arguments}
        _require_one_device(spec, {name: given[name].device for name in tensors})
        if not form.makes:
            return None
        like, outputs = given[form.tensors[0]], spec.output_specs(known)
        made = tuple(like.new_empty(outputs[n].shape, dtype=to_torch(outputs[n].dtype)) for n in form.makes)
        return made[0] if len(made) == 1 else made

    return fake


def _require_one_device(spec: tfi.KernelSpec, devices: dict[str, torch.device]) -> None:
    first, *others = devices.items()
    for name, device in others:
        if device != first[1]:
            raise tfi.ValidationError(
                f"argument {name!r} of kernel {spec.name!r} must be on {first[1]}, where {first[0]!r} is, got {device}",
                op="op",
                argument=name,
                expected=first[1],
                actual=device,
            )


def write_calls(form: Form, overload: Any, autocast: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return (kernel for the dispatcher, for which tensors that are only read may have any strides; eager call)."""
    plans: dict[Any, tuple[Any, ...]] = {}
    space: dict[str, Any] = {}
    exec(_fill(form, autocast), space)
    run, call = space["make"](
        overload, plans, _planner(form, plans), tfi.session, torch.empty_strided, torch.empty_like,
        torch.compiler.is_dynamo_compiling, *(getattr(torch._C, name, None) for name in _PRIVATE),
        torch.is_grad_enabled, torch._C._is_any_autocast_enabled, forward_ad, torch.Tensor, torch.nn.Parameter,
        (tfi.ValidationError, tfi.UnsupportedError),
    )  # fmt: skip
    call.__name__ = call.__qualname__ = overload.name()
    return run, call if bypass_is_possible() else lambda _, *args, **named: overload(*args, **named)


def _fill(form: Form, autocast: bool) -> str:
    spec, like = form.spec, form.tensors[0]
    explicit, values = _explicit(form), [p.name for p in spec.parameters if p.role == "value"]
    fields = [f"_{name}_{field}" for name in explicit for field in ("shape", "strides", "dtype", "device")]
    made = [
        f"{n} = _empty(_{n}_shape, _{n}_strides, dtype=_{n}_dtype, device=_{n}_device)"
        if n in explicit
        else f"{n} = _empty_like({spec.made_like(n)})"
        for n in form.makes
    ]
    names = ", ".join(p.name for p in form.arguments)
    launch = _LAUNCH.format(
        names=names,
        key="".join(f"{part}, " for part in _key(form)),
        plan=", ".join(["_function", "_config", *fields, *values]),
        made="; ".join(made) or "pass",
        like=like,
        launched="".join(f"{p.name}, " for p in spec.parameters),
        result=", ".join(form.makes) or "None",
    )
    return _TEXT.format(
        names=names,
        launch_in_run=textwrap.indent(launch, " " * 8),
        launch_in_call=textwrap.indent(launch, " " * 12),
        compact="; ".join(f"{p.name} = {p.name}.contiguous()" for p in form.arguments if p.role == "input") or "pass",
        autocast="or _autocast()" if autocast else "",
        types=" or ".join(f"(_type({n}) is not _Tensor and _type({n}) is not _Parameter)" for n in form.tensors),
        recorded=" or ".join(f"{n}.requires_grad" for n in form.tensors),
    )


def _explicit(form: Form) -> list[str]:
    """Return the outputs that no argument is the model of."""
    return [name for name in form.makes if form.spec.made_like(name) is None]


def _key(form: Form) -> list[str]:
    used = [p for p in form.arguments if p.name in form.spec.planned_by or p.role == "output"]
    parts = [part for p in used for part in ([f"{p.name}.shape", f"{p.name}.dtype"] if p.is_tensor else [p.name])]
    return [*parts, f"{form.tensors[0]}.get_device()"]


def _planner(form: Form, plans: dict[Any, tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Return the function that makes a plan and remembers it."""
    spec, names, explicit = form.spec, [p.name for p in form.arguments], _explicit(form)
    computed = [p.name for p in spec.parameters if p.role == "value"]

    def plan_of(key: Any, *args: Any) -> tuple[Any, ...]:
        given = dict(zip(names, args, strict=True))
        known = {p.name: described(given[p.name]) if p.is_tensor else given[p.name] for p in form.arguments}
        plan = spec.plan({p.name: known[p.name] for p in spec.arguments})
        for name in set(plan.outputs) - set(form.makes):
            _require_equal(spec, name, known[name], plan.outputs[name])
        like = given[form.tensors[0]]
        with tfi.session(like=like) as s:
            function = spec.function(s, plan.kernel)
        made = [field for name in explicit for field in _memory(plan.outputs[name], like.device)]
        entry = (function, plan.config, *made, *(plan.values[name] for name in computed))
        if len(plans) >= _MAX_PLANS:
            plans.clear()
        plans[key] = entry
        return entry

    return plan_of


def _memory(spec: tfi.TensorSpec, device: torch.device) -> tuple[Any, ...]:
    """Return shape, strides, element type and device of compact memory, as `torch.empty_strided` takes them."""
    strides = [1]
    for extent in reversed(spec.shape[1:]):
        strides.insert(0, strides[0] * max(extent, 1))
    return spec.shape, tuple(strides[: len(spec.shape)]), to_torch(spec.dtype), device


def _require_equal(spec: tfi.KernelSpec, name: str, given: tfi.TensorSpec, planned: tfi.TensorSpec) -> None:
    if given.dtype != planned.dtype:
        raise tfi.DTypeError(
            f"argument {name!r} of kernel {spec.name!r} must have element type {planned.dtype}, got {given.dtype}",
            op="op", argument=name, expected=planned.dtype, actual=given.dtype,
        )  # fmt: skip
    if given.shape != tuple(planned.shape):
        raise tfi.ValidationError(
            f"argument {name!r} of kernel {spec.name!r} must have shape {planned.shape}, got {given.shape}",
            op="op", argument=name, expected=planned.shape, actual=given.shape,
        )  # fmt: skip
