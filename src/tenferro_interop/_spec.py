"""`KernelSpec`: one kernel declared once, for an eager call on any tensors and for the operators of the adapters."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import _c_types as ctype
from ._dtypes import DType
from ._errors import DTypeError, SignatureError, ValidationError
from ._launch import LaunchConfig
from ._modules import Function
from ._nvrtc_options import NvrtcOptions
from ._open import session
from ._session import Session
from ._spec_parameters import PLACEHOLDER, SpecParameter, confirm, read_parameters
from ._tensors import as_dtype

Rule = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and element type of one tensor, as the rules of a `KernelSpec` see it."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count = count * extent
        return count


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What one call of a `KernelSpec` comes to: instance, geometry, tensors to make, numbers computed."""

    kernel: str
    config: LaunchConfig
    outputs: dict[str, TensorSpec]
    values: dict[str, Any]


class KernelSpec:
    """One kernel declared once: what the caller passes, what the call makes, and the geometry.

    The parameters are read from the source's text (or from `signature`, a C parameter list) and confirmed by the
    compiler when the kernel is first compiled.  ``const T*`` is read; ``T*`` is written: made by the call if `outputs`
    names it, else passed by the caller and changed in place; anything else is a number.  A parameter whose name is a
    word of Python, such as `in`, is called `in_` here.

    Args:
        source: CUDA C++.
        name: the kernel.  For a template ``"scale<{x}>"``: ``{x}`` stands for the C++ type of `x`'s elements.
        outputs: for each made tensor the argument whose shape it has, or a rule that gives its shape, or a
            `TensorSpec` where the element type is not that of the declaration.
        config: a `LaunchConfig`, or a rule that gives one.
        values: rules for the numbers that the caller shall not pass, such as element counts.
        options: compiler options.

    A rule is a function whose parameters are names of kernel parameters: it is given a `TensorSpec` for a tensor and
    the number for a scalar.  Rules for shapes see what the caller passes, those for values the outputs too, that for
    the geometry everything.

    Calling the spec launches on any DLPack tensors, on the current stream of the framework that owns the first one, and
    returns the outputs: None, one, or a tuple.  Gradients are an adapter's business: `tenferro_interop_torch.op` makes
    a PyTorch operator of a spec.

    Raises `ValidationError` or `SignatureError` for a declaration that contradicts itself; a call raises what
    `Session.launch` raises.

    Example:
        >>> import numpy as np, tenferro_interop as tfi
        >>> scale = tfi.KernelSpec(
        ...     "template <class T> __global__ void scale(const T* x, T* y, T a, int n) {"
        ...     "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i]; }",
        ...     "scale<{x}>",
        ...     outputs={"y": "x"},
        ...     values={"n": lambda x: x.size},
        ...     config=lambda n: tfi.LaunchConfig.flat(n),
        ... )
        >>> scale(np.arange(3.0), a=2).tolist()
        [0.0, 2.0, 4.0]
    """

    def __init__(
        self,
        source: str,
        name: str,
        *,
        config: LaunchConfig | Rule,
        outputs: Mapping[str, str | TensorSpec | Rule] | None = None,
        values: Mapping[str, Rule] | None = None,
        options: NvrtcOptions | None = None,
        signature: str | None = None,
    ) -> None:
        self.source, self.name = source, name
        self.options = options or NvrtcOptions()
        self._outputs, self._values = dict(outputs or {}), dict(values or {})
        self.parameters = read_parameters(source, name, signature, tuple(self._outputs), tuple(self._values))
        passed = {p.name for p in self.parameters if p.role in ("input", "inout", "scalar")}
        self._shape_rules = {key: _rule(f"outputs[{key!r}]", rule, passed) for key, rule in self._outputs.items()}
        known = passed | set(self._outputs)
        self._value_rules = {key: _rule(f"values[{key!r}]", rule, known) for key, rule in self._values.items()}
        everything = known | set(self._values)
        self._config = _rule("config", config, everything)
        for key in self._outputs:
            self._require_dtype(key)
        used = {name for rule in (config, *self._outputs.values(), *self._values.values()) for name in _names_in(rule)}
        used.update(PLACEHOLDER.findall(name), (p.dtype_of or "" for p in self.parameters if p.role == "output"))
        self._planned_by = tuple(p.name for p in self.arguments if p.name in used)
        self._plan = functools.lru_cache(maxsize=256)(self._make_plan)

    @functools.cached_property
    def _call_signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(p.name, kind) for p in self.arguments])

    @property
    def arguments(self) -> tuple[SpecParameter, ...]:
        """The parameters that a caller passes, in the kernel's order."""
        return tuple(p for p in self.parameters if p.role in ("input", "inout", "scalar"))

    @property
    def planned_by(self) -> tuple[str, ...]:
        """Names of the arguments that decide what a call comes to, in the kernel's order.

        Calls that agree in these have equal plans.
        """
        return self._planned_by

    def made_like(self, output: str) -> str | None:
        """Return the argument whose shape and element type the output has, if the declaration alone says so."""
        rule, made = self._outputs[output], self._parameter(output)
        if not isinstance(rule, str):
            return None
        like = self._parameter(rule)
        return rule if (made.dtype, made.dtype_of) in ((None, None), (like.dtype, like.dtype_of)) else None

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what decides the compiled kernel but the device; the same in every process."""
        parts = (self.source, self.name, repr(self.options), *(p.declaration for p in self.parameters))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Match a call's arguments to the parameters; raises `SignatureError` where one is missing or unknown."""
        names = [p.name for p in self.arguments]
        try:
            bound = self._call_signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise SignatureError(
                f"kernel {self.name!r} must be called with {names}, got {len(args)} arguments by position and "
                f"{sorted(kwargs)} by name: {error}",
                op="KernelSpec",
                expected=names,
                actual=[*names[: len(args)], *kwargs],
            ) from None
        return {name: bound[name] for name in names}

    def output_specs(self, arguments: Mapping[str, Any]) -> dict[str, TensorSpec]:
        """Return the tensors that a call makes; `arguments` holds a `TensorSpec` or a number for each parameter passed.

        Extents may be symbolic.
        """
        return {name: self._output(name, arguments) for name in self._outputs}

    def plan(self, arguments: Mapping[str, Any]) -> LaunchPlan:
        """Return what a call comes to; `arguments` holds a `TensorSpec` or a number for each parameter passed.

        Raises `DTypeError` where a template has no instance for an element type, `ValidationError` where the geometry
        rule gives something else than a `LaunchConfig`.
        """
        items = tuple((name, arguments[name]) for name in self._planned_by)
        types = tuple(type(value) for _, value in items)
        return self._plan(items, types) if _HASHABLE.issuperset(types) else self._make_plan(items, types)

    def function(self, session: Session, kernel: str) -> Function:
        """Return the compiled kernel of one instance, as `LaunchPlan.kernel` names it, in a session."""
        options = self.options
        if "<" in kernel and kernel not in options.name_expressions:
            options = replace(options, name_expressions=(*options.name_expressions, kernel))
        function = session.compile_nvrtc(self.source, options).function(kernel)
        if function.signature is not None:
            confirm(kernel, self.parameters, function.signature)
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch once on the given tensors and numbers; returns the outputs."""
        given = self.bind(args, kwargs)
        tensors = [given[p.name] for p in self.arguments if p.is_tensor]
        if not tensors:
            raise ValidationError(
                f"kernel {self.name!r} must take a tensor that says where to run, got none. Launch it in a session",
                op="KernelSpec",
            )
        with session(like=tensors[0]) as s:
            return self._run(s, given, tensors[0])

    def _run(self, s: Session, given: dict[str, Any], like: Any) -> Any:
        described = dict(given)
        for p in self.arguments:
            if p.is_tensor:
                given[p.name] = s.tensor(given[p.name]) if p.role == "input" else s.tensor_mut(given[p.name])
                described[p.name] = TensorSpec(given[p.name].shape, given[p.name].dtype)
        plan = self.plan(described)
        made = {name: s.alloc_output(spec.shape, spec.dtype, like=like) for name, spec in plan.outputs.items()}
        everything = {**given, **made, **plan.values}
        s.launch(self.function(s, plan.kernel), plan.config, [everything[p.name] for p in self.parameters])
        outputs = tuple(made.values())
        return outputs[0] if len(outputs) == 1 else outputs or None

    def _make_plan(self, items: tuple[tuple[str, Any], ...], _types: tuple[type, ...]) -> LaunchPlan:
        known = dict(items)
        outputs = self.output_specs(known)
        known.update(outputs)
        values = {name: rule(known) for name, rule in self._value_rules.items()}
        known.update(values)
        config = self._config(known)
        if not isinstance(config, LaunchConfig):
            raise ValidationError(
                f"config of kernel {self.name!r} must give a LaunchConfig, got {config!r}",
                op="KernelSpec",
                argument="config",
                actual=config,
            )
        return LaunchPlan(self._instance(known), config, outputs, values)

    def _instance(self, known: Mapping[str, Any]) -> str:
        """Fill the placeholders of the name with C++ types."""

        def spelled(argument: str) -> str:
            dtype = known[argument].dtype if isinstance(known[argument], TensorSpec) else None
            name = ctype.spell(dtype) if dtype is not None else ""
            if not name:
                raise DTypeError(
                    f"argument {argument!r} of kernel {self.name!r} must have an element type with a C++ name, got "
                    f"{dtype or known[argument]!r}",
                    op="KernelSpec",
                    argument=argument,
                    actual=dtype,
                )
            return name

        return PLACEHOLDER.sub(lambda match: spelled(match[1]), self.name)

    def _output(self, name: str, arguments: Mapping[str, Any]) -> TensorSpec:
        made = self._shape_rules[name](arguments)
        if isinstance(made, TensorSpec):
            if isinstance(self._outputs[name], str):
                return replace(made, dtype=self._dtype(name, arguments))
            return made
        return TensorSpec(_shape(name, made), self._dtype(name, arguments))

    def _dtype(self, name: str, arguments: Mapping[str, Any]) -> DType:
        parameter = self._parameter(name)
        if parameter.dtype is None:
            like = parameter.dtype_of or str(self._outputs[name])
            return as_dtype(arguments[like].dtype, "KernelSpec")
        return parameter.dtype._replace(lanes=1)

    def _require_dtype(self, name: str) -> None:
        parameter, rule = self._parameter(name), self._outputs[name]
        if parameter.dtype is None and parameter.dtype_of is None and not isinstance(rule, (str, TensorSpec)):
            raise ValidationError(
                f"outputs[{name!r}] must say its element type, which the declaration {parameter.declaration!r} does "
                "not tell. Give the name of an argument like it, or a `TensorSpec`",
                op="KernelSpec",
                argument=f"outputs[{name!r}]",
            )

    def _parameter(self, name: str) -> SpecParameter:
        return next(p for p in self.parameters if p.name == name)

    def __repr__(self) -> str:
        """Return name and declarations."""
        return f"<KernelSpec {self.name}({', '.join(p.declaration for p in self.parameters)})>"


def _rule(what: str, rule: object, known: set[str]) -> Callable[[Mapping[str, Any]], Any]:
    """Return the rule as a function of all that is known; its parameters are looked up once, here."""
    names = _names_in(rule)
    wrong = [name for name in names if name not in known]
    if wrong:
        raise ValidationError(
            f"{what} must use names among {sorted(known)}, got {wrong}", op="KernelSpec", argument=what, actual=wrong
        )
    if isinstance(rule, str):
        return lambda arguments: arguments[rule]
    return (lambda arguments: rule(*(arguments[name] for name in names))) if callable(rule) else lambda _: rule


def _names_in(rule: object) -> tuple[str, ...]:
    """Return the kernel parameters that a rule looks at."""
    if isinstance(rule, str):
        return (rule,)
    return tuple(inspect.signature(rule).parameters) if callable(rule) else ()


_HASHABLE = frozenset({TensorSpec, int, float, bool, complex, str})  # what plans are cached for; 1, 1.0 and True differ


def _shape(name: str, shape: object) -> tuple[int, ...]:
    if isinstance(shape, int):
        return (shape,)
    if isinstance(shape, (tuple, list)):
        return tuple(shape)
    raise ValidationError(
        f"outputs[{name!r}] must give a shape, a tuple of ints, got {shape!r}",
        op="KernelSpec",
        argument=f"outputs[{name!r}]",
        actual=shape,
    )
