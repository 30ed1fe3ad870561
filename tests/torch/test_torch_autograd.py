"""Derivatives of operators: reverse mode to any order, `torch.func`, named errors where a derivative is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from torch_operators import axpy, constant, exponential, flat, norm_rows, product, scale, sum_rows

import tenferro_interop as tfi
from tenferro_interop_torch import op

# PyTorch's own rules for forward mode are scripted when they are first asked for.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def cubes(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of cubes, by kernels: its derivatives are 3x^2, 6x and 6."""
    return sum_rows(product(product(x, x), x))


@pytest.fixture
def x(device: str) -> torch.Tensor:
    return torch.rand(4, dtype=torch.float64, device=device) + 0.5


@pytest.mark.parametrize("call", [product, product.overload])
def test_gradcheck_to_second_order(call: Callable, x: torch.Tensor):
    x, w = x.requires_grad_(), (2 * x).detach().requires_grad_()
    assert torch.autograd.gradcheck(call, (x, w))
    assert torch.autograd.gradgradcheck(call, (x, w))
    assert torch.autograd.gradcheck(sum_rows, x)
    assert torch.autograd.gradgradcheck(lambda x: scale(x, 3.0), x)


def test_backward_operator_runs_only_for_what_is_needed(x: torch.Tensor):
    w = x.clone().requires_grad_()
    product(x, w).sum().backward()
    assert (x.grad, w.grad.tolist()) == (None, x.tolist())


def test_third_derivative_by_autograd(x: torch.Tensor):
    x.requires_grad_()
    value = cubes(x)
    for _ in range(3):
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    assert torch.allclose(value, torch.full_like(x, 6.0))


def test_func_grad_nests(x: torch.Tensor):
    first = torch.func.grad(cubes)
    second = torch.func.grad(lambda x: first(x).sum())
    third = torch.func.grad(lambda x: second(x).sum())
    for found, expected in ((first, 3 * x * x), (second, 6 * x), (third, 6 * torch.ones_like(x))):
        assert torch.allclose(found(x), expected)


def test_output_kept_for_backward_is_differentiated_through(x: torch.Tensor):
    def value(x: torch.Tensor) -> torch.Tensor:
        return sum_rows(exponential(x))

    expected = torch.exp(x)
    assert torch.autograd.gradgradcheck(exponential, x.clone().requires_grad_())
    first = torch.func.grad(value)
    second = torch.func.grad(lambda x: first(x).sum())
    third = torch.func.grad(lambda x: second(x).sum())
    for found in (first, second, third):
        assert torch.allclose(found(x), expected)
    assert torch.allclose(torch.vmap(torch.func.jacrev(first))(x[None]), torch.diag(expected))
    leaf = x.clone().requires_grad_()
    first(leaf).sum().backward()
    assert torch.allclose(leaf.grad, expected)


def test_func_vjp_and_jacrev(x: torch.Tensor):
    value, pull = torch.func.vjp(lambda x: product(x, x), x)
    assert torch.allclose(pull(torch.ones_like(x))[0], 2 * x)
    assert torch.allclose(value, x * x)
    assert torch.allclose(torch.func.jacrev(torch.func.jacrev(cubes))(x), torch.diag(6 * x))


def test_backward_of_a_backward_under_autograd_inside_func_grad(x: torch.Tensor):
    x.requires_grad_()
    torch.func.grad(cubes)(x).sum().backward()
    assert torch.allclose(x.grad, 6 * x)


@pytest.mark.parametrize("call", [scale, scale.overload])
@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.jacfwd(f)(x),
        lambda f, x: torch.func.hessian(lambda x: (f(x) ** 2).sum())(x),
        lambda f, x: torch.func.jvp(torch.vmap(f), (x,), (x,)),
        lambda f, x: torch.func.jacfwd(torch.func.grad(lambda x: (f(x) ** 2).sum()))(x),
    ],
)
def test_forward_mode_is_refused_by_name_not_read_as_zero(call: Callable, transform: Callable, x: torch.Tensor):
    with pytest.raises(tfi.UnsupportedError, match="jacrev") as error:
        transform(lambda x: call(x, 2.0), x)
    assert (error.value.op, error.value.actual) == ("jvp", "tfi_test::scale")


@pytest.mark.parametrize("call", [scale, scale.overload])
def test_dual_tensor_is_refused_and_other_tensors_inside_its_level_are_not(call: Callable, x: torch.Tensor):
    with forward_ad.dual_level():
        with pytest.raises(tfi.UnsupportedError):
            call(forward_ad.make_dual(x, x), 2.0)
        assert torch.equal(call(x, 2.0), 2 * x)


@pytest.mark.parametrize("call", [constant, constant.overload])
@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f, x: f(x.requires_grad_()).sum().backward(),
        lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
        lambda f, x: torch.func.jacrev(f)(x),
        lambda f, x: torch.vmap(torch.func.grad(lambda x: f(x).sum()))(x),
    ],
)
def test_missing_backward_is_named(call: Callable, differentiate: Callable, x: torch.Tensor):
    with pytest.raises(tfi.UnsupportedError, match="backward=") as error:
        differentiate(lambda x: call(x, 2.0), x)
    assert error.value.actual == "tfi_test::constant"


def test_missing_second_backward_is_named(device: str):
    once_backward = op(flat("scale", {"y": "x"}), f"tfi_test::once_backward_{device}")
    once = op(
        flat("scale", {"y": "x"}),
        f"tfi_test::once_{device}",
        backward=lambda ctx, grad: (once_backward(grad, 2.0), None),
    )
    x = torch.ones(3, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad((once(x, 2.0) ** 2).sum(), x, create_graph=True)
    assert grad.tolist() == [8.0] * 3
    with pytest.raises(tfi.UnsupportedError, match="once_backward"):
        grad.sum().backward()


def test_gradient_that_backward_leaves_out_is_named(device: str):
    partial = op(flat("product", {"y": "x"}), f"tfi_test::partial_{device}", backward=lambda ctx, grad: (grad, None))
    x, w = torch.ones(3, device=device, requires_grad=True), torch.ones(3, device=device)
    partial(x, w).sum().backward()
    assert x.grad.tolist() == [1.0] * 3
    with pytest.raises(tfi.UnsupportedError, match="detach") as error:
        partial(x, w.requires_grad_()).sum().backward()
    assert error.value.argument == "w"


def test_several_backward_operators_get_numbers_and_outputs_by_name(device: str):
    source = """
    extern "C" __global__ void forward(const float* x, const float* w, float* y, float a) { *y = a * *x * *w; }
    extern "C" __global__ void by_x(const float* w, float a, const float* grad_y, float* grad_x) {
      *grad_x = a * *w * *grad_y;
    }
    extern "C" __global__ void by_w(const float* y, const float* w, const float* grad_y, float* grad_w) {
      *grad_w = *y / *w * *grad_y;
    }
    """
    one = tfi.LaunchConfig(1, 1)

    def declared(name: str, outputs: dict[str, str]) -> tfi.KernelSpec:
        return tfi.KernelSpec(source, name, outputs=outputs, config=one)

    by_x = op(declared("by_x", {"grad_x": "w"}), f"tfi_test::by_x_{device}")
    by_w = op(declared("by_w", {"grad_w": "w"}), f"tfi_test::by_w_{device}")
    forward = op(declared("forward", {"y": "x"}), f"tfi_test::forward_{device}", backward=[by_x, by_w])
    x, w = torch.tensor([[3.0], [5.0]], device=device).requires_grad_()
    value = forward(x, w, 2.0)
    assert [grad.item() for grad in torch.autograd.grad(value, (x, w))] == [10.0, 6.0]
    grads = torch.compile(torch.func.grad(lambda x, w: forward(x, w, 2.0).sum(), (0, 1)), backend="aot_eager")
    assert [grad.item() for grad in grads(x.detach(), w.detach())] == [10.0, 6.0]


def test_wrong_number_of_gradients_is_refused(device: str):
    short = op(flat("product", {"y": "x"}), f"tfi_test::short_{device}", backward=lambda ctx, grad: grad)
    with pytest.raises(tfi.ValidationError) as error:
        short(torch.ones(3, device=device, requires_grad=True), torch.ones(3, device=device)).sum().backward()
    assert (error.value.expected, error.value.actual) == (2, 1)


@pytest.mark.parametrize("call", [axpy, axpy.overload])
@pytest.mark.parametrize("which", [0, 1])
def test_recorded_write_is_refused(call: Callable, which: int, device: str):
    tensors = [torch.ones(3, device=device), torch.zeros(3, device=device)]
    tensors[which].requires_grad_()
    with pytest.raises(tfi.UnsupportedError, match="no_grad"):
        call(1.0, *tensors)
    with torch.no_grad():
        call(1.0, *tensors)
    assert tensors[1].tolist() == [1.0] * 3


def test_recorded_write_is_refused_inside_func_grad(x: torch.Tensor):
    def write(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        axpy(1.0, x, y)
        return y.sum()

    with pytest.raises(tfi.UnsupportedError):
        torch.func.grad(write)(x)


def test_write_to_a_saved_tensor_is_noticed(device: str):
    x, w = torch.ones(3, device=device, requires_grad=True), torch.ones(3, device=device)
    y = product(x, w)
    axpy(1.0, torch.ones(3, device=device), w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_output_that_is_not_used_has_a_zero_gradient(device: str):
    seen = []

    def backward(ctx: object, *grads: torch.Tensor) -> tuple:
        seen.extend(grads)
        return grads[0], grads[0].sum(0)

    spec = norm_rows.spec
    kept = op(spec, f"tfi_test::kept_{device}", backward=backward)
    x = torch.rand(2, 3, device=device, requires_grad=True)
    kept(x, torch.ones(3, device=device))[0].sum().backward()
    assert [grad.sum().item() for grad in seen] == [6.0, 0.0]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(use_reentrant: bool, x: torch.Tensor):
    x.requires_grad_()
    checkpoint(cubes, x, use_reentrant=use_reentrant).backward()
    assert torch.allclose(x.grad, 3 * x * x)


def test_noncontiguous_gradient(x: torch.Tensor):
    x.requires_grad_()
    product(x, x).backward(torch.ones(1, dtype=x.dtype, device=x.device).expand(4))
    assert torch.allclose(x.grad, 2 * x)


def test_hooks_and_saved_tensor_hooks_see_the_operator(x: torch.Tensor):
    packed = []
    x.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = product(x, x)
    y.sum().backward()
    assert len(packed) == 2
    assert torch.allclose(x.grad, 2 * x)
