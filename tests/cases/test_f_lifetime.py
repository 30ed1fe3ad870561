"""Public failure reports, section F: what a launch keeps alive, and for how long (65, 73, 83)."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig
from tenferro_interop.testing import FakeProducer

SOURCE = """
struct Pair { int a; int b; };
struct Large { int a[100]; };
extern "C" __global__ void nothing() {}
extern "C" __global__ void add(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }
extern "C" __global__ void mix(Pair p, float half, Large large, const void* null, int* out) {
  *out = null == nullptr ? p.a + p.b + (int)(2 * half) + large.a[0] + large.a[99] : -1;
}
extern "C" __global__ void waits(volatile int* stage, float* y) {
  stage[0] = 1;
  while (stage[0] != 2) __nanosleep(1000);
  y[0] = 5.0f;
}
"""
FOUR = LaunchConfig(1, 4)
ONE = LaunchConfig(1, 1)


class Calling(FakeProducer):
    """A producer that does something while it is asked to export."""

    def __init__(self, action: Callable[[], Any], **described: Any) -> None:
        super().__init__((4,), **described)
        self.action = action

    def __dlpack__(self, **keywords: object) -> object:
        self.action()
        return super().__dlpack__(**keywords)


def on(device: str, **described: Any) -> dict[str, Any]:
    """Describe memory of four floats on the device; on a GPU it is PyTorch's and stays as long as the process."""
    if device == "cpu":
        return described
    memory = torch.zeros(4, device=device)
    _memory.append(memory)
    return {"data": memory.data_ptr(), "device": (2, 0), **described}


_memory: list[torch.Tensor] = []


@contextmanager
def collecting() -> Iterator[None]:
    """Collect garbage in another thread all the while."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            gc.collect(0)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("version", [None, (1, 3)])
def test_case_065_import_lives_until_all_arguments_are_packed(
    session: tfi.Session, device: str, version: tuple[int, int] | None
):
    add = session.compile_nvrtc(SOURCE).function("add")
    seen: list[list[int]] = []
    first = FakeProducer((4,), **on(device, version=version))
    second = Calling(lambda: (gc.collect(), seen.append(first.deleter_calls)), **on(device))
    session.launch(add, FOUR, [first, second])
    assert seen == [[0]]


def test_case_065_import_is_let_go_once_after_the_launch():
    first, second = FakeProducer((4,)), FakeProducer((4,))
    with tfi.session("cpu") as s:
        s.launch(s.compile_nvrtc(SOURCE).function("add"), FOUR, [first, second])
    assert (first.deleter_calls, second.deleter_calls) == ([1], [1])


@pytest.mark.gpu
def test_case_065_import_lives_until_the_stream_has_passed():
    first, second = FakeProducer((4,), **on("cuda")), FakeProducer((4,), **on("cuda"))
    with tfi.session("cuda") as s:
        s.launch(s.compile_nvrtc(SOURCE).function("add"), FOUR, [first, second])
        assert (first.deleter_calls, second.deleter_calls) == ([0], [0])
        s.synchronize()
        assert (first.deleter_calls, second.deleter_calls) == ([1], [1])


@pytest.mark.gpu
def test_case_065_closing_does_not_let_go_while_the_kernel_runs():
    stage = torch.zeros(1, dtype=torch.int32).pin_memory()
    fake = FakeProducer((4,), **on("cuda"))
    watch = FakeProducer((1,), dtype=(0, 32, 1), data=stage.data_ptr(), device=(13, 0))
    with tfi.session("cuda") as s:
        s.launch(s.compile_nvrtc(SOURCE).function("waits"), ONE, [watch, fake])
    calls = fake.deleter_calls
    stage[0] = 2
    with tfi.session("cuda") as s:
        torch.cuda.synchronize()
        s.synchronize()
    assert (calls, fake.deleter_calls) == ([0], [1])


def test_case_065_refused_launch_lets_go_of_what_it_imported(session: tfi.Session, device: str):
    add = session.compile_nvrtc(SOURCE).function("add")
    first = FakeProducer((4,), **on(device))
    with pytest.raises(tfi.SignatureError):
        session.launch(add, FOUR, [first, None])
    assert first.deleter_calls == [1]


def test_case_065_launch_inside_an_export_keeps_what_the_outer_launch_imported(session: tfi.Session, device: str):
    module = session.compile_nvrtc(SOURCE)
    seen: list[list[int]] = []

    def launch_another() -> None:
        session.launch(module.function("nothing"), ONE, [])
        seen.append(first.deleter_calls)

    first = FakeProducer((4,), **on(device))
    session.launch(module.function("add"), FOUR, [first, Calling(launch_another, **on(device))])
    assert seen == [[0]]


def test_case_065_reference_inside_an_export_keeps_what_the_outer_launch_imported(session: tfi.Session, device: str):
    add = session.compile_nvrtc(SOURCE).function("add")
    seen: list[list[int]] = []

    def make_reference() -> None:
        session.tensor(torch.zeros(4, device=device))
        seen.append(first.deleter_calls)

    first = FakeProducer((4,), **on(device))
    session.launch(add, FOUR, [first, Calling(make_reference, **on(device))])
    assert seen == [[0]]


def test_case_065_reference_holds_its_import(session: tfi.Session, device: str):
    fake = FakeProducer((4,), **on(device))
    ref = session.tensor(fake)
    gc.collect()
    before = fake.deleter_calls
    del ref
    assert (before, fake.deleter_calls) == ([0], [1])


def test_case_065_temporaries_give_the_right_values(session: tfi.Session, device: str):
    add, y = session.compile_nvrtc(SOURCE).function("add"), torch.zeros(4, device=device)
    for _ in range(200):
        session.launch(add, FOUR, [torch.ones(4, device=device), y])
        torch.full((4,), 99.0, device=device)
    assert y.tolist() == [200.0] * 4


def test_case_073_arguments_from_temporaries_under_a_busy_collector(session: tfi.Session, device: str):
    mix = session.compile_nvrtc(SOURCE).function("mix")
    out = torch.zeros(1, dtype=torch.int32, device=device)
    pair = np.dtype([("a", "i4"), ("b", "i4")])
    found = []
    with collecting():
        for i in range(500):
            large = (ctypes.c_int * 100)()
            large[0], large[99] = i, 1
            args = [np.array((i, 2), pair)[()], np.float32(1.5), KernelArg.struct(large), KernelArg.null(), out]
            del large
            session.launch(mix, ONE, args)
            del args
            found.append(out.item())
    assert found == [2 * i + 2 + 3 + 1 for i in range(500)]


def test_case_073_argument_copies_its_bytes_when_it_is_made():
    large = (ctypes.c_int * 4)(1, 2, 3, 4)
    argument = KernelArg.struct(large)
    ctypes.memset(large, 0, ctypes.sizeof(large))
    assert argument.data == np.array([1, 2, 3, 4], np.int32).tobytes()


def test_case_083_list_may_change_while_the_kernel_runs():
    stage, args = np.zeros(1, np.int32), []
    args[:] = [stage, np.zeros(4, np.float32)]
    alive = weakref.ref(args[1])

    def empty_the_list() -> bool:
        while stage[0] != 1:
            pass
        args.clear()
        gc.collect()
        still_there = alive() is not None
        stage[0] = 2
        return still_there

    with ThreadPoolExecutor(1) as pool, tfi.session("cpu") as s:
        waits = s.compile_nvrtc(SOURCE).function("waits")
        pending = pool.submit(empty_the_list)
        s.launch(waits, ONE, args)
        assert pending.result(60)


def test_case_083_list_may_change_while_it_is_packed(session: tfi.Session, device: str):
    add = session.compile_nvrtc(SOURCE).function("add")
    args: list[Any] = []
    args += [Calling(args.clear, **on(device)), FakeProducer((4,), **on(device))]
    session.launch(add, FOUR, args)
    assert args == []
