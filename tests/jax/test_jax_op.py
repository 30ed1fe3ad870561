"""`op`: arguments, element types, numbers, results, and tensors that the kernel changes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_operators import AXPY, FLAT, PRODUCT, SCALE, SOURCE, axpy, mixed, put, scale, split, sum_rows

import tenferro_interop as tfi
from tenferro_interop_jax import Op, op

CPU = jax.devices("cpu")[0]


def test_eager_call_runs_where_the_array_is(device: str) -> None:
    y = scale(put(device, range(100)), 3.0)
    assert y.devices() == set(jax.devices(device)[:1])
    assert y.tolist() == [3.0 * i for i in range(100)]


def test_calls_chain_inside_jit(device: str) -> None:
    y = jax.jit(lambda x: scale(scale(x, 2), 3) + 1)(put(device, range(100)))
    assert y.tolist() == [6.0 * i + 1 for i in range(100)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8", "uint16"])
def test_template_has_an_instance_for_each_element_type(device: str, dtype: str) -> None:
    y = scale(put(device, range(40), dtype), 2)
    assert y.dtype == dtype
    assert y.astype("float32").tolist() == [2.0 * i for i in range(40)]


def test_numbers_reach_the_kernel_with_their_declared_types(device: str) -> None:
    y = mixed(-5, put(device, [0, 1]), 2.5, 300, True)
    assert y.tolist() == [1297.5, 1298.5]


@pytest.mark.parametrize(("one", "other"), [(1, True), (0.0, -0.0), (1, 2)])
def test_numbers_that_compare_equal_are_calls_of_their_own(one: float, other: float) -> None:
    of_sign = op(
        tfi.KernelSpec(
            'extern "C" __global__ void sign(const float* x, float* y, double a) { y[0] = x[0] + copysign(a + 1, a); }',
            "sign",
            outputs={"y": "x"},
            config=tfi.LaunchConfig(1, 1),
        )
    )
    x = put("cpu", [0])
    assert of_sign(x, float(one)).tolist() == [np.copysign(one + 1, one)]
    assert of_sign(x, float(other)).tolist() == [np.copysign(other + 1, other)]


def test_number_outside_its_type_is_refused_when_lowered(device: str) -> None:
    with pytest.raises(tfi.ScalarRangeError, match="200"):
        mixed(200, put(device, [0]), 0.0, 0, False)


def test_array_as_a_number_is_refused_with_a_fix() -> None:
    with pytest.raises(tfi.SignatureError, match=r"argument 'a' .* must be a Python number"):
        scale(put("cpu", [1]), jnp.float32(2))
    with pytest.raises(tfi.SignatureError, match="static argument"):
        jax.jit(scale)(put("cpu", [1]), 2.0)


def test_number_as_an_array_is_refused_with_a_fix() -> None:
    with pytest.raises(tfi.SignatureError, match=r"argument 'x' .* must be a JAX or NumPy array, got list"):
        scale([1.0], 2)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(tfi.SignatureError, match="must be called with"):
        scale(put("cpu", [1]))


def test_numpy_arrays_are_taken() -> None:
    with jax.default_device(CPU):
        assert scale(np.arange(3, dtype="f4"), a=2).tolist() == [0.0, 2.0, 4.0]


def test_results_come_in_the_kernels_order(device: str) -> None:
    half, sign = split(put(device, [-2, 4]))
    assert (half.tolist(), sign.tolist()) == ([-1.0, 2.0], [-1, 1])
    assert sign.dtype == "int32"


def test_shape_rules_decide_the_results(device: str) -> None:
    assert sum_rows(put(device, np.ones((2, 3, 4)))).tolist() == [[4.0] * 3] * 2


def test_changed_tensor_is_a_result_and_the_argument_stays(device: str) -> None:
    x, y = put(device, [1, 2]), put(device, [10, 10])
    assert axpy(2.0, x, y).tolist() == [12.0, 14.0]
    assert y.tolist() == [10.0, 10.0]


def test_donated_tensor_is_changed_in_place(device: str) -> None:
    x, y = put(device, np.ones(1000)), put(device, np.ones(1000)) - 1  # memory of JAX's own, which it may reuse
    address = y.unsafe_buffer_pointer()
    z = jax.jit(lambda x, y: axpy(2.0, x, y), donate_argnums=1)(x, y)
    assert z.unsafe_buffer_pointer() == address
    assert y.is_deleted()
    assert z.tolist() == [2.0] * 1000


def test_no_elements_are_no_launch(device: str) -> None:
    assert scale(put(device, []), 2).shape == (0,)


def test_transposed_input_is_made_compact(device: str) -> None:
    x = put(device, np.arange(6).reshape(2, 3))
    assert jax.jit(lambda x: scale(x.T, 1))(x).tolist() == x.T.tolist()


def test_other_element_type_is_refused_when_lowered() -> None:
    with pytest.raises(tfi.DTypeError, match="float32"):
        mixed(0, put("cpu", [1], "int32"), 0.0, 0, False)


def test_element_type_without_raw_form_is_refused() -> None:
    with pytest.raises(tfi.DTypeError, match="argument 'x' must have an element type that kernels read"):
        scale(jax.random.key(0), 2)


def test_result_type_that_jax_has_not_enabled_is_refused() -> None:
    wide = tfi.KernelSpec(
        'extern "C" __global__ void widen(const float* x, double* y, int n) {}',
        "widen",
        outputs={"y": lambda x: x.shape},
        **FLAT,
    )
    with pytest.raises(tfi.DTypeError, match="jax_enable_x64"):
        op(wide)(put("cpu", [1]))


def test_compile_error_reaches_the_caller() -> None:
    broken = tfi.KernelSpec(
        'extern "C" __global__ void broken(const float* x, float* y) { y[0] = nonsense; }',
        "broken",
        outputs={"y": "x"},
        config=tfi.LaunchConfig(1, 1),
    )
    with pytest.raises(tfi.CompileError) as caught:
        op(broken)(put("cpu", [1]))
    assert "nonsense" in caught.value.log


def test_call_works_without_jit() -> None:
    with jax.disable_jit():
        assert scale(put("cpu", [1, 2]), 2).tolist() == [2.0, 4.0]


def test_side_effect_keeps_the_call(device: str) -> None:
    kept = op(SCALE, has_side_effect=True)
    x = put(device, [1])
    assert "tenferro_interop" in jax.jit(lambda x: (kept(x, 2), x)[1]).lower(x).as_text()
    assert "tenferro_interop" not in jax.jit(lambda x: (scale(x, 2), x)[1]).lower(x).as_text()


def test_program_holds_a_hash_and_no_pointer(device: str) -> None:
    text = jax.jit(lambda x: scale(x, 2)).lower(put(device, [1])).as_text()
    assert text == jax.jit(lambda x: op(SCALE)(x, 2)).lower(put(device, [1])).as_text()


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"vmap": ["q"]}, "vmap"),
        ({"vmap": "x"}, "vmap"),
        ({"vjp": 3}, "vjp"),
        ({"vjp": lambda nobody: None}, "vjp"),
        ({"vjp": axpy}, "vjp"),
        ({"vjp": lambda grad_y: grad_y, "has_side_effect": True}, "has_side_effect"),
    ],
)
def test_declaration_that_does_not_fit_is_refused(options: dict[str, object], argument: str) -> None:
    with pytest.raises(tfi.ValidationError) as caught:
        op(PRODUCT, **options)  # type: ignore[arg-type]
    assert caught.value.argument == argument


def test_kernel_without_results_is_refused() -> None:
    silent = tfi.KernelSpec(
        'extern "C" __global__ void silent(const float* x) {}', "silent", config=tfi.LaunchConfig(1, 1)
    )
    with pytest.raises(tfi.ValidationError, match="spec must write a tensor"):
        op(silent)


def test_kernel_without_arrays_is_refused() -> None:
    alone = tfi.KernelSpec(
        'extern "C" __global__ void alone(float* y) {}',
        "alone",
        outputs={"y": lambda: (1,)},
        config=tfi.LaunchConfig(1, 1),
    )
    with pytest.raises(tfi.ValidationError, match="spec must take a tensor"):
        op(alone)


def test_something_else_than_a_spec_is_refused() -> None:
    with pytest.raises(tfi.ValidationError, match="spec must be a KernelSpec"):
        op(SOURCE)  # type: ignore[arg-type]


def test_op_is_made_by_op_only() -> None:
    with pytest.raises(tfi.RuntimeStateError, match="must come from `op`"):
        Op()
    assert repr(op(AXPY)).startswith("<Op of <KernelSpec axpy")
