"""`torch.vmap` over operators: one call with the geometry recomputed, or a loop over the batch."""

from __future__ import annotations

import pytest
import torch
from torch_operators import axpy, constant, count_all, flat, norm_rows, product, scale, sum_rows

import tenferro_interop as tfi
from tenferro_interop_torch import op


class Calls(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the operators of these tests."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "tfi_test":
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("in_dim", [0, 1, 2, -1])
def test_named_tensors_are_folded_into_one_call(in_dim: int, device: str):
    x = torch.rand(2, 3, 4, device=device)
    with Calls() as calls:
        y = torch.vmap(lambda x: scale(x, 2.0), in_dims=in_dim)(x)
    assert torch.equal(y, 2 * x.movedim(in_dim, 0))
    assert calls.names == ["scale"]


def test_without_names_there_is_one_call_for_each_element(device: str):
    x = torch.rand(2, 3, device=device)
    with Calls() as calls:
        y = torch.vmap(lambda x: constant(x, 2.0), in_dims=1, out_dims=1)(x)
    assert torch.equal(y, 2 * x)
    assert calls.names == ["constant"] * 3


def test_unbatched_tensor_beside_a_batch(device: str):
    x, w = torch.rand(2, 3, device=device), torch.rand(3, device=device)
    assert torch.equal(torch.vmap(product, in_dims=(0, None))(x, w), x * w)
    assert torch.equal(torch.vmap(product, in_dims=(None, 0))(w, x), x * w)


def test_weights_of_rows_stay_whole_and_a_batch_of_them_is_looped_over(device: str):
    x, w = torch.rand(2, 4, 5, device=device), torch.rand(2, 5, device=device)
    with Calls() as calls:
        whole = torch.vmap(norm_rows, in_dims=(0, None))(x, w[0])
        each = torch.vmap(norm_rows)(x, w)
    assert calls.names == ["norm_rows"] * 3
    torch.testing.assert_close(whole, norm_rows(x, w[0]))
    torch.testing.assert_close(each[0], torch.stack([norm_rows(x[i], w[i])[0] for i in range(2)]))


def test_nested(device: str):
    x = torch.rand(2, 3, 4, device=device)
    with Calls() as calls:
        y = torch.vmap(torch.vmap(sum_rows, in_dims=1), in_dims=2)(x)
    torch.testing.assert_close(y, x.permute(2, 1, 0).sum(-1))
    assert calls.names == ["sum_rows"]


def test_fold_that_loses_the_batch_is_refused(device: str):
    with pytest.raises(tfi.ValidationError, match="leading axis") as error:
        torch.vmap(count_all)(torch.ones(2, 3, device=device))
    assert error.value.argument == "vmap"


def test_vmap_of_grad_and_grad_of_vmap(device: str):
    x, w = torch.rand(2, 3, 4, dtype=torch.float64, device=device)
    per_row = torch.vmap(torch.func.grad(lambda x, w: sum_rows(product(product(x, x), w))))(x, w)
    whole = torch.func.grad(lambda x: torch.vmap(lambda x: sum_rows(product(x, x)))(x).sum())(x)
    assert torch.allclose(per_row, 2 * x * w)
    assert torch.allclose(whole, 2 * x)


def test_per_sample_hessian(device: str):
    x = torch.rand(2, 3, dtype=torch.float64, device=device)
    hessian = torch.vmap(torch.func.jacrev(torch.func.grad(lambda x: sum_rows(product(product(x, x), x)))))(x)
    assert torch.allclose(hessian, torch.diag_embed(6 * x))


@pytest.mark.parametrize("operator", [scale, constant])
def test_empty_batch(operator, device: str):
    y = torch.vmap(lambda x: operator(x, 2.0))(torch.ones(0, 3, device=device))
    assert y.shape == (0, 3)


@pytest.mark.parametrize("in_dim", [0, 1])
def test_in_place_operator_writes_the_batch(in_dim: int, device: str):
    x, y = torch.rand(2, 3, device=device), torch.zeros(2, 3, device=device)
    torch.vmap(lambda x, y: axpy(2.0, x, y), in_dims=in_dim, out_dims=None)(x, y)
    assert torch.equal(y, 2 * x)


@pytest.mark.parametrize("in_dim", [0, 1])
def test_out_operator_fills_the_batch(in_dim: int, device: str):
    x, y = torch.rand(2, 3, device=device), torch.zeros(2, 3, device=device)
    torch.vmap(lambda x, y: scale.out(x, 2.0, y), in_dims=in_dim, out_dims=None)(x, y)
    assert torch.equal(y, 2 * x)


def test_in_place_operator_refuses_one_target_for_a_batch(device: str):
    y = torch.zeros(3, device=device)
    with pytest.raises(tfi.ValidationError) as error:
        torch.vmap(lambda x: axpy(1.0, x, y), out_dims=None)(torch.ones(2, 3, device=device))
    assert (error.value.argument, y.tolist()) == ("y", [0.0] * 3)


def test_rule_of_the_user(device: str):
    def rule(info, in_dims, x, a):
        return own(x.movedim(in_dims[0], 0), 10 * a), 0

    own = op(flat("scale", {"y": "x"}), f"tfi_test::own_{device}", vmap=rule)
    y = torch.vmap(lambda x: own(x, 2.0))(torch.ones(2, 3, device=device))
    assert y.tolist() == [[20.0] * 3] * 2
