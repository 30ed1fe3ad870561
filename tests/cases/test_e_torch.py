"""Public failure reports, sections E, F and J: PyTorch's streams, captures, memory and threads (53 to 66, 114)."""

from __future__ import annotations

import gc

import pytest
import torch
from support import COPY, in_subprocess

import tenferro_interop as tfi
from tenferro_interop_torch import external_stream

FLAT = tfi.LaunchConfig.flat(1 << 16)
COUNT = 1 << 16
LONG = 50_000_000  # cycles, some 25 ms


class Stream:
    """A stream object of someone else's."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@pytest.mark.gpu
def test_case_053_session_in_a_stream_context_captures_that_stream():
    stream, x, y = torch.cuda.Stream(), torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    totals = []
    with torch.cuda.stream(stream):
        for i in range(1, 51):
            torch.cuda._sleep(LONG // 50)
            x.fill_(float(i))
            with tfi.session(like=x) as s:
                s.launch(s.compile_nvrtc(COPY).function("copy_f32"), FLAT, [x, y, COUNT])
            totals.append(y.sum())
    stream.synchronize()
    assert [total.item() / COUNT for total in totals] == [float(i) for i in range(1, 51)]


@pytest.mark.gpu
def test_case_054_import_and_launch_inside_a_capture():
    x, y = torch.ones(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    with tfi.session(like=x) as s:
        copy = s.compile_nvrtc(COPY).function("copy_f32")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), tfi.session(like=x) as s:
        s.launch(copy, FLAT, [s.tensor(x), y, COUNT])
    before = y.sum().item()
    x.fill_(3.0)
    graph.replay()
    assert (before, y.sum().item()) == (0.0, 3.0 * COUNT)


def test_case_057_reference_to_the_per_thread_default_stream_is_refused():
    with pytest.raises(tfi.UnsupportedError, match="every thread"):
        tfi.StreamRef.from_handle(2)


@pytest.mark.gpu
def test_case_057_session_on_the_per_thread_default_stream_is_refused():
    with pytest.raises(tfi.UnsupportedError, match="every thread"):
        tfi.session("cuda", stream=Stream(2))


@pytest.mark.gpu
def test_case_062_waiting_inside_a_capture_is_refused_and_the_capture_goes_on():
    x, y = torch.ones(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    with tfi.session(like=x) as s:
        copy = s.compile_nvrtc(COPY).function("copy_f32")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), tfi.session(like=x) as s:
        with pytest.raises(tfi.RuntimeStateError):
            s.synchronize()
        with pytest.raises(tfi.RuntimeStateError):
            s.download_tensor(x)
        s.launch(copy, FLAT, [x, y, COUNT])
    graph.replay()
    assert y.sum().item() == COUNT


@pytest.mark.gpu
def test_case_063_loaded_kernel_is_launched_first_inside_a_capture():
    x, y = torch.ones(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    with tfi.session(like=x) as s:
        never_launched = s.compile_nvrtc(COPY + "// case 63").function("copy_f32")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), tfi.session(like=x) as s:
        s.launch(never_launched, FLAT, [x, y, COUNT])
    graph.replay()
    assert y.sum().item() == COUNT


@pytest.mark.gpu
def test_case_063_module_dropped_inside_a_capture_is_unloaded_later():
    x, y = torch.ones(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    with tfi.session(like=x) as s:
        copy = s.compile_nvrtc(COPY).function("copy_f32")
        dropped = s.compile_nvrtc(COPY + "// case 63, dropped").function("copy_f32")
        s.launch(dropped, FLAT, [x, y, COUNT])
    torch.cuda.synchronize()
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), tfi.session(like=x) as s:
        del dropped
        gc.collect()
        s.launch(copy, FLAT, [x, y, COUNT])
    graph.replay()
    assert y.sum().item() == COUNT


@pytest.mark.gpu
def test_case_066_memory_used_on_another_stream_is_not_reused_under_the_kernel():
    x, y = torch.full((COUNT,), 2.0, device="cuda"), torch.zeros(COUNT, device="cuda")
    with tfi.session("cuda") as s:
        copy = s.compile_nvrtc(COPY).function("copy_f32")
        stream = external_stream(s)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)
        s.launch(copy, FLAT, [x, y, COUNT])
        del x
        others = [torch.full((COUNT,), 9.0, device="cuda") for _ in range(8)]
        s.synchronize()
        assert y.unique().tolist() == [2.0]
        del others


@pytest.mark.gpu
def test_case_114_backward_thread_has_a_context_in_a_fresh_process():
    done = in_subprocess("""
        import torch, tenferro_interop as tfi
        from tenferro_interop_torch import op
        source = 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
        spec = tfi.KernelSpec(source, "twice", outputs={"y": "x"}, config=tfi.LaunchConfig(1, 4))
        twice = op(spec, "tfi_case::twice", backward=lambda ctx, grad: twice(grad))
        x, grad = torch.ones(4, device="cuda", requires_grad=True), torch.ones(4, device="cuda")
        twice(x).backward(grad)
        print(x.grad.tolist())
    """)
    assert done.stdout == "[2.0, 2.0, 2.0, 2.0]\n", done.stderr
