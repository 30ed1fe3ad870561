"""Public failure reports, section J: threads and processes (115, 118, 119)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from support import in_subprocess

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig

ONE = LaunchConfig(1, 1)
THREADS = 8
CALLS = 1250  # 10^4 in all


def in_new_thread(work: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_case_115_session_belongs_to_its_thread(session: tfi.Session, device: str):
    x = torch.zeros(1, device=device)
    with pytest.raises(tfi.RuntimeStateError, match="in the thread that opened it"):
        in_new_thread(lambda: session.tensor(x))


def test_case_115_kernel_of_one_thread_is_launched_in_another(session: tfi.Session, device: str):
    source = 'extern "C" __global__ void seven(int* out) { *out = 7; }'
    seven = session.compile_nvrtc(source).function("seven")

    def work() -> int:
        out = torch.zeros(1, dtype=torch.int32, device=device)
        with tfi.session(device) as s:
            s.launch(seven, ONE, [out])
        return out.item()

    assert in_new_thread(work) == 7


def test_case_115_thread_that_ends_with_an_open_session_disturbs_nobody(session: tfi.Session, device: str):
    def leave_it_open() -> None:
        tfi.session(device)

    in_new_thread(leave_it_open)
    session.synchronize()


@pytest.mark.gpu
def test_case_115_thread_with_another_context_current():
    from cuda.bindings import driver

    x = torch.zeros(4, device="cuda")
    source = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 3.0f; }'

    def work() -> bool:
        status, device = driver.cuDeviceGet(0)
        assert int(status) == 0
        status, other = driver.cuCtxCreate(None, 0, device)
        assert int(status) == 0
        try:
            with tfi.session("cuda") as s:
                s.launch(s.compile_nvrtc(source).function("fill"), LaunchConfig(1, 4), [s.tensor_mut(x)])
                s.synchronize()
            status, now = driver.cuCtxGetCurrent()
            return int(now) == int(other)
        finally:
            driver.cuCtxDestroy(other)

    assert in_new_thread(work)
    assert x.tolist() == [3.0] * 4


def test_case_118_child_is_told_that_it_was_forked(device: str):
    done = in_subprocess(f"""
        import os
        import numpy as np
        import tenferro_interop as tfi
        s = tfi.session({device!r})
        if os.fork() == 0:
            try:
                s.tensor(np.zeros(1))
            except tfi.RuntimeStateError as error:
                told = f"pid {{os.getppid()}}" in str(error)
            os._exit(0 if told else 1)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        s.close()
    """)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_case_118_exit_of_the_child_does_not_touch_the_parents_memory(device: str):
    done = in_subprocess(f"""
        import os, sys
        import tenferro_interop as tfi
        s = tfi.session({device!r})
        span = s.upload_bytes(b"abcd")
        out = s.alloc_output(4, "uint8")
        if os.fork() == 0:
            s.close()
            del span, out
            sys.exit(0)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        s.copy_bytes(s.tensor_mut(out), span)
        print(code, bytes(s.download_tensor(out)))
        s.close()
    """)
    assert (done.returncode, done.stdout) == (0, "0 b'abcd'\n"), done.stderr


def kernel_of(index: int) -> tuple[str, list[Any], int]:
    """Return one thread's kernel, its arguments after the output, and what it adds: each thread has other types."""
    c_types = ["int", "unsigned", "long long", "short", "float", "double", "signed char", "struct P"]
    values: list[Any] = [
        index, np.uint32(index), 10 + index, KernelArg.i16(index), float(index), np.float64(index), KernelArg.i8(index),
        KernelArg.struct(np.array((index, 1), np.dtype([("a", "i4"), ("b", "i4")]))),
    ]  # fmt: skip
    kind, value = c_types[index], values[index]
    term = "value.a + value.b" if index == 7 else "(int)value"
    parameters = ", ".join(f"{'struct P' if index == 7 else kind} value{i}" for i in range(index + 1))
    terms = " + ".join(term.replace("value", f"value{i}") for i in range(index + 1))
    source = (
        f'struct P {{ int a, b; }};\nextern "C" __global__ void k{index}(int* out, {parameters}) {{ *out += {terms}; }}'
    )
    each = {2: 12, 7: 8}.get(index, index)
    return source, [value] * (index + 1), each * (index + 1)


def test_case_119_concurrent_launches_with_different_arguments(device: str):
    together = threading.Barrier(THREADS)

    def work(index: int) -> tuple[int, int]:
        source, args, added = kernel_of(index)
        out = torch.zeros(1, dtype=torch.int32, device=device)
        together.wait(60)
        with tfi.session(device) as s:
            for _ in range(CALLS):
                s.launch(s.compile_nvrtc(source).function(f"k{index}"), ONE, [out, *args])
            s.synchronize()
        return out.item(), added * CALLS

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    assert [found for found, _ in results] == [expected for _, expected in results]


def test_case_119_one_kernel_in_all_threads(device: str):
    together = threading.Barrier(THREADS)
    source = 'extern "C" __global__ void add(long long* out, long long value, int n) { *out += value * n; }'

    def work(index: int) -> int:
        out = torch.zeros(1, dtype=torch.int64, device=device)
        together.wait(60)
        with tfi.session(device) as s:
            add = s.compile_nvrtc(source).function("add")
            for i in range(CALLS):
                s.launch(add, ONE, [out, 2**32 * index, i % 3])
            s.synchronize()
        return out.item()

    total = sum(i % 3 for i in range(CALLS))
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [2**32 * index * total for index in range(THREADS)]


def test_case_119_first_use_of_everything_in_threads(device: str):
    done = in_subprocess(f"""
        import threading
        from concurrent.futures import ThreadPoolExecutor
        together = threading.Barrier({THREADS})

        def work(index):
            together.wait(60)
            import torch
            import tenferro_interop as tfi
            out = torch.zeros(1, dtype=torch.int32, device={device!r})
            source = f'extern "C" __global__ void k{{index}}(int* out, int value) {{{{ *out = value; }}}}'
            with tfi.session(like=out) as s:
                kernel = s.compile_nvrtc(source).function(f"k{{index}}")
                s.launch(kernel, tfi.LaunchConfig(1, 1), [out, 100 + index])
                s.synchronize()
            return out.item()

        with ThreadPoolExecutor({THREADS}) as pool:
            print(list(pool.map(work, range({THREADS}))))
    """)
    assert (done.returncode, done.stdout) == (0, f"{[100 + index for index in range(THREADS)]}\n"), done.stderr
