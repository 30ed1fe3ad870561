"""Public failure reports, section G: kernel arguments (85 without a GPU is in `test_i_compile.py`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig, NvrtcOptions
from tenferro_interop._launch import scalar_of
from tenferro_interop._nvrtc import compile_cubin

SOURCE = """
struct Half { unsigned short bits; };
struct Pair { char a; double b; };
extern "C" __global__ void narrow(signed char a, int b, unsigned c, long long d, unsigned long long e, int* out) {
  *out = 1;
}
extern "C" __global__ void one_float(float value, double* out) { *out = value; }
extern "C" __global__ void one_double(double value, double* out) { *out = value; }
extern "C" __global__ void three(const float* x, float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void flag(bool value, int* out) { *out = value ? 5 : 6; }
extern "C" __global__ void number(int value, int* out) { *out = value; }
extern "C" __global__ void half_bits(Half value, int* out) { *out = value.bits; }
extern "C" __global__ void complex_float(float2 z, double* out) { out[0] = z.x; out[1] = z.y; }
extern "C" __global__ void complex_double(double2 z, double* out) { out[0] = z.x; out[1] = z.y; }
extern "C" __global__ void pair(Pair p, double* out) { out[0] = p.a; out[1] = p.b; }
"""
ONE = LaunchConfig(1, 1)


@pytest.fixture
def kernels(session: tfi.Session) -> tfi.Module:
    return session.compile_nvrtc(SOURCE)


def of_int(device: str) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)


def of_double(device: str, count: int = 1) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.float64, device=device)


@pytest.mark.parametrize(
    ("make", "value"),
    [(KernelArg.i32, 2**32 + 5), (KernelArg.u32, -1), (KernelArg.i64, 2**63), (KernelArg.u64, -1), (KernelArg.i8, 200)],
)
def test_case_074_too_large_an_int_is_not_narrowed(make: Callable[[int], KernelArg], value: int):
    with pytest.raises(OverflowError) as error:
        make(value)
    assert error.value.actual == value


@pytest.mark.parametrize(("index", "value"), [(0, 200), (1, 2**32 + 5), (2, -1), (3, 2**63), (4, -1)])
def test_case_074_too_large_an_int_is_not_narrowed_to_a_parameter(
    session: tfi.Session, device: str, kernels: tfi.Module, index: int, value: int
):
    args: list[Any] = [0, 0, 0, 0, 0, of_int(device)]
    args[index] = value
    with pytest.raises(OverflowError) as error:
        session.launch(kernels.function("narrow"), ONE, args)
    assert (error.value.index, error.value.actual) == (index, value)


@pytest.mark.parametrize("kernel", ["one_float", "one_double"])
def test_case_075_python_float_takes_the_declared_width(
    session: tfi.Session, device: str, kernels: tfi.Module, kernel: str
):
    out = of_double(device)
    session.launch(kernels.function(kernel), ONE, [2.0, out])
    assert out.item() == 2.0


@pytest.mark.gpu
@pytest.mark.parametrize("value", [2.0, 2, True])
def test_case_075_number_without_a_declared_type_is_refused(value: Any):
    with tfi.session("cuda") as s:
        image = compile_cubin(SOURCE, NvrtcOptions(), arch=s.runtime.device.arch).image
        kernel = s.load_cubin(image).function("one_float")
        with pytest.raises(tfi.SignatureError, match="must say its type") as error:
            s.launch(kernel, ONE, [value, s.tensor_mut(of_double("cuda"))])
    assert error.value.index == 0


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5])
def test_case_077_number_of_arguments_is_checked(session: tfi.Session, device: str, kernels: tfi.Module, count: int):
    x = torch.zeros(4, device=device)
    with pytest.raises(tfi.SignatureError) as error:
        session.launch(kernels.function("three"), ONE, [x, torch.zeros(4, device=device), 4, 4, 4][:count])
    assert (error.value.expected, error.value.actual) == (3, count)
    assert f"takes 3 arguments, got {count}" in str(error.value)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [2, 4])
def test_case_077_number_of_arguments_is_known_from_the_driver(count: int):
    with tfi.session("cuda") as s:
        image = compile_cubin(SOURCE, NvrtcOptions(), arch=s.runtime.device.arch).image
        kernel = s.load_cubin(image).function("three")
        args = [s.tensor(torch.zeros(4, device="cuda")), s.alloc_bytes(16), KernelArg.i32(4), KernelArg.i32(4)]
        with pytest.raises(tfi.SignatureError) as error:
            s.launch(kernel, ONE, args[:count])
    assert (error.value.expected, error.value.actual) == (3, count)


@pytest.mark.parametrize("value", [True, np.bool_(True), ctypes.c_bool(True), KernelArg.bool_(True)])
def test_case_078_every_bool_is_one_byte(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    out = of_int(device)
    session.launch(kernels.function("flag"), ONE, [value, out])
    assert out.item() == 5


@pytest.mark.parametrize("value", [False, np.bool_(False), ctypes.c_bool(False), KernelArg.bool_(False)])
def test_case_078_every_false_is_false(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    out = of_int(device)
    session.launch(kernels.function("flag"), ONE, [value, out])
    assert out.item() == 6


@pytest.mark.parametrize("value", [True, np.bool_(True), ctypes.c_bool(True), KernelArg.bool_(True)])
def test_case_078_bool_is_no_int(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    with pytest.raises(tfi.SignatureError):
        session.launch(kernels.function("number"), ONE, [value, of_int(device)])


@pytest.mark.parametrize("value", [1, 1.0, np.int32(1)])
def test_case_078_number_is_no_bool(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    with pytest.raises(tfi.SignatureError):
        session.launch(kernels.function("flag"), ONE, [value, of_int(device)])


@pytest.mark.parametrize("value", [np.float16(3.5), KernelArg.f16(3.5)])
def test_case_079_half_is_copied_bit_by_bit(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    out = of_int(device)
    session.launch(kernels.function("half_bits"), ONE, [value, out])
    assert out.item() == 0x4300


def test_case_079_typed_form_of_a_numpy_half():
    assert scalar_of(np.float16(3.5)).data.hex() == "0043"


@pytest.mark.parametrize(
    ("kernel", "value"),
    [
        ("complex_float", np.complex64(1 + 2j)), ("complex_float", KernelArg.c64(1 + 2j)),
        ("complex_double", np.complex128(1 + 2j)), ("complex_double", KernelArg.c128(1 + 2j)),
    ],
)  # fmt: skip
def test_case_081_typed_complex_scalar(session: tfi.Session, device: str, kernels: tfi.Module, kernel: str, value: Any):
    out = of_double(device, 2)
    session.launch(kernels.function(kernel), ONE, [value, out])
    assert out.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("kernel", "value"), [("complex_float", np.complex128(1j)), ("complex_double", np.complex64(1j))]
)
def test_case_081_complex_scalar_of_another_width_is_refused(
    session: tfi.Session, device: str, kernels: tfi.Module, kernel: str, value: Any
):
    with pytest.raises(tfi.SignatureError):
        session.launch(kernels.function(kernel), ONE, [value, of_double(device, 2)])


@pytest.mark.parametrize("kernel", ["complex_float", "complex_double", "one_float"])
def test_case_081_python_complex_is_refused(session: tfi.Session, device: str, kernels: tfi.Module, kernel: str):
    with pytest.raises(tfi.SignatureError, match="complex"):
        session.launch(kernels.function(kernel), ONE, [1 + 2j, of_double(device, 2)])


def test_case_082_aligned_record_is_passed_as_it_is(session: tfi.Session, device: str, kernels: tfi.Module):
    record = np.array((5, 2.5), np.dtype([("a", "i1"), ("b", "f8")], align=True))[()]
    out = of_double(device, 2)
    session.launch(kernels.function("pair"), ONE, [record, out])
    assert out.tolist() == [5.0, 2.5]


def test_case_082_packed_record_is_refused(session: tfi.Session, device: str, kernels: tfi.Module):
    record = np.array((5, 2.5), np.dtype([("a", "i1"), ("b", "f8")]))[()]
    with pytest.raises(tfi.SignatureError) as error:
        session.launch(kernels.function("pair"), ONE, [record, of_double(device, 2)])
    assert (error.value.expected, "got 9" in str(error.value)) == (16, True)


@pytest.mark.parametrize("nbytes", [5000, 32752])
def test_case_085_large_struct_reaches_the_kernel(session: tfi.Session, device: str, nbytes: int):
    source = f"""
      struct Large {{ unsigned char bytes[{nbytes}]; }};
      extern "C" __global__ void last(Large value, int* out) {{ *out = value.bytes[{nbytes - 1}]; }}
    """
    out = of_int(device)
    session.launch(session.compile_nvrtc(source).function("last"), ONE, [bytes(nbytes - 1) + b"\x07", out])
    assert out.item() == 7


@pytest.mark.gpu
def test_case_085_struct_beyond_the_limit_shows_the_compilers_text():
    source = """
      struct Large { unsigned char bytes[32765]; };
      extern "C" __global__ void last(Large value, int* out) { *out = value.bytes[1]; }
    """
    with tfi.session("cuda") as s, pytest.raises(tfi.CompileError) as error:
        s.compile_nvrtc(source)
    assert error.value.log.strip()


def test_case_086_numpy_scalar_is_no_tensor(session: tfi.Session):
    with pytest.raises(TypeError, match="A scalar is passed as a number"):
        session.tensor(np.float32(3))


def test_case_086_zero_dimensional_array_is_no_number(session: tfi.Session, device: str, kernels: tfi.Module):
    with pytest.raises(TypeError, match=r"x\.item\(\)"):
        session.launch(kernels.function("number"), ONE, [np.array(3), of_int(device)])


@pytest.mark.gpu
def test_case_086_zero_dimensional_array_is_never_a_host_pointer():
    with tfi.session("cuda") as s, pytest.raises(tfi.RuntimeStateError, match="must be on cuda:0, got cpu"):
        s.launch(s.compile_nvrtc(SOURCE).function("number"), ONE, [3, np.array(3, np.int32)])


@pytest.mark.parametrize("value", [None, 0, 2**40, "x", object(), KernelArg.i64(0), KernelArg.u64(2**40), b"x" * 8])
def test_case_087_only_memory_and_explicit_null_are_pointers(session: tfi.Session, kernels: tfi.Module, value: Any):
    with pytest.raises(tfi.SignatureError):
        session.launch(kernels.function("number"), ONE, [3, value])


def test_case_087_null_is_explicit(session: tfi.Session, device: str):
    source = 'extern "C" __global__ void is_null(const float* x, int* out) { *out = x == nullptr; }'
    out = of_int(device)
    session.launch(session.compile_nvrtc(source).function("is_null"), ONE, [KernelArg.null(), out])
    assert out.item() == 1
