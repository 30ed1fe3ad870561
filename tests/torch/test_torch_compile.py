"""Operators under `torch.compile`, `make_fx` and the caches behind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support import in_subprocess
from torch.fx.experimental.proxy_tensor import make_fx
from torch_operators import axpy, constant, exponential, norm_rows, product, scale, sum_rows

import tenferro_interop as tfi

# PyTorch's own rules for forward mode are scripted when they are first asked for.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning",
    "ignore::DeprecationWarning:torch.*",
    "ignore::DeprecationWarning:triton.*",
)
HERE = str(Path(__file__).parent)


@pytest.fixture(params=["cpu aot_eager", pytest.param("cuda inductor", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return device and backend; inductor needs a C++ compiler on the CPU, which not every machine has."""
    torch._dynamo.reset()
    device, backend = request.param.split()
    return device, backend


def cubes(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of cubes."""
    return sum_rows(product(product(x, x), x))


def test_whole_graph_equals_eager(place: tuple[str, str]):
    device, backend = place

    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y, factor = norm_rows(torch.relu(x), w)
        return scale(y, 3.0) + factor[:, None]

    x, w = torch.rand(4, 6, device=device), torch.rand(6, device=device)
    torch.testing.assert_close(torch.compile(model, backend=backend, fullgraph=True)(x, w), model(x, w))


def test_one_graph_serves_all_shapes(place: tuple[str, str]):
    device, backend = place
    compiled = torch.compile(lambda x: scale(x, 2.0) + 1, backend=backend, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (3, 5, 8):
            x = torch.rand(n, 4, device=device)
            assert torch.equal(compiled(x), 2 * x + 1)


def test_gradients(place: tuple[str, str]):
    device, backend = place
    x = torch.rand(4, dtype=torch.float64, device=device, requires_grad=True)
    torch.compile(cubes, backend=backend, fullgraph=True)(x).backward()
    assert torch.allclose(x.grad, 3 * x * x)


@pytest.mark.parametrize("call", [product, product.overload])
def test_transforms_inside_a_compiled_function(call: Callable, place: tuple[str, str]):
    device, backend = place
    x = torch.rand(3, 4, dtype=torch.float64, device=device)
    f = torch.vmap(torch.func.grad(lambda x: sum_rows(call(call(x, x), x))))
    assert torch.allclose(torch.compile(f, backend=backend, fullgraph=True)(x), 3 * x * x)


def test_output_kept_for_backward_inside_a_compiled_function(place: tuple[str, str]):
    device, backend = place
    x = torch.rand(4, dtype=torch.float64, device=device)
    first = torch.func.grad(lambda x: sum_rows(exponential(x)))
    second = torch.func.grad(lambda x: first(x).sum())
    for found in (first, second):
        assert torch.allclose(torch.compile(found, backend=backend, fullgraph=True)(x), torch.exp(x))


def test_missing_derivative_is_named_inside_a_compiled_function(place: tuple[str, str]):
    device, backend = place
    x = torch.rand(3, device=device, requires_grad=True)
    with pytest.raises(Exception, match=r"tfi_test::constant.*must have a backward"):
        torch.compile(lambda x: constant(x, 2.0).sum(), backend=backend, fullgraph=True)(x).backward()


def test_in_place_and_out_operators(place: tuple[str, str]):
    device, backend = place

    def model(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        axpy(2.0, x, y)
        axpy(1.0, x, kept)
        made = torch.empty_like(x)
        scale.out(y, 10.0, made)
        return y + made

    x, kept = torch.rand(5, device=device), torch.zeros(5, device=device)
    y = torch.compile(model, backend=backend, fullgraph=True)(x, kept)
    torch.testing.assert_close(y, 22 * x)
    assert torch.equal(kept, x)


def test_view_with_an_offset_and_strides(place: tuple[str, str]):
    device, backend = place
    x = torch.rand(6, 5, device=device)
    compiled = torch.compile(lambda x: scale((x + 1)[1:, ::2].t(), 2.0), backend=backend, fullgraph=True)
    y = compiled(x)
    torch.testing.assert_close(y, 2 * (x + 1)[1:, ::2].t())
    assert y.is_contiguous()


def test_autocast_and_inference_mode(place: tuple[str, str]):
    device, backend = place
    x = torch.rand(5, device=device)
    compiled = torch.compile(lambda x: scale(x, 2.0), backend=backend, fullgraph=True)
    with torch.inference_mode():
        assert torch.equal(compiled(x), 2 * x)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.equal(compiled(x), 2 * x)


def test_wrong_type_is_refused_by_name(place: tuple[str, str]):
    device, backend = place
    compiled = torch.compile(lambda x, y: axpy(1.0, x, y), backend=backend, fullgraph=True)
    with pytest.raises(tfi.DTypeError):
        compiled(torch.ones(3, device=device), torch.ones(3, dtype=torch.float64, device=device))


def test_graph_holds_names_and_numbers_only():
    graph = make_fx(lambda x: scale(x, 2.0), tracing_mode="symbolic")(torch.rand(3, 4)).graph
    (call,) = [node for node in graph.nodes if node.target is scale.overload]
    assert [type(arg) for arg in call.args] == [torch.fx.Node, float]


@pytest.mark.gpu
def test_inductor_cache_serves_another_process(tmp_path: Path):
    program = f"""
        import os, sys
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = {str(tmp_path)!r}
        sys.path.insert(0, {HERE!r})
        import torch
        from torch._dynamo.utils import counters
        from torch_operators import scale
        x = torch.arange(3.0, device="cuda")
        y = torch.compile(lambda x: scale(x + 1, 2.0), fullgraph=True)(x)
        hits = counters["inductor"]["fxgraph_cache_hit"], counters["aot_autograd"]["autograd_cache_hit"]
        print(y.tolist(), any(hits))
    """
    first, second = in_subprocess(program), in_subprocess(program)
    assert first.stdout == "[2.0, 4.0, 6.0] False\n", first.stderr
    assert second.stdout == "[2.0, 4.0, 6.0] True\n", second.stderr
