"""Operators and PyTorch's streams: current streams, external streams, CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_operators import axpy, flat, product, scale, sum_rows

import tenferro_interop as tfi
from tenferro_interop_torch import external_stream, op

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*AccumulateGrad.*:UserWarning", "ignore::DeprecationWarning:torch.*", "ignore::DeprecationWarning:triton.*"
)
# Its manager captures an empty graph of its own on purpose.
INDUCTORS_OWN_EMPTY_GRAPH = pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
LONG = 50_000_000  # cycles, some 25 ms
COUNT = 1 << 20


def test_session_on_the_cpu_has_no_stream_for_torch():
    with tfi.session("cpu") as s, pytest.raises(tfi.UnsupportedError):
        external_stream(s)


@pytest.mark.gpu
@pytest.mark.parametrize("call", [scale, scale.overload])
def test_operator_runs_on_the_current_stream(call: Callable):
    scale(torch.ones(COUNT, device="cuda"), 1.0)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(COUNT, device="cuda")
        torch.cuda._sleep(LONG)
        x.fill_(1.0)
        total = call(x, 2.0).sum()
    stream.synchronize()
    assert total.item() == 2.0 * COUNT


@pytest.mark.gpu
def test_memory_of_a_temporary_is_reused_in_the_order_of_the_stream():
    y = torch.zeros(COUNT, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(20):
            x = torch.full((COUNT,), float(i), device="cuda")
            torch.cuda._sleep(LONG // 100)
            axpy(1.0, x, y)
            del x
    stream.synchronize()
    assert y.unique().tolist() == [float(sum(range(20)))]


@pytest.mark.gpu
def test_session_stream_is_a_torch_stream():
    with tfi.session("cuda") as s:
        stream = external_stream(s)
        assert stream.cuda_stream == s.stream.handle
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x = torch.zeros(COUNT, device="cuda")
            torch.cuda._sleep(LONG)
            total = scale(x.fill_(1.0), 2.0).sum()
        s.synchronize()
        assert total.item() == 2.0 * COUNT
        del x, total


@pytest.mark.gpu
def test_session_takes_a_torch_stream():
    stream = torch.cuda.Stream()
    with tfi.session(stream=stream) as s:
        assert s.stream.handle == stream.cuda_stream


@pytest.mark.gpu
def test_graph_replay_equals_eager():
    x = torch.rand(64, 64, device="cuda")
    kept = torch.zeros_like(x)

    def step() -> torch.Tensor:
        y = scale(product(x, x), 3.0)
        axpy(1.0, y, kept)
        return sum_rows(y)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = step()
    for _ in range(3):
        x.copy_(torch.rand_like(x))
        kept.zero_()
        graph.replay()
        torch.testing.assert_close(total, (3 * x * x).sum(-1))
        torch.testing.assert_close(kept, 3 * x * x)


@pytest.mark.gpu
def test_graph_of_forward_and_backward_equals_eager():
    x = torch.rand(64, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(product(x, x).sum(), x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (grad,) = torch.autograd.grad(product(x, x).sum(), x)
    with torch.no_grad():
        x.copy_(torch.rand_like(x))
    graph.replay()
    torch.testing.assert_close(grad, 2 * x)


@pytest.mark.gpu
def test_make_graphed_callables():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return product(x, self.weight.expand_as(x))

    model = Model().cuda()
    weight = model.weight
    graphed = torch.cuda.make_graphed_callables(model, (torch.rand(4, 8, device="cuda", requires_grad=True),))
    x = torch.rand(4, 8, device="cuda", requires_grad=True)
    y = graphed(x)
    y.sum().backward()
    torch.testing.assert_close(y, x * weight)
    torch.testing.assert_close(x.grad, weight.expand_as(x))
    torch.testing.assert_close(weight.grad, x.sum(0))


@pytest.mark.gpu
def test_first_call_inside_a_capture_is_refused_and_the_capture_goes_on():
    source_of_its_own = flat("scale", {"y": "x"}).source + "// loaded by nobody else\n"
    fresh = op(
        tfi.KernelSpec(
            source_of_its_own,
            "scale<{x}>",
            outputs={"y": "x"},
            values={"n": lambda x: x.size},
            config=lambda n: tfi.LaunchConfig.flat(n),
        ),
        "tfi_test::fresh",
    )
    x = torch.ones(3, device="cuda")
    scale(x, 2.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(tfi.RuntimeStateError, match="captur"):
            fresh(x, 2.0)
        y = scale(x, 4.0)
    graph.replay()
    assert y.tolist() == [4.0] * 3


@pytest.mark.gpu
@INDUCTORS_OWN_EMPTY_GRAPH
def test_reduce_overhead_equals_eager():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: sum_rows(scale(x + 1, 2.0)), mode="reduce-overhead", fullgraph=True)
    for _ in range(5):
        x = torch.rand(4, 8, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(x), (2 * (x + 1)).sum(-1))


@pytest.mark.gpu
@INDUCTORS_OWN_EMPTY_GRAPH
def test_reduce_overhead_trains():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: product(x + 1, x).sum(), mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        x = torch.rand(4, 8, device="cuda", requires_grad=True)
        torch.compiler.cudagraph_mark_step_begin()
        compiled(x).backward()
        torch.testing.assert_close(x.grad, 2 * x + 1)
