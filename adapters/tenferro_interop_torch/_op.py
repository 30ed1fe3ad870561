"""`op(...)`: one declaration registered as a PyTorch operator, with fake, autograd, batching and autocast rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

import tenferro_interop as tfi

from ._autograd import Backward, SetupContext, autograd_kernel, missing_derivative, save_nothing
from ._batch import Rule, fold_rule, loop_rule
from ._dtypes import number_type
from ._eager import Form, fake_of, write_calls
from ._function import checked
from ._gradients import backward_by_operators
from ._registry import define, register

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")


class Op:
    """An operator made by `op`: a callable, registered with PyTorch.

    Attributes:
        name: the qualified name, ``"library::operator"``.
        spec: the declaration; None where a function launches.
        overload: the `torch._ops.OpOverload`, as it stands in graphs.
        out: the operator that writes the outputs into tensors passed after the other arguments; None where the
            declaration makes no outputs.
    """

    name: str
    spec: tfi.KernelSpec | None
    overload: Any
    out: Op | None

    def __init__(self) -> None:
        raise tfi.RuntimeStateError("Op must come from `op`, got a direct construction", op="op")

    def __call__(self, *args: Any) -> Any:
        """Call the operator; replaced by a function written for the declaration."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by name: the operator must be registered where it is loaded."""
        return _registered, (self.name,)

    def __repr__(self) -> str:
        """Return name and schema."""
        return f"<Op {self.overload._schema}>"


def op(
    kernel: tfi.KernelSpec | Callable[..., Any],
    name: str,
    *,
    schema: str | None = None,
    fake: Callable[..., Any] | None = None,
    backward: Backward | Op | Sequence[Op] | None = None,
    setup_context: SetupContext | None = None,
    vmap: Rule | Sequence[str] | None = None,
    autocast: torch.dtype | None = None,
) -> Op:
    """Register a declared kernel as the PyTorch operator `name` and return it as a function of its arguments.

    The schema follows the declaration: what `const T*` reads is an input, `T*` that the caller passes is mutated, what
    `outputs=` names is made.  The kernel runs on PyTorch's current stream; on CPU tensors, on the CPU device.

    Args:
        kernel: the declaration, or a function that launches on real tensors and returns new ones.
        name: ``"library::operator"``; graphs and exported programs refer to it, so it must be registered, by importing
            the module that declares it, wherever they run.
        schema: of a function only, PyTorch's: ``"(Tensor x, Tensor(a!) y, float a) -> Tensor"``.
        fake: of a function only: makes its results' shapes without data; needed where it returns any.
        backward: an `Op` or several, whose arguments and outputs are matched by name (``grad_y`` is the gradient of
            the output `y`, ``grad_x`` that of the argument `x`), or a function ``backward(ctx, *grads)`` that returns
            one gradient for each argument.
        setup_context: ``setup_context(ctx, inputs, output)``, which saves what a backward function needs.
        vmap: names of the tensors that may be given the batch as a further leading axis, in one call that recomputes
            the geometry; or a rule ``(info, in_dims, *args) -> (outputs, out_dims)``; by default a loop.
        autocast: the element type that floating-point inputs are cast to inside `torch.autocast`.

    Raises `ValidationError` for a name that is not of that form or is taken, for a declaration without a tensor, and
    for rules that do not fit it; `UnsupportedError` for a scalar that is not a number.

    Example:
        >>> import torch, tenferro_interop as tfi
        >>> square = op(
        ...     tfi.KernelSpec(
        ...         'extern "C" __global__ void square(const float* x, float* y, int n) {'
        ...         "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }",
        ...         "square",
        ...         outputs={"y": "x"},
        ...         values={"n": lambda x: x.size},
        ...         config=lambda n: tfi.LaunchConfig.flat(n),
        ...     ),
        ...     "docs::square",
        ...     backward=lambda ctx, g: 2 * ctx.saved_tensors[0] * g,
        ...     setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
        ... )
        >>> x = torch.tensor([1.0, 3.0], requires_grad=True)
        >>> square(x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 6.0]
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _invalid("name", "be 'library::operator'", name)
    is_spec = isinstance(kernel, tfi.KernelSpec)
    if is_spec is not (schema is None):
        raise _invalid("schema", "be given for a function, and for nothing else", schema)
    if setup_context is not None and (backward is None or isinstance(backward, (Op, Sequence))):
        raise _invalid("setup_context", "be given with a backward function, and with nothing else", setup_context)
    rules = _Rules(backward, setup_context, vmap, autocast)
    if isinstance(kernel, tfi.KernelSpec):
        return _of_spec(kernel, name, rules)
    return _of_function(kernel, name, schema or "", fake or (lambda *_: None), rules)


class _Rules(NamedTuple):
    """What beside the kernel makes an operator."""

    backward: Any = None
    setup_context: SetupContext | None = None
    vmap: Any = None
    autocast: torch.dtype | None = None

    @property
    def leading(self) -> tuple[str, ...]:
        """The tensors that may be given the batch as a leading axis."""
        return () if self.vmap is None or callable(self.vmap) else tuple(self.vmap)


def _of_spec(spec: tfi.KernelSpec, name: str, rules: _Rules) -> Op:
    form = Form(spec, tuple(p.name for p in spec.parameters if p.role == "output"))
    if not form.tensors:
        raise _invalid("kernel", "take a tensor that says where to run", spec.name)
    wrong = [each for each in rules.leading if each not in form.tensors]
    if wrong:
        raise _invalid("vmap", f"name tensors among {list(form.tensors)}", wrong)
    operators = (rules.backward,) if isinstance(rules.backward, Op) else rules.backward
    if isinstance(operators, Sequence):
        backward, setup_context = backward_by_operators(spec, operators)
        rules = rules._replace(backward=backward, setup_context=setup_context)
    made = _form_op(form, name, rules)
    if form.makes:
        leading = (*rules.leading, *form.makes) if rules.leading else None
        made.out = _form_op(Form(spec, ()), f"{name}.out", _Rules(vmap=leading, autocast=rules.autocast))
    return made


def _form_op(form: Form, name: str, rules: _Rules) -> Op:
    overload = define(name, schema_of(form))
    kernel, call = write_calls(form, overload, rules.autocast is not None)
    _register(overload, kernel, fake_of(form), rules)
    return _made(form.spec, name, overload, call)


def _of_function(function: Callable[..., Any], name: str, schema: str, fake: Callable[..., Any], rules: _Rules) -> Op:
    overload = define(name, schema)
    _register(overload, checked(function, name), fake, rules)
    return _made(None, name, overload, lambda self, *args, **kwargs: overload(*args, **kwargs))


def _register(overload: Any, kernel: Callable[..., Any], fake: Callable[..., Any], rules: _Rules) -> None:
    batch = rules.vmap if callable(rules.vmap) else loop_rule(overload, fake)
    if rules.leading:
        batch = fold_rule(overload, fake, rules.leading)
    backward = rules.backward or missing_derivative(overload.name())
    gradient = autograd_kernel(overload, backward, rules.setup_context or save_nothing)
    register(overload, kernel, fake, gradient, batch, rules.autocast)


def schema_of(form: Form) -> str:
    """Return arguments and results as PyTorch writes them."""
    parts = []
    for index, p in enumerate(form.arguments):
        mark = f"(a{index}!)" if p.name in form.written else ""
        parts.append(f"Tensor{mark} {p.name}" if p.is_tensor else f"{number_type(p)} {p.name}")
    made = ", ".join("Tensor" for _ in form.makes)
    return f"({', '.join(parts)}) -> {made if len(form.makes) == 1 else f'({made})'}"


def _made(spec: tfi.KernelSpec | None, name: str, overload: Any, call: Callable[..., Any]) -> Op:
    """Return the callable, of a class of its own, so that a call reaches the written function without a detour."""
    cls = type("Op", (Op,), {"__call__": call, "__doc__": f"Operator `{overload._schema}`."})
    made: Op = object.__new__(cls)
    made.name, made.spec, made.overload, made.out = name, spec, overload, None
    _ops[name] = made
    return made


_ops: dict[str, Op] = {}


def _registered(name: str) -> Op:
    """Return the operator of that name, for pickle."""
    if name not in _ops:
        raise tfi.RuntimeStateError(
            f"operator {name!r} must be registered to be loaded, got none. Import the module that declares it first",
            op="op",
            actual=name,
        )
    return _ops[name]


def _invalid(argument: str, condition: str, actual: object) -> tfi.ValidationError:
    return tfi.ValidationError(
        f"{argument} must {condition}, got {actual!r}", op="op", argument=argument, actual=actual
    )
