"""`tenferro_interop_torch.op`: schemas, eager calls, kinds of tensors, refusals."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support import in_subprocess
from torch_operators import EVERY, FLAT, axpy, constant, count_all, flat, norm_rows, product, scale

import tenferro_interop as tfi
from tenferro_interop_torch import Op, op


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EVERY)
def test_opcheck_passes(name: str, dtype: torch.dtype, device: str):
    operator, arguments = EVERY[name]
    x = torch.rand(4, 5, dtype=dtype, device=device)
    found = torch.library.opcheck(operator.overload, arguments(x))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", ["scale", "product", "sum_rows"])
def test_opcheck_passes_with_gradients(name: str, device: str):
    operator, arguments = EVERY[name]
    given = arguments(torch.rand(4, 5, dtype=torch.float64, device=device))
    found = torch.library.opcheck(
        operator.overload, [each.clone().requires_grad_() if isinstance(each, torch.Tensor) else each for each in given]
    )
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("operator", "schema"),
    [
        (scale, "tfi_test::scale(Tensor x, Scalar a) -> Tensor"),
        (axpy, "tfi_test::axpy(Scalar a, Tensor x, Tensor(a2!) y) -> ()"),
        (norm_rows, "tfi_test::norm_rows(Tensor x, Tensor w) -> (Tensor, Tensor)"),
        (scale.out, "tfi_test::scale.out(Tensor x, Scalar a, Tensor(a2!) y) -> ()"),
    ],
)
def test_schema_follows_the_declaration(operator: Op, schema: str):
    assert str(operator.overload._schema) == schema
    assert schema in repr(operator)


def test_scalars_have_the_type_of_their_declaration():
    source = (
        'extern "C" __global__ void numbers(const float* x, float* y, int i, unsigned long long u, bool b, double d) '
        "{ *y = *x + i + u + b + d; }"
    )
    spec = tfi.KernelSpec(source, "numbers", outputs={"y": "x"}, config=tfi.LaunchConfig(1, 1))
    numbers = op(spec, "tfi_test::numbers")
    schema = "(Tensor x, SymInt i, SymInt u, bool b, float d) -> Tensor"
    assert str(numbers.overload._schema).endswith(schema)
    x = torch.ones(1)
    assert numbers(x, 1, 2, True, 0.5).item() == numbers.overload(x, 1, 2, True, 0.5).item() == 5.5


def test_parameters_may_have_any_name(device: str):
    source = """
    template <class T> __global__ void named(const T* in, const T* self, const T* s, T* type, T* plan, int session,
                                             float config, int function) {
      *type = *in + *self + *s + session + config + function; *plan = *in;
    }
    """
    named = op(
        tfi.KernelSpec(
            source,
            "named<{in_}>",
            outputs={"type": "self", "plan": lambda s: s.shape},
            values={"function": lambda session: 10 * session},
            config=lambda session: tfi.LaunchConfig(1, session),
        ),
        f"tfi_test::named_{device}",
        vmap=["in_", "self", "s"],
    )
    x = torch.ones(1, device=device)
    expected = [15.5, 1.0]
    assert [y.item() for y in named(x, x, x, 1, config=1.5)] == expected
    assert [y.item() for y in named.overload(x, x, x, 1, 1.5)] == expected
    compiled = torch.compile(lambda x: named(x, x, x, 1, 1.5), backend="aot_eager", fullgraph=True)
    assert [y.item() for y in compiled(x)] == expected
    assert set(torch.library.opcheck(named.overload, (x, x, x, 1, 1.5)).values()) == {"SUCCESS"}


def test_values_are_those_of_torch(device: str):
    x, w = torch.rand(2, 3, 5, dtype=torch.float64, device=device)
    y, factor = norm_rows(x, w[0])
    expected = torch.nn.functional.rms_norm(x, (5,), w[0], 1e-6)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(factor, (x.square().mean(-1) + 1e-6).rsqrt())
    assert torch.equal(product(x, w), x * w)
    assert count_all(x - 0.5).item() == (x > 0.5).sum().item()


def test_in_place_operator_changes_its_argument_and_returns_nothing(device: str):
    x, y = torch.ones(7, device=device), torch.full((7,), 3.0, device=device)
    assert axpy(2.0, x, y) is None
    assert (y.tolist(), x.tolist(), y._version, x._version) == ([5.0] * 7, [1.0] * 7, 1, 0)


def test_in_place_operator_counts_one_write_through_the_dispatcher(device: str):
    x, y = torch.ones(7, device=device), torch.zeros(7, device=device)
    axpy.overload(2.0, x, y)
    assert (y.tolist(), y._version) == ([2.0] * 7, 1)


def test_out_operator_fills_the_tensors_given(device: str):
    x, y = torch.rand(4, 5, device=device), torch.zeros(4, 5, device=device)
    assert scale.out(x, 3.0, y) is None
    assert torch.equal(y, 3 * x)


@pytest.mark.parametrize("call", [scale.out, scale.out.overload])
@pytest.mark.parametrize(
    ("made", "cls"),
    [
        (torch.zeros(4, 4), tfi.ValidationError),
        (torch.zeros(4, 5, dtype=torch.float64), tfi.DTypeError),
        (torch.zeros(5, 4).t(), tfi.LayoutError),
    ],
)
def test_out_operator_refuses_other_tensors(call: Op, made: torch.Tensor, cls: type):
    with pytest.raises(cls, match=r"\by\b"):
        call(torch.rand(4, 5), 3.0, made)
    assert not made.any()


def test_number_that_no_rule_looks_at_makes_no_plan_of_its_own(device: str):
    x = torch.ones(3, device=device)
    assert [scale(x, factor).sum().item() for factor in (1, 2.0, 0.5)] == [3.0, 6.0, 1.5]


def test_dispatch_mode_sees_the_operator():
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        scale(torch.ones(3), 2.0)
    assert scale.overload in seen


def test_keywords_are_the_declared_names(device: str):
    assert scale(a=2.0, x=torch.ones(2, device=device)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["tfi_test::scale", "aten::mul"])
def test_taken_name_is_refused(name: str):
    with pytest.raises(tfi.ValidationError, match="registered already") as error:
        op(flat("product", {"y": "x"}), name)
    assert (error.value.argument, error.value.actual) == ("name", name)


@pytest.mark.parametrize("name", ["scale", "a::b::c", "a::b.c", "a::", "", 3])
def test_name_without_a_library_is_refused(name: object):
    with pytest.raises(tfi.ValidationError) as error:
        op(flat("scale", {"y": "x"}), name)
    assert error.value.argument == "name"


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"vmap": ["q"]}, "vmap"),
        ({"vmap": ["a"]}, "vmap"),
        ({"backward": constant}, "backward"),
        ({"setup_context": print}, "setup_context"),
        ({"setup_context": print, "backward": constant}, "setup_context"),
        ({"schema": "(Tensor x) -> Tensor"}, "schema"),
    ],
)
def test_rule_that_does_not_fit_is_refused_before_anything_is_registered(changes: dict, argument: str):
    with pytest.raises(tfi.ValidationError) as error:
        op(flat("scale", {"y": "x"}), "tfi_test::unfit", **changes)
    assert error.value.argument == argument
    assert not hasattr(torch.ops.tfi_test, "unfit")


def test_kernel_without_a_tensor_is_refused():
    spec = tfi.KernelSpec('extern "C" __global__ void k(int n) {}', "k", config=tfi.LaunchConfig(1, 1))
    with pytest.raises(tfi.ValidationError, match="where to run"):
        op(spec, "tfi_test::nowhere")


def test_struct_argument_is_refused():
    source = 'struct P { int a; }; extern "C" __global__ void k(const float* x, P p) {}'
    with pytest.raises(tfi.UnsupportedError) as error:
        op(tfi.KernelSpec(source, "k", config=tfi.LaunchConfig(1, 1)), "tfi_test::struct")
    assert error.value.argument == "p"


@pytest.mark.parametrize("args", [([1.0], 2.0), (torch.ones(1), "2"), (torch.ones(1),), (torch.ones(1), 2.0, 3.0)])
def test_wrong_kind_of_argument_is_refused_with_the_operator_s_name(args: tuple):
    with pytest.raises((TypeError, RuntimeError), match="tfi_test::scale"):
        scale(*args)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_jit_trace_records_the_operator(device: str):
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        axpy(2.0, x, y)
        return scale(y, 3.0)

    x = torch.ones(3, device=device)
    traced = torch.jit.trace(write, (x, x.clone()), check_trace=False)
    assert traced(10 * x, x.clone()).tolist() == [63.0] * 3


def test_functionalize_takes_a_functional_operator(device: str):
    x = torch.ones(3, device=device)
    assert torch.func.functionalize(lambda x: scale(x, 2.0))(x).tolist() == [2.0] * 3


def test_threads_share_an_operator(device: str):
    def work(n: int) -> bool:
        x = torch.full((n,), float(n), device=device)
        return all(torch.equal(scale(x, float(k)), x * k) for k in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 33)))


def test_more_shapes_than_are_remembered(device: str):
    for n in (*range(300), *range(300)):
        assert constant(torch.ones(n, device=device), 2.0).shape == (n,)


def test_op_is_made_by_op_only():
    with pytest.raises(tfi.RuntimeStateError):
        Op()


def test_module_with_an_operator_can_be_copied_and_pickled(device: str):
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return scale(x, 2.0)

    module = Scaled()
    assert copy.deepcopy(module)(torch.ones(1, device=device)).item() == 2.0
    assert pickle.loads(pickle.dumps(scale)) is scale
    assert copy.deepcopy(scale) is scale


def test_function_under_a_schema(device: str):
    def launch(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x.new_empty(x.shape)
        with tfi.session(like=x) as s:
            kernel = s.compile_nvrtc(FLAT, tfi.NvrtcOptions(name_expressions=("scale<float>",)))
            config = tfi.LaunchConfig.flat(x.numel())
            s.launch(kernel.function("scale<float>"), config, [x.contiguous(), y, float(n), x.numel()])
        return y

    times = op(
        launch,
        f"tfi_test::times_{device}",
        schema="(Tensor x, int n) -> Tensor",
        fake=lambda x, n: x.new_empty(x.shape),
        backward=lambda ctx, grad: (times(grad, ctx.n), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]),
    )
    x = torch.ones(3, device=device, requires_grad=True)
    times(x, 4).sum().backward()
    assert x.grad.tolist() == [4.0] * 3
    assert set(torch.library.opcheck(times.overload, (x, 4)).values()) == {"SUCCESS"}
    assert torch.vmap(times, in_dims=(0, None))(torch.ones(2, 3, device=device), 2).sum().item() == 12.0
    with torch.no_grad():
        assert times(x, 2).tolist() == [2.0] * 3


def test_bypass_can_be_turned_off():
    done = in_subprocess(f"""
        import os, sys
        os.environ["TENFERRO_TORCH_BYPASS"] = "0"
        sys.path.insert(0, {__file__.rpartition("/")[0]!r})
        import torch
        from torch_operators import scale
        with torch.profiler.profile() as profile:
            print(scale(torch.ones(3), a=2.0).tolist())
        print("tfi_test::scale" in {{event.key for event in profile.key_averages()}})
    """)
    assert done.stdout.split("\n")[:2] == ["[2.0, 2.0, 2.0]", "True"], done.stderr
