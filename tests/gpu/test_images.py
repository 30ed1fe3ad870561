"""Images on a GPU: PTX and CUBIN in, what the driver says about them, and how long they stay loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig, NvrtcOptions
from tenferro_interop._nvrtc import compile_cubin

pytestmark = pytest.mark.gpu

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry add_one(.param .u64 x, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.f32 %f1, [%rd2];
  add.f32 %f2, %f1, 0f3F800000;
  st.global.f32 [%rd2], %f2;
DONE:
  ret;
}
"""
DECLARED = "float* x, unsigned n"
SOURCE = """
struct Pair { char a; double b; };
extern "C" __global__ void add_one(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1.0f; }
extern "C" __global__ void many(const float* x, char c, double d, Pair p, short s) {}
__global__ void mangled(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void waits(volatile int* stage, float* x) { while (*stage == 0) {} x[0] = 5.0f; }
"""
ONE_BLOCK = LaunchConfig(1, 64)


@pytest.fixture
def gpu() -> Iterator[tfi.Session]:
    with tfi.session("cuda") as s:
        yield s


def cubin_of(s: tfi.Session, source: str = SOURCE, arch: str | None = None) -> bytes:
    return compile_cubin(source, NvrtcOptions(), arch=arch or s.runtime.device.arch).image


def require_working(s: tfi.Session, function: tfi.Function) -> None:
    """Launch an `add_one` and compare."""
    x = torch.zeros(4, device="cuda")
    count = KernelArg.u32(4) if function.signature.parameters[1].c_name == "unsigned int" else KernelArg.i32(4)
    s.launch(function, ONE_BLOCK, [s.tensor_mut(x), count])
    assert x.tolist() == [1.0] * 4


def require_clean(s: tfi.Session) -> None:
    """Launch, synchronise and copy as if nothing had happened."""
    require_working(s, s.compile_nvrtc(SOURCE).function("add_one"))
    s.synchronize()


# PTX


@pytest.mark.parametrize(
    "ptx", [PTX, PTX + "\0", PTX.encode(), PTX.encode() + b"\0"], ids=["str", "str0", "bytes", "bytes0"]
)
def test_case_110_ptx_is_loaded_with_and_without_nul(gpu: tfi.Session, ptx: str | bytes):
    require_working(gpu, gpu.load_ptx(ptx).function("add_one", signature=DECLARED))


def test_ptx_with_a_signature_takes_plain_tensors_and_numbers(gpu: tfi.Session):
    x = torch.zeros(4, device="cuda")
    gpu.launch(gpu.load_ptx(PTX).function("add_one", signature=DECLARED), ONE_BLOCK, [x, 3])
    assert x.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_ptx_without_a_signature_takes_typed_arguments(gpu: tfi.Session):
    x = torch.zeros(4, device="cuda")
    gpu.launch(gpu.load_ptx(PTX).function("add_one"), ONE_BLOCK, [gpu.tensor_mut(x), KernelArg.u32(4)])
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("args", [[1], [1, 2, 3]])
def test_ptx_without_a_signature_still_has_a_count(gpu: tfi.Session, args: list[Any]):
    with pytest.raises(tfi.SignatureError) as error:
        gpu.launch(gpu.load_ptx(PTX).function("add_one"), ONE_BLOCK, [KernelArg.u32(value) for value in args])
    assert (error.value.expected, error.value.actual) == (2, len(args))


def test_ptx_without_a_signature_still_has_widths(gpu: tfi.Session):
    x = gpu.tensor_mut(torch.zeros(4, device="cuda"))
    with pytest.raises(tfi.SignatureError) as error:
        gpu.launch(gpu.load_ptx(PTX).function("add_one"), ONE_BLOCK, [x, KernelArg.u64(4)])
    assert (error.value.index, error.value.expected) == (1, 4)


@pytest.mark.parametrize("signature", ["float* x", "float* x, unsigned long long n", "float* x, unsigned n, int m"])
def test_ptx_signature_that_cannot_be_true_is_refused(gpu: tfi.Session, signature: str):
    with pytest.raises(tfi.SignatureError):
        gpu.load_ptx(PTX).function("add_one", signature=signature)


@pytest.mark.parametrize("ptx", [PTX.replace("%f2, %f1", "%q9, %f1"), PTX.replace("ret;", "")[:-3]])
def test_case_109_refused_ptx_has_the_assemblers_log(gpu: tfi.Session, ptx: str):
    with pytest.raises(tfi.BackendError) as error:
        gpu.load_ptx(ptx)
    assert (error.value.op, error.value.name, error.value.code) == ("load_ptx", "CUDA_ERROR_INVALID_PTX", 218)
    assert error.value.log.strip()
    assert error.value.log.strip() in str(error.value)


def test_case_109_text_that_is_no_ptx_is_said_to_be_none(gpu: tfi.Session):
    with pytest.raises(tfi.BackendError, match=r"no `\.version` directive") as error:
        gpu.load_ptx("garbage")
    assert (error.value.op, error.value.name) == ("load_ptx", "CUDA_ERROR_INVALID_IMAGE")


def test_case_109_bad_register_is_in_the_log(gpu: tfi.Session):
    with pytest.raises(tfi.BackendError) as error:
        gpu.load_ptx(PTX.replace("%f2, %f1", "%q9, %f1"))
    assert "q9" in error.value.log


# CUBIN


def test_cubin_is_loaded_and_runs(gpu: tfi.Session):
    require_working(gpu, gpu.load_cubin(cubin_of(gpu)).function("add_one"))


def test_cubin_lists_its_kernels(gpu: tfi.Session):
    assert {"add_one", "many", "waits"} <= set(gpu.load_cubin(cubin_of(gpu)).names())


def test_cubin_signature_has_the_drivers_count_and_sizes(gpu: tfi.Session):
    signature = gpu.load_cubin(cubin_of(gpu)).function("many").signature
    assert [parameter.size for parameter in signature.parameters] == [8, 1, 8, 16, 2]
    assert {parameter.kind for parameter in signature.parameters} == {"unknown"}
    assert signature.source == "driver"


@pytest.mark.parametrize(("index", "size"), [(1, 1), (2, 8), (3, 16), (4, 2)])
def test_cubin_argument_of_another_width_is_refused(gpu: tfi.Session, index: int, size: int):
    args: list[Any] = [
        gpu.tensor(torch.zeros(1, device="cuda")), KernelArg.i8(1), KernelArg.f64(1.0), KernelArg.struct(bytes(16)),
        KernelArg.i16(1),
    ]  # fmt: skip
    many = gpu.load_cubin(cubin_of(gpu)).function("many")
    gpu.launch(many, ONE_BLOCK, args)
    args[index] = KernelArg.struct(bytes(size + 1))
    with pytest.raises(tfi.SignatureError) as error:
        gpu.launch(many, ONE_BLOCK, args)
    assert (error.value.index, error.value.expected) == (index, size)


def test_cubin_with_a_signature_takes_plain_tensors_and_numbers(gpu: tfi.Session):
    x = torch.zeros(4, device="cuda")
    add_one = gpu.load_cubin(cubin_of(gpu)).function("add_one", signature="float* x, int n")
    gpu.launch(add_one, ONE_BLOCK, [x, 4])
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("signature", ["float* x", "float* x, long long n", "float* x, int n, int m"])
def test_cubin_signature_that_cannot_be_true_is_refused(gpu: tfi.Session, signature: str):
    with pytest.raises(tfi.SignatureError):
        gpu.load_cubin(cubin_of(gpu)).function("add_one", signature=signature)


def test_cubin_signature_comes_from_a_mangled_name(gpu: tfi.Session):
    x, y = torch.arange(4.0, device="cuda"), torch.zeros(4, device="cuda")
    mangled = gpu.load_cubin(cubin_of(gpu)).function("_Z7mangledPKfPfi")
    assert str(mangled.signature) == "(const float*, float*, int)"
    gpu.launch(mangled, ONE_BLOCK, [x, y, 4])
    assert y.tolist() == x.tolist()


@pytest.mark.parametrize("length", [0, 1, 4, 63, 64, 100])
def test_case_111_cubin_cut_short_is_refused_before_the_driver(gpu: tfi.Session, length: int):
    with pytest.raises(tfi.ValidationError) as error:
        gpu.load_cubin(cubin_of(gpu)[:length])
    assert (error.value.op, error.value.argument) == ("load_cubin", "cubin")


def test_case_111_cubin_that_lacks_its_last_byte_is_refused(gpu: tfi.Session):
    with pytest.raises(tfi.ValidationError, match="must be whole"):
        gpu.load_cubin(cubin_of(gpu)[:-1])


def test_case_111_cubin_for_another_architecture_names_both(gpu: tfi.Session):
    with pytest.raises(tfi.BackendError) as error:
        gpu.load_cubin(cubin_of(gpu, arch="sm_75"))
    assert (error.value.image_arch, error.value.device_arch) == ("sm_75", gpu.runtime.device.arch)
    assert "sm_75" in str(error.value)
    assert gpu.runtime.device.arch in str(error.value)


# Symbols


def test_case_101_symbol_missing_in_a_cubin_shows_the_candidates(gpu: tfi.Session):
    with pytest.raises(tfi.BackendError) as error:
        gpu.load_cubin(cubin_of(gpu)).function("add_two")
    assert (error.value.op, error.value.name) == ("module.function", "CUDA_ERROR_NOT_FOUND")
    assert "'add_one'" in str(error.value)


def test_case_101_symbol_missing_in_ptx_shows_the_candidates(gpu: tfi.Session):
    with pytest.raises(tfi.BackendError) as error:
        gpu.load_ptx(PTX).function("add_two")
    assert error.value.candidates == ["add_one"]


def test_case_101_mangled_kernel_is_among_the_candidates(gpu: tfi.Session):
    with pytest.raises(tfi.BackendError) as error:
        gpu.load_cubin(cubin_of(gpu)).function("mangled")
    assert "_Z7mangledPKfPfi" in error.value.candidates


# Lifetime


def test_case_069_function_keeps_its_module_loaded(gpu: tfi.Session):
    function = gpu.load_cubin(cubin_of(gpu)).function("add_one")
    gc.collect()
    require_working(gpu, function)


def test_case_069_function_is_launched_in_a_later_session():
    with tfi.session("cuda") as s:
        function = s.load_cubin(cubin_of(s)).function("add_one")
    gc.collect()
    with tfi.session("cuda") as s:
        require_working(s, function)


def test_case_069_module_and_function_may_go_while_the_kernel_runs():
    stage, x = torch.zeros(1, dtype=torch.int32).pin_memory(), torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    with tfi.session("cuda") as s:
        waits = s.load_cubin(cubin_of(s)).function("waits", signature="unsigned long long stage, float* x")
        s.launch(waits, LaunchConfig(1, 1), [stage.data_ptr(), s.tensor_mut(x)])
        del waits
        gc.collect()
        stage[0] = 1
        s.synchronize()
        assert s.download_tensor(x).tolist() == [5.0]


@pytest.mark.parametrize("load", [lambda s: s.load_ptx("garbage"), lambda s: s.load_cubin(cubin_of(s, arch="sm_75"))])
def test_case_070_failed_load_leaves_a_clean_session(load: Any):
    with tfi.session("cuda") as s:
        with pytest.raises(tfi.BackendError):
            load(s)
        gc.collect()
        require_clean(s)


@pytest.mark.parametrize("load", [lambda s: s.load_ptx("garbage"), lambda s: s.load_cubin(b"")])
def test_case_070_session_closes_after_a_failed_load(load: Any):
    with tfi.session("cuda") as s, pytest.raises(tfi.TenferroError):
        load(s)
    with tfi.session("cuda") as s:
        require_clean(s)


BIG = 'extern "C" { __device__ char big[4 << 20]; __global__ void touch(int* out) { *out = big[threadIdx.x]; } }'


def free_memory(s: tfi.Session) -> int:
    """Return what the driver has left once everything unreferenced has been unloaded."""
    gc.collect()
    s.synchronize()
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


@pytest.mark.parametrize("is_launched", [False, True])
def test_case_071_loading_and_dropping_keeps_memory_flat(gpu: tfi.Session, is_launched: bool):
    image, out = cubin_of(gpu, BIG), torch.zeros(1, dtype=torch.int32, device="cuda")

    def rounds(count: int) -> None:
        for _ in range(count):
            touch = gpu.load_cubin(image).function("touch", signature="int* out")
            if is_launched:
                gpu.launch(touch, LaunchConfig(1, 1), [out])
                gpu.synchronize()
            del touch

    rounds(20)
    before = free_memory(gpu)
    rounds(200)
    assert before - free_memory(gpu) < 64 << 20  # 200 images that stay would be 800 MiB


def test_closed_module_is_refused_and_its_functions_too(gpu: tfi.Session):
    with gpu.load_cubin(cubin_of(gpu)) as module:
        function = module.function("add_one")
    with pytest.raises(tfi.RuntimeStateError, match="closed"):
        module.function("add_one")
    with pytest.raises(tfi.RuntimeStateError, match="closed"):
        gpu.launch(function, ONE_BLOCK, [])
