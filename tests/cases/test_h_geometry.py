"""Public failure reports, section H: launch geometry."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import tenferro_interop as tfi
from tenferro_interop import LaunchConfig

SOURCE = """
extern "C" __global__ void plain() {}
extern "C" __global__ void __launch_bounds__(256) bounded() {}
extern "C" __global__ void dynamic(int* out, int count) {
  extern __shared__ int memory[];
  memory[count - 1] = 7;
  __syncthreads();
  *out = memory[count - 1];
}
extern "C" __global__ void last_block(int* out) {
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) *out = blockIdx.x;
}
"""
STATIC = """
extern "C" __global__ void with_static(int* out) {
  __shared__ int fixed[5120];
  extern __shared__ int memory[];
  fixed[threadIdx.x] = threadIdx.x;
  memory[threadIdx.x] = 2 * threadIdx.x;
  __syncthreads();
  *out = fixed[blockDim.x - 1] + memory[blockDim.x - 1];
}
"""
CLUSTER = """
__device__ unsigned cluster_width() {
  unsigned width;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(width));
  return width;
}
extern "C" __global__ void __cluster_dims__(4, 1, 1) fixed_cluster(int* blocks, int* width) {
  if (threadIdx.x == 0) { atomicAdd(blocks, 1); *width = cluster_width(); }
}
extern "C" __global__ void free_cluster(int* blocks, int* width) {
  if (threadIdx.x == 0) { atomicAdd(blocks, 1); *width = cluster_width(); }
}
"""
GRID_SYNC = """
#include <cooperative_groups.h>
extern "C" __global__ void both_halves(int* first, int* second) {
  if (threadIdx.x == 0) atomicAdd(first, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) atomicAdd(second, *(volatile int*)first);
}
"""
KIB = 1024


@pytest.fixture
def kernels(session: tfi.Session) -> tfi.Module:
    return session.compile_nvrtc(SOURCE)


def of_int(device: str) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)


# 89


@pytest.mark.parametrize("block", [(1025, 1, 1), (32, 32, 2), (1, 1, 65), (1, 1025, 1), (64, 17, 1)])
def test_case_089_block_beyond_the_device_is_refused(
    session: tfi.Session, kernels: tfi.Module, block: tuple[int, int, int]
):
    with pytest.raises(tfi.ValidationError) as error:
        session.launch(kernels.function("plain"), LaunchConfig(1, block), [])
    assert error.value.argument == "block"


@pytest.mark.parametrize("block", [(1024, 1, 1), (1, 1024, 1), (16, 1, 64), (32, 32, 1)])
def test_case_089_largest_blocks_are_launched(session: tfi.Session, kernels: tfi.Module, block: tuple[int, int, int]):
    session.launch(kernels.function("plain"), LaunchConfig(1, block), [])
    session.synchronize()


@pytest.mark.parametrize("block", [(1024, 1, 1), (257, 1, 1), (16, 17, 1)])
def test_case_089_block_beyond_the_kernel_names_the_kernels_maximum(
    session: tfi.Session, kernels: tfi.Module, block: tuple[int, int, int]
):
    bounded = kernels.function("bounded")
    with pytest.raises(tfi.ValidationError, match="the kernel's own maximum") as error:
        session.launch(bounded, LaunchConfig(1, block), [])
    threads = block[0] * block[1] * block[2]
    assert (error.value.argument, error.value.expected, error.value.actual) == ("block", 256, threads)
    assert bounded.limits.max_threads == 256


def test_case_089_block_of_the_kernels_maximum_is_launched(session: tfi.Session, kernels: tfi.Module):
    session.launch(kernels.function("bounded"), LaunchConfig(1, 256), [])
    session.synchronize()


@pytest.mark.gpu
def test_case_089_limits_are_the_functions_own_attributes():
    from cuda.bindings import driver

    with tfi.session("cuda") as s:
        bounded = s.compile_nvrtc(SOURCE).function("bounded")
        status, device = driver.cuDeviceGet(0)
        assert int(status) == 0
        status, maximum = driver.cuKernelGetAttribute(
            driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            driver.CUkernel(bounded.handle_value),
            device,
        )
        assert (int(status), maximum) == (0, bounded.limits.max_threads)


# 90


@pytest.mark.parametrize(
    ("grid", "axis", "limit"),
    [((1, 65536, 1), "y", 65535), ((1, 1, 65536), "z", 65535), ((2**31, 1, 1), "x", 2**31 - 1)],
)
def test_case_090_grid_beyond_the_device_names_axis_and_limit(
    session: tfi.Session, kernels: tfi.Module, grid: tuple[int, int, int], axis: str, limit: int
):
    with pytest.raises(tfi.ValidationError, match=rf"grid\.{axis} must be at most {limit}") as error:
        session.launch(kernels.function("plain"), LaunchConfig(grid, 1), [])
    assert (error.value.argument, error.value.expected, error.value.actual) == ("grid", limit, limit + 1)


@pytest.mark.parametrize("grid", [(1, 65535, 1), (1, 1, 65535), (100000, 1, 1)])
def test_case_090_largest_grids_are_launched(session: tfi.Session, kernels: tfi.Module, grid: tuple[int, int, int]):
    session.launch(kernels.function("plain"), LaunchConfig(grid, 1), [])
    session.synchronize()


@pytest.mark.gpu
def test_case_090_longest_grid_is_launched():
    with tfi.session("cuda") as s:
        out = of_int("cuda")
        s.launch(s.compile_nvrtc(SOURCE).function("last_block"), LaunchConfig(2**31 - 1, 1), [out])
        assert out.item() == 2**31 - 2


# 91 and 93: dynamic shared memory


@pytest.mark.parametrize("nbytes", [4, 48 * KIB, 64 * KIB, 200 * KIB])
def test_case_091_dynamic_shared_memory_is_opted_in(
    session: tfi.Session, device: str, kernels: tfi.Module, nbytes: int
):
    out = of_int(device)
    session.launch(kernels.function("dynamic"), LaunchConfig(1, 1, nbytes), [out, nbytes // 4])
    assert out.item() == 7


def test_case_091_dynamic_shared_memory_up_to_the_limit(session: tfi.Session, device: str, kernels: tfi.Module):
    dynamic, out = kernels.function("dynamic"), of_int(device)
    limit = dynamic.limits.shared_limit
    session.launch(dynamic, LaunchConfig(1, 1, limit), [out, limit // 4])
    assert out.item() == 7


@pytest.mark.parametrize("beyond", [1, 300 * KIB])
def test_case_091_dynamic_shared_memory_beyond_the_limit_is_refused(
    session: tfi.Session, device: str, kernels: tfi.Module, beyond: int
):
    dynamic = kernels.function("dynamic")
    limit = dynamic.limits.shared_limit
    with pytest.raises(tfi.ValidationError, match=f"must be at most {limit} .*got {limit + beyond}") as error:
        session.launch(dynamic, LaunchConfig(1, 1, limit + beyond), [of_int(device), 1])
    assert (error.value.argument, error.value.expected) == ("shared_mem_bytes", limit)


def test_case_093_a_small_launch_does_not_take_the_opt_in_back(session: tfi.Session, device: str, kernels: tfi.Module):
    dynamic = kernels.function("dynamic")
    for nbytes in (100 * KIB, 4, 100 * KIB, 4):
        out = of_int(device)
        session.launch(dynamic, LaunchConfig(1, 1, nbytes), [out, nbytes // 4])
        assert out.item() == 7


def test_case_093_functions_of_one_kernel_share_its_opt_in(session: tfi.Session, device: str):
    functions = [session.compile_nvrtc(SOURCE).function("dynamic") for _ in range(3)]
    for function, nbytes in [*zip(functions, (100 * KIB, 60 * KIB, 80 * KIB), strict=True), (functions[0], 100 * KIB)]:
        out = of_int(device)
        session.launch(function, LaunchConfig(1, 1, nbytes), [out, nbytes // 4])
        assert out.item() == 7


def test_case_093_two_threads_with_different_needs(device: str):
    def work(nbytes: int) -> list[int]:
        seen = []
        with tfi.session(device) as s:
            dynamic = s.compile_nvrtc(SOURCE).function("dynamic")
            for _ in range(100):
                out = of_int(device)
                s.launch(dynamic, LaunchConfig(1, 1, nbytes), [out, nbytes // 4])
                seen.append(out.item())
        return seen

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [100 * KIB, 60 * KIB])) == [[7] * 100] * 2


# 94


@pytest.mark.gpu
def test_case_094_text_has_requested_static_and_available():
    with tfi.session("cuda") as s:
        kernel = s.compile_nvrtc(STATIC).function("with_static")
        device_limit = s.runtime.device.limits.shared_limit
        requested = device_limit - 10 * KIB
        with pytest.raises(tfi.ValidationError) as error:
            s.launch(kernel, LaunchConfig(1, 32, requested), [of_int("cuda")])
    text = str(error.value)
    assert f"at most {device_limit - 20 * KIB} (device limit {device_limit} minus {20 * KIB} static)" in text
    assert f"got {requested}" in text
    assert error.value.argument == "shared_mem_bytes"


@pytest.mark.gpu
def test_case_094_static_and_dynamic_together_up_to_the_limit():
    with tfi.session("cuda") as s:
        kernel, out = s.compile_nvrtc(STATIC).function("with_static"), of_int("cuda")
        s.launch(kernel, LaunchConfig(1, 32, s.runtime.device.limits.shared_limit - 20 * KIB), [out])
        assert out.item() == 31 + 62


def test_case_094_another_cause_is_not_blamed_on_shared_memory(session: tfi.Session, device: str, kernels: tfi.Module):
    dynamic = kernels.function("dynamic")
    session.launch(dynamic, LaunchConfig(1, 1, 64 * KIB), [of_int(device), 1])
    with pytest.raises(tfi.ValidationError) as error:
        session.launch(dynamic, LaunchConfig(1, 1025, 64 * KIB), [of_int(device), 1])
    assert error.value.argument == "block"
    assert "shared" not in str(error.value)


# 95: clusters and grids that wait


@pytest.mark.gpu
@pytest.mark.parametrize("config", [LaunchConfig(6, 32), LaunchConfig(8, 32), LaunchConfig(8, 32, cluster=(2,))])
def test_case_095_kernel_compiled_for_a_cluster_needs_it_in_the_config(config: LaunchConfig):
    with tfi.session("cuda") as s:
        kernel = s.compile_nvrtc(CLUSTER).function("fixed_cluster")
        with pytest.raises(tfi.ValidationError, match=r"clusters of \(4, 1, 1\)") as error:
            s.launch(kernel, config, [of_int("cuda"), of_int("cuda")])
        assert error.value.argument == "config"
        s.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "width"), [("fixed_cluster", 4), ("free_cluster", 4), ("free_cluster", 2)])
def test_case_095_grid_counts_blocks_also_with_clusters(kernel: str, width: int):
    with tfi.session("cuda") as s:
        blocks, found = of_int("cuda"), of_int("cuda")
        function = s.compile_nvrtc(CLUSTER).function(kernel)
        s.launch(function, LaunchConfig(8, 32, cluster=(width,)), [blocks, found])
        assert (blocks.item(), found.item()) == (8, width)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["fixed_cluster", "free_cluster"])
def test_case_095_grid_that_is_no_multiple_of_the_cluster_is_refused(kernel: str):
    with tfi.session("cuda") as s:
        function = s.compile_nvrtc(CLUSTER).function(kernel)
        with pytest.raises(tfi.ValidationError, match="multiple of the cluster") as error:
            s.launch(function, LaunchConfig(6, 32, cluster=(4,)), [of_int("cuda"), of_int("cuda")])
        assert error.value.argument == "grid"


@pytest.mark.gpu
def test_case_095_cluster_beyond_the_hardware_is_an_error_and_the_session_goes_on():
    with tfi.session("cuda") as s:
        function = s.compile_nvrtc(CLUSTER).function("free_cluster")
        with pytest.raises(tfi.TenferroError):
            s.launch(function, LaunchConfig(64, 32, cluster=(64,)), [of_int("cuda"), of_int("cuda")])
        blocks = of_int("cuda")
        s.launch(function, LaunchConfig(3, 32), [blocks, of_int("cuda")])
        assert blocks.item() == 3


@pytest.mark.gpu
def test_case_095_kernel_that_waits_for_its_grid_needs_a_cooperative_launch():
    with tfi.session("cuda") as s:
        kernel = s.compile_nvrtc(GRID_SYNC).function("both_halves")
        with pytest.raises(tfi.ValidationError, match="cooperative=True") as error:
            s.launch(kernel, LaunchConfig(4, 32), [of_int("cuda"), of_int("cuda")])
        assert error.value.argument == "config"
        s.synchronize()


@pytest.mark.gpu
def test_case_095_cooperative_launch_waits_for_its_grid():
    with tfi.session("cuda") as s:
        first, second = of_int("cuda"), of_int("cuda")
        kernel = s.compile_nvrtc(GRID_SYNC).function("both_halves")
        s.launch(kernel, LaunchConfig(8, 32, cooperative=True), [first, second])
        assert (first.item(), second.item()) == (8, 64)


@pytest.mark.gpu
def test_case_095_cooperative_grid_too_large_to_be_resident_is_an_error_and_no_hang():
    with tfi.session("cuda") as s:
        kernel = s.compile_nvrtc(GRID_SYNC).function("both_halves")
        with pytest.raises(tfi.TenferroError):
            s.launch(kernel, LaunchConfig(1 << 20, 1024, cooperative=True), [of_int("cuda"), of_int("cuda")])
        s.synchronize()


@pytest.mark.gpu
def test_case_095_programmatic_launch_runs():
    with tfi.session("cuda") as s:
        blocks = of_int("cuda")
        function = s.compile_nvrtc(CLUSTER).function("free_cluster")
        s.launch(function, LaunchConfig(3, 32, programmatic=True), [blocks, of_int("cuda")])
        assert blocks.item() == 3
