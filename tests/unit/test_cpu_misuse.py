"""Kernels that go wrong on the CPU device: an error with the block, thread or line, and a session that goes on."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import tenferro_interop as tfi

MISUSE = """
__global__ void wild(float* x, long long offset) { x[offset + threadIdx.x] = 1.f; }
__global__ void divide(int* x, int d) { x[threadIdx.x] = x[threadIdx.x] / d; }
__global__ void two_barriers(int* x) {
  if (threadIdx.x < 5) {
    __syncthreads(); x[0] = 1;
  } else {
    __syncthreads(); x[1] = 2;
  }
}
__global__ void warp_against_barrier(int* x) {
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_down_sync(0xffffffff, x[threadIdx.x], 1);
  else __syncthreads();
}
__global__ void lane_outside_mask(int* x) { x[threadIdx.x] = __shfl_sync(0x0000ffff, x[threadIdx.x], 0); }
__global__ void two_call_sites(int* x) {
  if (threadIdx.x < 16) x[0] = __shfl_sync(0xffffffff, 1, 0);
  else x[1] = __shfl_sync(0xffffffff, 2, 0);
}
__global__ void asserts(int* x) { assert(x[threadIdx.x] == 1); }
__global__ void traps() { if (threadIdx.x == 3) __trap(); }
__device__ int deep(int n, volatile int* x) { int a[64]; for (int i = 0; i < 64; i++) a[i] = n + i; x[0] = a[n & 63];
  return n == 0 ? 0 : deep(n - 1, x) + a[5]; }
__global__ void overflows(int* x, int n) { __syncthreads(); x[1] = deep(n, x); }
__global__ void waits_for_ever(volatile int* x) { while (x[0] == 0) __nanosleep(10); }
__global__ void good(int* x) { x[threadIdx.x] = __syncthreads_count(1); }
__global__ void last_block(unsigned* x) { if (blockIdx.x == gridDim.x - 1) *x = blockIdx.x; }
"""
FAULTS = {
    "wild": ([np.zeros(64, np.float32), 1 << 33], "illegal memory access to 0x"),
    "divide": ([np.zeros(64, np.int32), 0], "integer division by zero in block 0"),
    "two_barriers": (
        [np.zeros(64, np.int32)],
        "divergent __syncthreads: thread 0 waits at line 6 while thread 5 waits at line 8",
    ),
    "warp_against_barrier": (
        [np.zeros(64, np.int32)],
        "thread 0.. waits in a warp operation at line 12; thread 16.. waits in __syncthreads at line 13",
    ),
    "lane_outside_mask": (
        [np.zeros(64, np.int32)],
        "line 15: warp operation executed by lane 16 which is not in its mask 0x0000ffff",
    ),
    "two_call_sites": (
        [np.zeros(64, np.int32)],
        "warp operation mixes call sites: thread 0 at line 17 and thread 16 at line 18",
    ),
    "asserts": ([np.zeros(64, np.int32)], "device-side assert failed: x[threadIdx.x] == 1 at kernel.cu:20"),
    "traps": ([], "__trap executed in block 0"),
    "overflows": ([np.zeros(64, np.int32), 100_000_000], "stack overflow in block 0"),
}


@pytest.fixture
def session():
    with tfi.session("cpu") as opened:
        yield opened


@pytest.fixture
def module(session):
    return session.compile_nvrtc(MISUSE)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_an_error_and_the_session_goes_on(session, module, name: str) -> None:
    args, text = FAULTS[name]
    with pytest.raises(tfi.BackendError) as caught:
        session.launch(module.function(name), tfi.LaunchConfig(1, 64), args)
    assert text in str(caught.value)
    counts = np.zeros(64, np.int32)
    session.launch(module.function("good"), tfi.LaunchConfig(1, 64), [counts])
    assert set(counts) == {64}


def test_fault_on_a_pool_thread_is_an_error(session, module) -> None:
    with pytest.raises(tfi.BackendError, match="illegal memory access"):
        session.launch(module.function("wild"), tfi.LaunchConfig(1000, 64), [np.zeros(64, np.float32), 1 << 33])


def test_timeout_ends_a_kernel_that_waits_for_ever(session, module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENFERRO_CPU_TIMEOUT", "0.1")
    with pytest.raises(tfi.BackendError, match="TENFERRO_CPU_TIMEOUT"):
        session.launch(module.function("waits_for_ever"), tfi.LaunchConfig(1, 4), [np.zeros(1, np.int32)])


def test_grid_of_many_blocks_reaches_the_last(session, module) -> None:
    seen = np.zeros(1, np.uint32)
    session.launch(module.function("last_block"), tfi.LaunchConfig(3_000_001, 1), [seen])
    assert seen[0] == 3_000_000


def test_python_threads_launch_at_once(module) -> None:
    results = []

    def work() -> None:
        counts = np.zeros(64, np.int32)
        with tfi.session("cpu") as own:
            mine = own.compile_nvrtc(MISUSE)
            for _ in range(10):
                own.launch(mine.function("good"), tfi.LaunchConfig(200, 64), [counts])
                with pytest.raises(tfi.BackendError):
                    own.launch(mine.function("traps"), tfi.LaunchConfig(200, 64), [])
        results.append(set(counts))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [{64}] * 4


def test_forked_child_can_launch(session, module) -> None:
    counts = np.zeros(64, np.int32)
    session.launch(module.function("good"), tfi.LaunchConfig(200, 64), [counts])
    child = os.fork()
    if child == 0:
        with tfi.session("cpu") as own:
            own.launch(own.compile_nvrtc(MISUSE).function("good"), tfi.LaunchConfig(200, 64), [counts])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_fault_outside_a_kernel_reaches_faulthandler() -> None:
    program = (
        "import ctypes, faulthandler, numpy as np, tenferro_interop as tfi\n"
        "faulthandler.enable()\n"
        "with tfi.session('cpu') as s:\n"
        "    f = s.compile_nvrtc('__global__ void k(int* x) { *x = 1; }').function('k')\n"
        "    s.launch(f, tfi.LaunchConfig(1, 1), [np.zeros(1, np.int32)])\n"
        "    ctypes.string_at(8)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
