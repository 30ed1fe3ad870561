"""Check mode of the CPU device: out-of-bounds accesses and data races, with argument, thread and line."""

import numpy as np
import pytest

import tenferro_interop as tfi

SOURCE = """
__global__ void one_too_far(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) x[i] = 1.f;
}
__global__ void before_start(const float* x, float* o) { o[threadIdx.x] = x[(int)threadIdx.x - 1]; }
__global__ void past_shared(float* o) {
  extern __shared__ float s[];
  s[threadIdx.x + 1] = 1.f; __syncthreads(); o[threadIdx.x] = s[threadIdx.x];
}
__global__ void missing_barrier(const float* in, float* out) {
  __shared__ float s[64];
  s[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void plain_count(int* c) { *c += 1; }
__global__ void count_by_blocks(int* c) { if (threadIdx.x == 0) *c += 1; }
struct P { int* a; }; __global__ void through_struct(P p) { p.a[threadIdx.x] = threadIdx.x; }
__global__ void atomic_past_end(int* c) { atomicAdd(c + 1, 1); }
"""


@pytest.fixture
def fault():
    """Return a function that launches in check mode and gives the error's text."""
    with tfi.session("cpu") as session:
        module = session.compile_nvrtc(SOURCE, tfi.NvrtcOptions(check=True))

        def launch(name: str, args: list[object], grid: int = 1, shared: int = 0) -> str:
            config = tfi.LaunchConfig(grid, 64, shared_mem_bytes=shared)
            with pytest.raises(tfi.BackendError) as caught:
                session.launch(module.function(name), config, args)
            return str(caught.value)

        yield launch


def test_write_past_an_argument(fault) -> None:
    buffer = np.zeros(200, np.float32)
    text = fault("one_too_far", [buffer[:100], 100], grid=2)
    assert "out-of-bounds write of 4 bytes, 0 bytes past the end of argument 0 (400 bytes): block 1 thread 36" in text
    assert "kernel.cu:3" in text


def test_read_before_an_argument(fault) -> None:
    buffer = np.zeros(200, np.float32)
    text = fault("before_start", [buffer[100:], np.zeros(64, np.float32)])
    assert "out-of-bounds read of 4 bytes, 4 bytes before argument 0 (400 bytes): block 0 thread 0, kernel.cu:5" in text


def test_write_past_dynamic_shared_memory(fault) -> None:
    text = fault("past_shared", [np.zeros(64, np.float32)], shared=256)
    assert "past the end of dynamic shared memory (256 bytes): block 0 thread 63, kernel.cu:8" in text


def test_atomic_past_an_argument_names_the_users_line(fault) -> None:
    text = fault("atomic_past_end", [np.zeros(4, np.int32)[:1]])
    assert "out-of-bounds atomic of 4 bytes, 0 bytes past the end of argument 0" in text
    assert "kernel.cu:18" in text


def test_missing_barrier_is_a_race(fault) -> None:
    text = fault("missing_barrier", [np.zeros(64, np.float32), np.zeros(64, np.float32)])
    assert "data race (write after read) on static shared memory" in text
    assert "thread 31 (kernel.cu:13) and block 0 thread 32 (kernel.cu:12)" in text


def test_unsynchronised_count_is_a_race(fault) -> None:
    text = fault("plain_count", [np.zeros(1, np.int32)])
    assert "on argument 0, byte offset 0: block 0 thread 0" in text


def test_blocks_race_with_each_other(fault) -> None:
    text = fault("count_by_blocks", [np.zeros(1, np.int32)], grid=2)
    assert "block 0 thread 0" in text
    assert "block 1 thread 0" in text


def test_pointers_inside_a_structure_are_trusted() -> None:
    array = np.zeros(64, np.int32)
    with tfi.session("cpu") as session:
        function = session.compile_nvrtc(SOURCE, tfi.NvrtcOptions(check=True)).function("through_struct")
        pointer = tfi.KernelArg.struct(array.ctypes.data.to_bytes(8, "little"))
        session.launch(function, tfi.LaunchConfig(1, 64), [pointer])
    np.testing.assert_array_equal(array, np.arange(64))
