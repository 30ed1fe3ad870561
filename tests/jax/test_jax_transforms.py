"""`op` under vmap, grad, control flow and shard_map: right values, or a named error."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_operators import PRODUCT, SCALE, SUM_ROWS, axpy, product, put, scale, split, sum_rows
from support import in_subprocess

import tenferro_interop as tfi
from tenferro_interop_jax import op

square = op(PRODUCT, vjp=lambda x, w, grad_y: {"x": again(grad_y, w), "w": again(grad_y, x)}, vmap=["x", "w"])
again = square
folded = op(SCALE, vjp=lambda a, grad_y: scale(grad_y, a), vmap=["x"])


@pytest.mark.parametrize("operator", [scale, folded], ids=["loop", "fold"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vmap_recomputes_the_geometry(device: str, operator: Any, axis: int) -> None:
    x = np.arange(3 * 50 * 7, dtype="f4").reshape(3, 50, 7)
    y = jax.vmap(lambda x: operator(x, 2), in_axes=axis)(put(device, x))
    np.testing.assert_array_equal(y, 2 * np.moveaxis(x, axis, 0))


def test_fold_is_one_call_and_loop_is_a_loop(device: str) -> None:
    x = put(device, np.ones((64, 400)))
    assert "while" not in jax.jit(jax.vmap(lambda x: folded(x, 2))).lower(x).as_text()
    assert "while" in jax.jit(jax.vmap(lambda x: scale(x, 2))).lower(x).as_text()


def test_nested_vmap(device: str) -> None:
    x = np.arange(2 * 3 * 40, dtype="f4").reshape(2, 3, 40)
    y = jax.vmap(jax.vmap(lambda x: folded(x, 2)))(put(device, x))
    np.testing.assert_array_equal(y, 2 * x)


def test_fold_gives_the_batch_to_what_has_none(device: str) -> None:
    x, w = np.arange(80, dtype="f4").reshape(2, 40), np.arange(40, dtype="f4")
    y = jax.vmap(product, in_axes=(0, None))(put(device, x), put(device, w))
    np.testing.assert_array_equal(y, x * w)


def test_changed_tensor_without_a_batch_gets_a_result_for_each(device: str) -> None:
    x, y = np.arange(6, dtype="f4").reshape(3, 2), np.ones(2, "f4")
    z = jax.vmap(lambda x, y: axpy(2.0, x, y), in_axes=(0, None))(put(device, x), put(device, y))
    np.testing.assert_array_equal(z, 2 * x + y)


def test_vmap_of_several_results(device: str) -> None:
    half, sign = jax.vmap(split)(put(device, [[-2, 4], [6, -8]]))
    assert (half.tolist(), sign.tolist()) == ([[-1.0, 2.0], [3.0, -4.0]], [[-1, 1], [1, -1]])


def test_vmap_of_rules_with_leading_axes(device: str) -> None:
    x = np.arange(24, dtype="f4").reshape(2, 3, 4)
    np.testing.assert_array_equal(jax.vmap(sum_rows)(put(device, x)), x.sum(-1))


@pytest.mark.parametrize("operator", [scale, folded], ids=["loop", "fold"])
def test_batch_of_none(device: str, operator: Any) -> None:
    assert jax.vmap(lambda x: operator(x, 2))(put(device, np.ones((0, 4)))).shape == (0, 4)


def test_fold_that_loses_the_batch_is_refused() -> None:
    total = op(
        tfi.KernelSpec(
            SUM_ROWS.source,
            "sum_rows<{x}>",
            outputs={"y": lambda x: (1,)},
            values={"columns": lambda x: x.size},
            config=tfi.LaunchConfig(1, 1),
        ),
        vmap=["x"],
    )
    with pytest.raises(tfi.ValidationError, match=r"result 'y' .* must have shape \(2, 1\)"):
        jax.vmap(total)(put("cpu", np.ones((2, 3))))


@pytest.mark.parametrize("operator", [product, square], ids=["operator", "function"])
def test_gradient_by_an_operator_and_by_a_function(device: str, operator: Any) -> None:
    x, w = put(device, np.arange(40)), put(device, np.arange(40) + 1)
    by_x, by_w = jax.grad(lambda x, w: operator(x, w).sum(), argnums=(0, 1))(x, w)
    np.testing.assert_array_equal(by_x, w)
    np.testing.assert_array_equal(by_w, x)


def test_gradient_of_numbers_and_jit(device: str) -> None:
    g = jax.jit(jax.grad(lambda x: (folded(x, 3) * x).sum()))(put(device, [1, 2]))
    assert g.tolist() == [6.0, 12.0]


def test_gradient_of_a_gradient(device: str) -> None:
    def cube(x: jax.Array) -> jax.Array:
        return square(square(x, x), x).sum()

    x = put(device, [1, 2, 3])
    assert jax.grad(lambda x: jax.grad(cube)(x).sum())(x).tolist() == [6.0, 12.0, 18.0]


def test_gradient_of_a_changed_tensor(device: str) -> None:
    added = op(axpy.spec, vjp=lambda a, grad_y: {"x": scale(grad_y, a), "y": grad_y})
    x, y = put(device, [1, 2]), put(device, [3, 4])
    by_x, by_y = jax.grad(lambda x, y: added(5.0, x, y).sum(), argnums=(0, 1))(x, y)
    assert (by_x.tolist(), by_y.tolist()) == ([5.0, 5.0], [1.0, 1.0])


@pytest.mark.parametrize("outer", [lambda f: jax.vmap(jax.grad(f)), lambda f: jax.grad(lambda x: jax.vmap(f)(x).sum())])
def test_vmap_and_grad_nest(device: str, outer: Callable[[Any], Any]) -> None:
    x = put(device, np.arange(120).reshape(3, 40))
    np.testing.assert_array_equal(outer(lambda x: product(x, x).sum())(x), 2 * x)


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f, x: jax.grad(lambda x: f(x).sum())(x),
        lambda f, x: jax.jvp(f, (x,), (x,)),
        lambda f, x: jax.jit(jax.grad(lambda x: f(x).sum()))(x),
        lambda f, x: jax.grad(lambda x: jax.vmap(f)(x[None]).sum())(x),
        lambda f, x: jax.linearize(f, x),
        lambda f, x: jax.jacrev(f)(x),
    ],
    ids=["grad", "jvp", "jit", "vmap", "linearize", "jacrev"],
)
def test_differentiation_without_vjp_is_a_named_error(differentiate: Callable[..., Any]) -> None:
    with pytest.raises(tfi.UnsupportedError, match=r"kernel 'scale<\{x\}>' must have a derivative .* Pass `vjp=`"):
        differentiate(lambda x: scale(x, 2), put("cpu", [1, 2]))


def test_second_derivative_without_vjp_is_a_named_error() -> None:
    with pytest.raises(tfi.UnsupportedError, match="product_backward"):
        jax.grad(lambda x: jax.grad(lambda x: product(x, x).sum())(x).sum())(put("cpu", [1, 2]))


def test_gradient_that_is_not_given_is_a_named_error() -> None:
    half = op(PRODUCT, vjp=lambda w, grad_y: {"x": scale(grad_y, 1)})
    with pytest.raises(tfi.UnsupportedError, match="must give the gradient of argument 'w'"):
        jax.grad(lambda x: half(x, x).sum())(put("cpu", [1, 2]))


@pytest.mark.parametrize("result", [3, {"q": 1}, None])
def test_gradients_of_another_form_are_refused(result: Any) -> None:
    wrong = op(PRODUCT, vjp=lambda grad_y: result)
    with pytest.raises(tfi.ValidationError, match="must return a dict with gradients of"):
        jax.grad(lambda x: wrong(x, x).sum())(put("cpu", [1, 2]))


def test_gradient_of_another_shape_is_refused() -> None:
    wrong = op(SCALE, vjp=lambda grad_y: grad_y.sum())
    with pytest.raises(tfi.ValidationError, match="gradient of argument 'x'"):
        jax.grad(lambda x: wrong(x, 2).sum())(put("cpu", [1, 2]))


def test_integers_have_no_gradient(device: str) -> None:
    g = jax.grad(lambda x: (x * product(put(device, [1, 2], "int32"), put(device, [3, 4], "int32"))).sum())
    assert g(put(device, [1, 1])).tolist() == [3.0, 8.0]


def test_control_flow_and_remat(device: str) -> None:
    x = put(device, [1, 2])
    assert jax.lax.scan(lambda c, _: (folded(c, 2), None), x, length=3)[0].tolist() == [8.0, 16.0]
    assert jax.lax.fori_loop(0, 3, lambda _, y: axpy(1.0, x, y), x).tolist() == [4.0, 8.0]
    assert jax.lax.cond(x[0] > 0, lambda x: folded(x, 2), lambda x: x, x).tolist() == [2.0, 4.0]
    assert jax.grad(lambda x: jax.checkpoint(lambda x: product(x, x).sum())(x))(x).tolist() == [2.0, 4.0]


def test_array_made_by_the_operator_is_ordinary(device: str) -> None:
    y = jnp.linalg.norm(scale(put(device, [3, 4]), 1))
    assert float(y) == 5.0


SHARDED = """
    import os, sys
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, {folder!r})
    import jax, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P
    from jax_operators import product, scale
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(np.arange(8, dtype="f4"), NamedSharding(mesh, P("i")))
    w = jax.device_put(np.arange(4, dtype="f4"), NamedSharding(mesh, P()))
"""


def sharded(body: str) -> None:
    setup = textwrap.dedent(SHARDED).format(folder=str(Path(__file__).parent))
    done = in_subprocess(setup + textwrap.dedent(body))
    assert done.returncode == 0, done.stderr


def test_sharded_arrays_give_right_values() -> None:
    sharded("""
        assert jax.jit(lambda x: scale(x, 2))(x).tolist() == [2.0 * i for i in range(8)]
        f = jax.shard_map(product, mesh=mesh, in_specs=(P("i"), P("i")), out_specs=P("i"))
        assert f(x, x).tolist() == [float(i * i) for i in range(8)]
    """)


def test_gradient_of_a_replicated_array_is_summed_over_the_devices() -> None:
    sharded("""
        f = jax.shard_map(product, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
        by_x, by_w = jax.grad(lambda x, w: f(x, w).sum(), argnums=(0, 1))(x, w)
        assert by_x.tolist() == [0.0, 1.0, 2.0, 3.0] * 2
        assert by_w.tolist() == [4.0, 6.0, 8.0, 10.0]
    """)


def test_result_that_differs_by_device_is_not_taken_for_replicated() -> None:
    sharded("""
        try:
            jax.shard_map(lambda x: scale(x, 2), mesh=mesh, in_specs=(P("i"),), out_specs=P())(x)
        except ValueError as error:
            assert "replication" in str(error)
        else:
            raise AssertionError
    """)
