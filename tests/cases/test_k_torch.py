"""Public failure reports, section K: PyTorch semantics (122 to 133)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import AXPY, COPY, EVERY_USE, READING, WRITING, refused

import tenferro_interop as tfi
from tenferro_interop_torch import op

copy_f32 = op(
    tfi.KernelSpec(
        COPY, "copy_f32", outputs={"y": "x"}, values={"n": lambda x: x.size}, config=lambda n: tfi.LaunchConfig.flat(n)
    ),
    "tfi_case::copy_f32",
    backward=lambda ctx, grad: copy_f32(grad),
)
axpy = op(
    tfi.KernelSpec(AXPY, "axpy", values={"n": lambda x: x.size}, config=lambda n: tfi.LaunchConfig.flat(n)),
    "tfi_case::axpy",
)


@pytest.mark.parametrize("use", READING)
def test_case_122_parameter_may_be_read(session: tfi.Session, device: str, use: Callable):
    use(session, torch.nn.Parameter(torch.ones(3, device=device)))


@pytest.mark.parametrize("use", WRITING)
def test_case_122_parameter_is_written_only_without_grad(session: tfi.Session, device: str, use: Callable):
    parameter = torch.nn.Parameter(torch.ones(3, device=device))
    with pytest.raises(tfi.ValidationError, match="no_grad"):
        use(session, parameter)
    with torch.no_grad():
        use(session, parameter)


def test_case_122_operator_reads_a_parameter_and_records(device: str):
    parameter = torch.nn.Parameter(torch.ones(3, device=device))
    copy_f32(parameter).sum().backward()
    assert parameter.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("kind", ["conj", "neg"])
def test_case_123_lazy_bits_are_refused(session: tfi.Session, device: str, use: Callable, kind: str):
    z = torch.view_as_complex(torch.ones(3, 2, device=device)).conj()
    with refused(session, tfi.ValidationError, actual="conjugate" if kind == "conj" else "negative"):
        use(session, z if kind == "conj" else z.imag)


@pytest.mark.parametrize("call", [copy_f32, copy_f32.overload])
def test_case_123_operator_reads_the_value_behind_lazy_bits(device: str, call: Callable):
    z = torch.view_as_complex(torch.full((3, 2), 2.0, device=device)).conj()
    assert call(z.imag).tolist() == [-2.0] * 3


@pytest.mark.parametrize("transform", [torch.vmap, lambda f: torch.func.grad(lambda x: f(x) or x.sum())])
def test_case_125_transform_wrapper_points_to_the_operators(session: tfi.Session, device: str, transform: Callable):
    def body(x: torch.Tensor) -> None:
        session.tensor(x)

    with pytest.raises(tfi.UnsupportedError, match="operator"):
        transform(body)(torch.ones(3, device=device))


def unusual(kind: str, device: str) -> torch.Tensor:
    """Make a tensor without plain strided memory."""
    x = torch.ones(3, 3, device=device)
    if kind == "nested":
        return torch.nested.nested_tensor([x, x[:2]], layout=torch.strided)
    if kind == "jagged":
        return torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged)
    if kind == "mkldnn":
        return x.cpu().to_mkldnn()
    if kind == "quantised":
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    return x.to("meta") if kind == "meta" else x.to_sparse()


@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore:.*nested tensors.*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*quant.*:UserWarning", "ignore:.*quant.*:DeprecationWarning")
@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("kind", ["sparse", "nested", "meta", "quantised", "mkldnn"])
def test_case_126_unusual_layouts_give_one_class(session: tfi.Session, device: str, use: Callable, kind: str):
    if session.device_type == 2 and kind == "mkldnn":
        kind = "sparse"  # mkldnn tensors are on the CPU only
    with refused(session, tfi.LayoutError):
        use(session, unusual(kind, device))


class Tagged(torch.Tensor):
    """A subclass with memory of its own."""


class Wrapped(torch.Tensor):
    """A wrapper subclass, which has no memory."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(arg.inner if isinstance(arg, Wrapped) else arg for arg in args), **(kwargs or {}))


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_127_subclass_with_memory_is_taken(session: tfi.Session, device: str, use: Callable):
    use(session, torch.ones(3, device=device).as_subclass(Tagged))


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_127_subclass_without_memory_is_refused(session: tfi.Session, device: str, use: Callable):
    with pytest.raises(tfi.TenferroError):
        use(session, Wrapped(torch.ones(3, device=device)))


@pytest.mark.parametrize("call", [copy_f32, copy_f32.overload])
def test_case_127_operator_goes_through_a_wrapper_subclass(device: str, call: Callable):
    assert call(Wrapped(torch.ones(3, device=device))).tolist() == [1.0] * 3


def test_case_129_mutation_is_derived_from_the_declaration(device: str):
    arguments = {a.name: a.alias_info is not None and a.alias_info.is_write for a in axpy.overload._schema.arguments}
    assert arguments == {"a": False, "x": False, "y": True}
    x = torch.ones(3, device=device)
    assert set(torch.library.opcheck(axpy.overload, (2.0, x, x.clone())).values()) == {"SUCCESS"}


def test_case_129_compiled_write_is_seen_by_what_follows(device: str):
    def model(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        before = y + 1
        axpy(2.0, x, y)
        return before + y

    x = torch.ones(3, device=device)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert compiled(x).tolist() == model(x).tolist() == [3.0] * 3


@pytest.mark.parametrize(
    ("name", "result", "made"),
    [
        ("itself", lambda x: x, "Tensor"),
        ("view", lambda x: x[1:], "Tensor"),
        ("among", lambda x: (x.clone(), x.view(-1)), "(Tensor, Tensor)"),
    ],
)
def test_case_130_operator_that_returns_an_argument_is_refused(name: str, result: Callable, made: str):
    wrong = op(result, f"tfi_case::{name}", schema=f"(Tensor x) -> {made}", fake=lambda x: result(x.clone()))
    with pytest.raises(tfi.AliasError, match="clone") as error:
        wrong(torch.ones(3))
    assert error.value.actual == f"tfi_case::{name}"


def test_case_130_in_place_operator_returns_nothing(device: str):
    x = torch.ones(3, device=device)
    assert axpy(1.0, x, x.clone()) is None


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x.expand(2, 4, 6)])
def test_case_131_strides_are_the_same_in_eager_fake_and_compiled_calls(device: str, view: Callable):
    x = view(torch.rand(4, 6, device=device))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = copy_f32.overload(mode.from_tensor(x))
    compiled = torch.compile(lambda x: copy_f32(x), backend="aot_eager", fullgraph=True)(x)
    eager = copy_f32(x)
    assert fake.stride() == compiled.stride() == eager.stride()
    assert torch.equal(eager, x)
    assert torch.equal(compiled, x)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*AccumulateGrad.*:UserWarning")
def test_case_133_backward_runs_after_the_gradient_on_whatever_stream():
    x = torch.ones(1 << 20, device="cuda", requires_grad=True)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    first.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(first):
        y = copy_f32(x)
    second.wait_stream(first)
    with torch.cuda.stream(second):
        grad = torch.zeros_like(x)
        torch.cuda._sleep(50_000_000)
        grad.fill_(3.0)
        y.backward(grad)
        total = x.grad.sum()
    second.synchronize()
    assert total.item() == 3.0 * (1 << 20)
