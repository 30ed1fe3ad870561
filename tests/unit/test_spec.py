"""`KernelSpec`: roles from the source's text, rules, plans, eager calls."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import tenferro_interop as tfi
from tenferro_interop import KernelSpec, LaunchConfig, TensorSpec

SCALE = """
template <class T> __global__ void scale(const T* x, T* y, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
"""
BOTH = """
extern "C" __global__ void both(const float* x, float* total, int* count, long long n) {
  for (long long i = 0; i < n; ++i) { *total += x[i]; *count += x[i] > 0; }
}
"""
FLOAT32 = tfi.DType(2, 32)


def scale(**changes: object) -> KernelSpec:
    given = {"outputs": {"y": "x"}, "values": {"n": lambda x: x.size}, "config": lambda n: LaunchConfig.flat(n)}
    return KernelSpec(SCALE, "scale<{x}>", **(given | changes))


def test_roles_come_from_the_declaration():
    assert [(p.name, p.role) for p in scale().parameters] == [
        ("x", "input"), ("y", "output"), ("a", "scalar"), ("n", "value"),
    ]  # fmt: skip
    assert [p.name for p in scale().arguments] == ["x", "a"]


def test_element_types_come_from_the_declaration():
    spec = KernelSpec(BOTH, "both", config=LaunchConfig(1, 1))
    assert [str(p.dtype) for p in spec.parameters] == ["float32", "float32", "int32", "int64"]
    assert [p.dtype_of for p in scale().parameters] == ["x", "x", "x", None]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int16", "uint8"])
def test_template_takes_the_arguments_type(dtype: str):
    x = np.arange(5, dtype=dtype)
    y = scale()(x, 3)
    assert (y.dtype, y.tolist()) == (x.dtype, (3 * x).tolist())


def test_call_runs_where_the_first_tensor_lives(device: str):
    x = torch.arange(1000.0, device=device)
    y = scale()(x, a=2.0)
    assert y.device == x.device
    assert torch.equal(y, 2 * x)


def test_call_on_a_side_stream_is_ordered_with_it(device: str):
    side = torch.cuda.stream(torch.cuda.Stream()) if device == "cuda" else torch.no_grad()
    with side:
        x = torch.zeros(1 << 20, device=device)
        for _ in range(8):
            x = scale()(x + 1, a=1.0)
        total = x.sum()
    assert total.item() == 8 << 20


def test_pointer_that_is_no_output_is_changed_in_place(device: str):
    spec = KernelSpec(BOTH, "both", values={"n": lambda x: x.size}, config=LaunchConfig(1, 1))
    x = torch.ones(7, device=device)
    total, count = torch.zeros(1, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    assert spec(x, total, count=count) is None
    assert (total.item(), count.item()) == (7.0, 7)
    assert (total._version, count._version) == (1, 1)


def test_several_outputs_come_as_a_tuple():
    source = 'extern "C" __global__ void pair(const float* x, float* a, int* b) { *a = *x; *b = 7; }'
    spec = KernelSpec(source, "pair", outputs={"a": "x", "b": lambda x: (1,)}, config=LaunchConfig(1, 1))
    a, b = spec(np.array([2.5], "f4"))
    assert (a.tolist(), b.tolist(), b.dtype) == ([2.5], [7], np.int32)


def test_output_may_have_another_shape_and_type():
    source = 'extern "C" __global__ void typed(const float* x, void* y) { *(double*)y = *x; }'
    spec = KernelSpec(source, "typed", outputs={"y": TensorSpec((1,), tfi.DType(2, 64))}, config=LaunchConfig(1, 1))
    y = spec(np.array([2.5], "f4"))
    assert (y.dtype, y.tolist()) == (np.float64, [2.5])


def test_zero_elements_launch_nothing_and_give_an_empty_output(device: str):
    assert scale()(torch.zeros(0, 3, device=device), 2.0).shape == (0, 3)


def test_plan_is_the_same_object_for_the_same_shapes():
    spec = scale()
    x = TensorSpec((4, 5), FLOAT32)
    plan = spec.plan({"x": x, "a": 2.0})
    assert (plan.kernel, plan.config, plan.outputs, plan.values) == (
        "scale<float>",
        LaunchConfig.flat(20),
        {"y": x},
        {"n": 20},
    )
    assert spec.plan({"x": TensorSpec((4, 5), FLOAT32), "a": 2.0}) is plan
    assert spec.plan({"x": x, "a": 3.0}) is plan  # no rule looks at it


def test_plan_tells_numbers_of_different_types_apart():
    spec = scale(config=lambda a: LaunchConfig.flat(4, block=32 if type(a) is int else 64))
    x = TensorSpec((4,), FLOAT32)
    plans = [spec.plan({"x": x, "a": a}) for a in (1, 1.0, True)]
    assert [plan.config.block[0] for plan in plans] == [32, 64, 64]


def test_outputs_are_planned_for_symbolic_extents():
    class Symbol(int):
        __hash__ = None

    n = Symbol(3)
    made = scale().output_specs({"x": TensorSpec((n, 2), FLOAT32), "a": 1.0})
    assert made["y"].shape[0] is n


def test_digest_is_the_same_in_another_process():
    spec = f"tfi.KernelSpec({SCALE!r}, 'scale<{{x}}>', config=tfi.LaunchConfig(1, 1))"
    program = f"import tenferro_interop as tfi; print({spec}.digest)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == KernelSpec(SCALE, "scale<{x}>", config=LaunchConfig(1, 1)).digest
    assert KernelSpec(SCALE, "scale<float>", config=LaunchConfig(1, 1)).digest != done.stdout.strip()


@pytest.mark.parametrize(
    ("changes", "argument", "actual"),
    [
        ({"outputs": {"z": "x"}}, "outputs", ["z"]),
        ({"outputs": {"x": "x"}}, "outputs", ["x"]),
        ({"values": {"y": lambda x: 1}}, "values", ["y"]),
        ({"outputs": {"y": "n"}}, "outputs['y']", ["n"]),
        ({"outputs": {"y": lambda y: y.shape}}, "outputs['y']", ["y"]),
        ({"values": {"n": lambda m: m.size}}, "values['n']", ["m"]),
        ({"config": lambda q: LaunchConfig(1, 1)}, "config", ["q"]),
    ],
)
def test_rule_about_an_unknown_name_is_refused(changes: dict, argument: str, actual: list[str]):
    with pytest.raises(tfi.ValidationError) as error:
        scale(**changes)
    assert (error.value.op, error.value.argument, error.value.actual) == ("KernelSpec", argument, actual)


def test_unknown_kernel_is_refused_with_those_declared():
    with pytest.raises(tfi.ValidationError, match="signature=") as error:
        KernelSpec(SCALE, "scaled", config=LaunchConfig(1, 1))
    assert error.value.candidates == ["scale"]


def test_placeholder_of_no_parameter_is_refused():
    with pytest.raises(tfi.ValidationError) as error:
        KernelSpec(SCALE, "scale<{q}>", config=LaunchConfig(1, 1))
    assert error.value.actual == "q"


@pytest.mark.parametrize("call", [((), {}), ((1,), {}), ((1, 2, 3), {}), ((1, 2), {"a": 2}), ((1,), {"b": 2})])
def test_call_with_wrong_arguments_is_refused(call: tuple):
    with pytest.raises(tfi.SignatureError) as error:
        scale()(*call[0], **call[1])
    assert error.value.expected == ["x", "a"]


def test_type_without_an_instance_is_refused():
    with pytest.raises(tfi.DTypeError) as error:
        scale()(np.zeros(3, "c8"), 2.0)
    assert error.value.argument == "x"


def test_output_of_unknown_type_is_refused():
    source = 'struct P { float a; }; extern "C" __global__ void k(const float* x, P* y) {}'
    with pytest.raises(tfi.ValidationError) as error:
        KernelSpec(source, "k", outputs={"y": lambda x: x.shape}, config=LaunchConfig(1, 1))
    assert error.value.argument == "outputs['y']"


def test_geometry_rule_must_give_a_launch_config():
    with pytest.raises(tfi.ValidationError) as error:
        scale(config=lambda n: n)(np.zeros(3, "f4"), 2.0)
    assert (error.value.argument, error.value.actual) == ("config", 3)


def test_typedef_that_hides_a_pointer_is_found_by_the_compiler():
    source = 'typedef float* out; extern "C" __global__ void hidden(const float* x, out y) {}'
    spec = KernelSpec(source, "hidden", config=LaunchConfig(1, 1))
    with pytest.raises(tfi.SignatureError, match="signature=") as error:
        spec(np.zeros(1, "f4"), 2.0)
    assert (error.value.expected, error.value.actual) == ("float*", "out y")


def test_signature_says_what_the_text_hides():
    source = 'typedef float* out; extern "C" __global__ void shown(const float* x, out y) { *y = *x; }'
    spec = KernelSpec(
        source, "shown", outputs={"y": "x"}, config=LaunchConfig(1, 1), signature="const float* x, float* y"
    )
    assert spec(np.array([4.5], "f4")).tolist() == [4.5]


def test_call_without_a_tensor_is_refused():
    spec = KernelSpec('extern "C" __global__ void k(int n) {}', "k", config=LaunchConfig(1, 1))
    with pytest.raises(tfi.ValidationError, match="where to run"):
        spec(1)


def test_kernel_of_another_dtype_is_refused_and_the_spec_works_on():
    spec = KernelSpec(BOTH, "both", values={"n": lambda x: x.size}, config=LaunchConfig(1, 1))
    total, count = np.zeros(1, "f4"), np.zeros(1, "i4")
    with pytest.raises(tfi.DTypeError):
        spec(np.zeros(3), total, count)
    spec(np.ones(3, "f4"), total, count)
    assert total.tolist() == [3.0]


def test_plan_depends_on_what_the_rules_look_at():
    assert scale().planned_by == ("x",)
    assert scale(values={"n": lambda a: int(a)}).planned_by == ("x", "a")
    spec = KernelSpec(BOTH, "both", values={"n": lambda x: x.size}, config=LaunchConfig(1, 1))
    assert spec.planned_by == ("x",)
    fixed = KernelSpec(BOTH, "both", config=lambda n: LaunchConfig.flat(n))
    assert fixed.planned_by == ("n",)


def test_output_is_made_like_an_argument_only_where_type_and_shape_are_its():
    assert scale().made_like("y") == "x"
    assert scale(outputs={"y": lambda x: x.shape}).made_like("y") is None
    source = 'extern "C" __global__ void narrow(const double* x, float* y) { *y = *x; }'
    assert KernelSpec(source, "narrow", outputs={"y": "x"}, config=LaunchConfig(1, 1)).made_like("y") is None


def test_parameter_named_by_a_word_of_python_gets_an_underscore():
    source = """template <class T> __global__ void k(const T* in, T* out, int is) { *out = *in + is; }"""
    spec = KernelSpec(source, "k<{in_}>", outputs={"out": "in_"}, config=lambda in_: LaunchConfig(1, 1))
    assert [p.name for p in spec.parameters] == ["in_", "out", "is_"]
    assert spec(np.array([2.5]), is_=2).tolist() == [4.5]
