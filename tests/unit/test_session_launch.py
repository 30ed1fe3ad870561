"""`Session.launch`: what kernels take, and every refusal followed by a launch that works."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig
from tenferro_interop.testing import FakeProducer

SOURCE = """
struct Pair { char a; double b; };
extern "C" __global__ void nothing() {}
extern "C" __global__ void fill(float* x, float value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}
extern "C" __global__ void copy(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
extern "C" __global__ void read_only(const float* x, const float* y) {}
extern "C" __global__ void scalars(bool flag, signed char a, unsigned char b, short c, unsigned short d, int e,
                                   unsigned f, long long g, unsigned long long h, float i, double j, double* out) {
  double values[11] = {(double)flag, (double)a, (double)b, (double)c, (double)d, (double)e,
                       (double)f, (double)g, (double)h, (double)i, j};
  for (int n = 0; n < 11; n++) out[n] = values[n];
}
extern "C" __global__ void pair(Pair p, double* out) { out[0] = p.a; out[1] = p.b; }
extern "C" __global__ void pairs(const Pair* p, double* out) { out[0] = p[1].a; out[1] = p[1].b; }
extern "C" __global__ void add4(float4* x, int n) {
  if (threadIdx.x < n) { float4 v = x[threadIdx.x]; v.x += 1; v.y += 2; v.z += 3; v.w += 4; x[threadIdx.x] = v; }
}
extern "C" __global__ void swap2(float2* x, int n) {
  if (threadIdx.x < n) { float2 v = x[threadIdx.x]; x[threadIdx.x] = make_float2(v.y, v.x); }
}
extern "C" __global__ void bytes(void* p, int n) { if (threadIdx.x < n) ((unsigned char*)p)[threadIdx.x] = 7; }
extern "C" __global__ void first_byte(const void* p, int* out) { out[0] = ((const unsigned char*)p)[0]; }
extern "C" __global__ void is_null(const float* x, int* out) { out[0] = x == nullptr; }
extern "C" __global__ void gather(const float* const* table, float* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = table[threadIdx.x][0];
}
"""
ONE_BLOCK = LaunchConfig(1, 64)


def summing(count: int) -> str:
    """Return a kernel of `count` parameters: where to put the sum, then ints, each weighted with its place."""
    parameters = "".join(f", int a{i}" for i in range(1, count))
    terms = "".join(f" + (long long){i} * a{i}" for i in range(1, count))
    return f'extern "C" __global__ void sum(long long* out{parameters}) {{ out[0] = 0{terms}; }}'


@pytest.fixture
def kernels(session: tfi.Session) -> tfi.Module:
    return session.compile_nvrtc(SOURCE)


def fake_over(x: torch.Tensor, **described: Any) -> FakeProducer:
    """Return a tensor of any description over the memory of another."""
    kind, ordinal = x.__dlpack_device__()
    producer = FakeProducer(**{"shape": (6,), "data": x.data_ptr(), "device": (int(kind), ordinal), **described})
    producer.memory = x
    return producer


# What kernels take


def test_kernel_without_parameters(session: tfi.Session, kernels: tfi.Module):
    session.launch(kernels.function("nothing"), ONE_BLOCK, [])
    session.synchronize()


@pytest.mark.parametrize("count", [1, 2, 40, 41, 200])
def test_any_number_of_arguments(session: tfi.Session, device: str, count: int):
    out = torch.zeros(1, dtype=torch.int64, device=device)
    session.launch(session.compile_nvrtc(summing(count)).function("sum"), LaunchConfig(1, 1), [out, *range(1, count)])
    assert out.item() == sum(i * i for i in range(count))


@pytest.mark.parametrize("pack", [list, tuple, iter])
def test_arguments_in_any_iterable(session: tfi.Session, device: str, kernels: tfi.Module, pack: Callable[[Any], Any]):
    x = torch.zeros(3, device=device)
    session.launch(kernels.function("fill"), ONE_BLOCK, pack([x, 2.0, 3]))
    assert x.tolist() == [2.0] * 3


def test_python_numbers_take_the_declared_width(session: tfi.Session, device: str, kernels: tfi.Module):
    out = torch.zeros(11, dtype=torch.float64, device=device)
    values = [True, -5, 250, -300, 65000, -(2**31), 2**32 - 1, -(2**53), 2**53, 0.5, 0.1]
    session.launch(kernels.function("scalars"), LaunchConfig(1, 1), [*values, out])
    assert out.tolist() == [float(value) for value in values]


def test_ints_are_taken_as_floats(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.zeros(3, device=device)
    session.launch(kernels.function("fill"), ONE_BLOCK, [x, 2, 3])
    assert x.tolist() == [2.0] * 3


@pytest.mark.parametrize("value", [np.float32(2.5), ctypes.c_float(2.5), KernelArg.f32(2.5)])
def test_typed_scalars_of_the_declared_type(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    x = torch.zeros(3, device=device)
    session.launch(kernels.function("fill"), ONE_BLOCK, [x, value, np.int32(3)])
    assert x.tolist() == [2.5] * 3


class CPair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_char), ("b", ctypes.c_double))


ALIGNED = np.dtype([("a", "i1"), ("b", "f8")], align=True)
PACKED = np.dtype([("a", "i1"), ("b", "f8")])


@pytest.mark.parametrize(
    "value",
    [
        CPair(b"\x05", 2.5), np.array((5, 2.5), ALIGNED)[()], KernelArg.struct(np.array((5, 2.5), ALIGNED)),
        np.array((5, 2.5), ALIGNED).tobytes(),
    ],
    ids=["ctypes", "record", "KernelArg", "bytes"],
)  # fmt: skip
def test_struct_by_value(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    out = torch.zeros(2, dtype=torch.float64, device=device)
    session.launch(kernels.function("pair"), LaunchConfig(1, 1), [value, out])
    assert out.tolist() == [5.0, 2.5]


@pytest.mark.parametrize(
    "value",
    [np.array((5, 2.5), PACKED)[()], bytes(9), bytes(17), KernelArg.struct(b"")],
    ids=["packed", "9", "17", "0"],
)
def test_struct_of_another_size_is_refused(session: tfi.Session, device: str, kernels: tfi.Module, value: Any):
    out = torch.zeros(2, dtype=torch.float64, device=device)
    with pytest.raises(tfi.SignatureError, match="must have 16 bytes") as error:
        session.launch(kernels.function("pair"), LaunchConfig(1, 1), [value, out])
    assert (error.value.index, error.value.expected) == (0, 16)


def test_pointer_to_structs_takes_a_reference(session: tfi.Session, device: str, kernels: tfi.Module):
    records = np.zeros(2, ALIGNED)
    records[1] = (5, 2.5)
    out = torch.zeros(2, dtype=torch.float64, device=device)
    session.launch(kernels.function("pairs"), LaunchConfig(1, 1), [session.upload_bytes(records.tobytes()), out])
    assert out.tolist() == [5.0, 2.5]


def test_vector_pointer_takes_a_tensor_of_its_lanes(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.zeros(2, 4, device=device)
    session.launch(kernels.function("add4"), ONE_BLOCK, [x, 2])
    assert x.tolist() == [[1.0, 2.0, 3.0, 4.0]] * 2


def test_two_lane_pointer_takes_complex_numbers(session: tfi.Session, device: str, kernels: tfi.Module):
    z = torch.tensor([1 + 2j, 3 + 4j], dtype=torch.complex64, device=device)
    session.launch(kernels.function("swap2"), ONE_BLOCK, [z, 2])
    assert z.tolist() == [2 + 1j, 4 + 3j]


def test_two_lane_pointer_takes_floats(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.tensor([1.0, 2.0], device=device)
    session.launch(kernels.function("swap2"), ONE_BLOCK, [x, 1])
    assert x.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.complex64, torch.bfloat16, torch.bool])
def test_void_pointer_takes_any_type(session: tfi.Session, device: str, kernels: tfi.Module, dtype: torch.dtype):
    x = torch.ones(1, dtype=dtype, device=device)
    out = torch.zeros(1, dtype=torch.int32, device=device)
    session.launch(kernels.function("first_byte"), LaunchConfig(1, 1), [x, out])
    assert out.item() == x.view(torch.uint8)[0].item()


def test_void_pointer_takes_a_workspace(session: tfi.Session, kernels: tfi.Module):
    span = session.upload_bytes(bytes(8))
    out = session.alloc_output(8, "uint8")
    session.launch(kernels.function("bytes"), ONE_BLOCK, [span, 5])
    session.copy_bytes(session.tensor_mut(out), span)
    assert session.download_tensor(out).tolist() == [7] * 5 + [0] * 3


@pytest.mark.parametrize("null", [KernelArg.null, lambda: torch.zeros(0)])
def test_null_pointer_is_explicit_or_empty(
    session: tfi.Session, device: str, kernels: tfi.Module, null: Callable[[], Any]
):
    pointer = null()
    out = torch.full((1,), 7, dtype=torch.int32, device=device)
    if isinstance(pointer, torch.Tensor):
        pointer = pointer.to(device)
    session.launch(kernels.function("is_null"), LaunchConfig(1, 1), [pointer, out])
    assert out.item() == 1


def test_case_083_pointer_table_is_a_snapshot_and_its_tensors_are_retained(
    session: tfi.Session, device: str, kernels: tfi.Module
):
    tensors = [torch.full((1,), float(i), device=device) for i in range(3)]
    spans = [session.retain_tensor(x) for x in tensors]
    addresses = np.array([span.raw_address() for span in spans], np.uint64)
    table = session.upload_bytes(addresses)
    addresses[:] = 0
    tensors.clear()
    out = torch.zeros(3, device=device)
    session.launch(kernels.function("gather"), ONE_BLOCK, [table, out, 3])
    assert out.tolist() == [0.0, 1.0, 2.0]


# Launches of no threads


def test_launch_of_no_threads_enqueues_nothing(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.zeros(3, device=device)
    before, version = session.launch_count, x._version
    session.launch(kernels.function("fill"), LaunchConfig.flat(0), [x, 2.0, 3])
    assert (x.tolist(), session.launch_count, x._version) == ([0.0] * 3, before, version)


@pytest.mark.parametrize("args", [[], [1.0, 2.0, 3], [None, 2.0, 3], ["x", 2.0, 2**31]])
def test_launch_of_no_threads_checks_its_arguments(session: tfi.Session, kernels: tfi.Module, args: list[Any]):
    with pytest.raises(tfi.SignatureError):
        session.launch(kernels.function("fill"), LaunchConfig.flat(0), args)


def test_launch_of_no_threads_checks_its_geometry(session: tfi.Session, device: str, kernels: tfi.Module):
    with pytest.raises(tfi.ValidationError) as error:
        session.launch(kernels.function("fill"), LaunchConfig.flat(0, 1025), [torch.zeros(1, device=device), 2.0, 1])
    assert error.value.argument == "block"


# Overlap


@pytest.mark.parametrize("args", [lambda x: [x, x], lambda x: [x[:2], x[1:3]]])
def test_arguments_that_are_only_read_may_overlap(
    session: tfi.Session, device: str, kernels: tfi.Module, args: Callable[[torch.Tensor], list[Any]]
):
    session.launch(kernels.function("read_only"), ONE_BLOCK, args(torch.zeros(4, device=device)))


def test_neighbours_do_not_overlap(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.arange(4.0, device=device)
    session.launch(kernels.function("copy"), ONE_BLOCK, [x[:2], x[2:], 2])
    assert x.tolist() == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("at", [0, 2, 4])
def test_empty_view_inside_a_written_tensor_does_not_overlap(
    session: tfi.Session, device: str, kernels: tfi.Module, at: int
):
    x = torch.zeros(4, device=device)
    session.launch(kernels.function("copy"), ONE_BLOCK, [x[at:at], x, 0])


def test_kernel_may_declare_that_its_arguments_alias(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.arange(4.0, device=device)
    session.launch(kernels.function("copy", may_alias=True), ONE_BLOCK, [x, x, 4])
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


# Every refusal, and a launch on the same session afterwards

Build = Callable[[tfi.Session, tfi.Module, str], tuple[Any, Any, Sequence[Any]]]


def filling(*args: Any) -> Build:
    """Launch `fill` with these arguments; a callable makes one for the device."""

    def build(s: tfi.Session, module: tfi.Module, device: str) -> tuple[Any, Any, Sequence[Any]]:
        return module.function("fill"), ONE_BLOCK, [each(s, device) if callable(each) else each for each in args]

    return build


def shaped(config: Any) -> Build:
    """Launch `nothing` with this geometry."""
    return lambda s, module, device: (module.function("nothing"), config, [])


def using(kernel: str, *args: Callable[[tfi.Session, str], Any]) -> Build:
    return lambda s, module, device: (module.function(kernel), ONE_BLOCK, [each(s, device) for each in args])


def zeros(s: tfi.Session, device: str) -> torch.Tensor:
    return torch.zeros(6, device=device)


def fake(**described: Any) -> Callable[[tfi.Session, str], FakeProducer]:
    return lambda s, device: fake_over(torch.zeros(6, device=device), **described)


def misaligned(s: tfi.Session, device: str) -> FakeProducer:
    x = torch.zeros(6, device=device)
    return fake_over(x, data=x.data_ptr() + 1, shape=(5,))


def elsewhere(s: tfi.Session, device: str) -> Any:
    return fake(device=(2, 0))(s, device) if device == "cpu" else np.zeros(6, np.float32)


def closed_module(s: tfi.Session, module: tfi.Module, device: str) -> tuple[Any, Any, Sequence[Any]]:
    other = s.compile_nvrtc(SOURCE)
    function = other.function("nothing")
    other.close()
    return function, ONE_BLOCK, []


def of_another_session(s: tfi.Session, device: str) -> tfi.TensorRef:
    with tfi.session(device) as other:
        return other.tensor_mut(torch.zeros(6, device=device))


def overlapping(s: tfi.Session, module: tfi.Module, device: str) -> tuple[Any, Any, Sequence[Any]]:
    x = torch.zeros(6, device=device)
    return module.function("copy"), ONE_BLOCK, [x[:4], x[3:], 1]


REFUSED: dict[str, tuple[type[tfi.TenferroError], Build]] = {
    "no arguments": (tfi.SignatureError, filling()),
    "too few arguments": (tfi.SignatureError, filling(zeros, 1.0)),
    "too many arguments": (tfi.SignatureError, filling(zeros, 1.0, 6, 0)),
    "float for an int": (tfi.SignatureError, filling(zeros, 1.0, 6.0)),
    "bool for an int": (tfi.SignatureError, filling(zeros, 1.0, True)),
    "int out of range": (tfi.ScalarRangeError, filling(zeros, 1.0, 2**31)),
    "int below range": (tfi.ScalarRangeError, filling(zeros, 1.0, -(2**31) - 1)),
    "float out of range": (tfi.ScalarRangeError, filling(zeros, 1e300, 6)),
    "text for a number": (tfi.SignatureError, filling(zeros, "1.0", 6)),
    "complex for a float": (tfi.SignatureError, filling(zeros, 1j, 6)),
    "scalar of another width": (tfi.SignatureError, filling(zeros, KernelArg.f64(1.0), 6)),
    "NumPy scalar of another width": (tfi.SignatureError, filling(zeros, 1.0, np.int64(6))),
    "struct for a number": (tfi.SignatureError, filling(zeros, 1.0, KernelArg.struct(bytes(4)))),
    "null for a number": (tfi.SignatureError, filling(zeros, 1.0, KernelArg.null())),
    "tensor for a number": (tfi.SignatureError, filling(zeros, zeros, 6)),
    "number for a pointer": (tfi.SignatureError, filling(1.0, 1.0, 6)),
    "address for a pointer": (tfi.SignatureError, filling(2**40, 1.0, 6)),
    "typed address for a pointer": (tfi.SignatureError, filling(KernelArg.u64(2**40), 1.0, 6)),
    "None for a pointer": (tfi.SignatureError, filling(None, 1.0, 6)),
    "bytes for a pointer": (tfi.SignatureError, filling(b"x" * 8, 1.0, 6)),
    "tensor of another type": (
        tfi.DTypeError,
        filling(lambda s, d: torch.zeros(6, dtype=torch.float64, device=d), 1.0, 6),
    ),
    "ints for floats": (tfi.DTypeError, filling(lambda s, d: torch.zeros(6, dtype=torch.int32, device=d), 1.0, 6)),
    "reference of another type": (
        tfi.DTypeError,
        filling(lambda s, d: s.tensor_mut(torch.zeros(6, dtype=torch.int32, device=d)), 1.0, 6),
    ),
    "tensor without raw type": (tfi.DTypeError, filling(fake(dtype=(1, 1, 1)), 1.0, 6)),
    "tensor elsewhere": (tfi.RuntimeStateError, filling(elsewhere, 1.0, 6)),
    "read-only tensor": (tfi.ValidationError, filling(fake(flags=1), 1.0, 6)),
    "read reference": (tfi.SignatureError, filling(lambda s, d: s.tensor(torch.zeros(6, device=d)), 1.0, 6)),
    "strided tensor": (tfi.LayoutError, filling(lambda s, d: torch.zeros(6, device=d)[::2], 1.0, 3)),
    "transposed tensor": (tfi.LayoutError, filling(lambda s, d: torch.zeros(2, 3, device=d).t(), 1.0, 6)),
    "misaligned tensor": (tfi.LayoutError, filling(misaligned, 1.0, 5)),
    "tensor beyond 63 bits": (tfi.LayoutError, filling(fake(shape=(2**62,), strides=(0,)), 1.0, 6)),
    "tensor without memory": (tfi.ValidationError, filling(fake(data=0), 1.0, 6)),
    "part of a vector": (tfi.LayoutError, using("add4", zeros, lambda s, d: 1)),
    "structs without saying so": (tfi.SignatureError, using("pairs", zeros, zeros)),
    "part of a struct": (tfi.LayoutError, using("pairs", lambda s, d: s.tensor(torch.zeros(6, device=d)), zeros)),
    "overlap": (tfi.AliasError, overlapping),
    "the same memory twice": (
        tfi.AliasError,
        lambda s, m, d: (m.function("copy"), ONE_BLOCK, [x := zeros(s, d), x, 6]),
    ),
    "reference of a closed session": (tfi.RuntimeStateError, filling(of_another_session, 1.0, 6)),
    "closed module": (tfi.RuntimeStateError, closed_module),
    "name for a function": (tfi.ValidationError, lambda s, m, d: ("fill", ONE_BLOCK, [])),
    "None for a function": (tfi.ValidationError, lambda s, m, d: (None, ONE_BLOCK, [])),
    "tuple for a config": (tfi.ValidationError, shaped((1, 64))),
    "None for a config": (tfi.ValidationError, shaped(None)),
    "block too large": (tfi.ValidationError, shaped(LaunchConfig(1, 1025))),
    "grid too large": (tfi.ValidationError, shaped(LaunchConfig((1, 65536), 1))),
    "too much shared memory": (tfi.ValidationError, shaped(LaunchConfig(1, 1, 1 << 20))),
    "grid that is no multiple of the cluster": (tfi.ValidationError, shaped(LaunchConfig(3, 1, cluster=(2,)))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_launch_says_so_and_the_next_one_works(
    session: tfi.Session, device: str, kernels: tfi.Module, case: str
):
    cls, build = REFUSED[case]
    function, config, args = build(session, kernels, device)
    before = session.launch_count
    with pytest.raises(cls) as error:
        session.launch(function, config, args)
    assert (type(error.value), error.value.op) == (cls, "launch")
    assert session.launch_count == before
    x = torch.zeros(6, device=device)
    session.launch(kernels.function("fill"), ONE_BLOCK, [x, 2.0, 6])
    assert x.tolist() == [2.0] * 6


def test_refused_launch_changes_no_version_counter(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.zeros(6, device=device)
    before = x._version
    with pytest.raises(tfi.SignatureError):
        session.launch(kernels.function("fill"), ONE_BLOCK, [x, 1.0, "six"])
    assert x._version == before


def test_launch_counts_as_a_write_of_what_it_writes(session: tfi.Session, device: str, kernels: tfi.Module):
    x, y = torch.zeros(6, device=device), torch.zeros(6, device=device)
    before = (x._version, y._version)
    session.launch(kernels.function("copy"), ONE_BLOCK, [x, y, 6])
    assert (x._version, y._version) == (before[0], before[1] + 1)


def test_reference_of_an_open_session_is_refused_in_another(session: tfi.Session, device: str, kernels: tfi.Module):
    with tfi.session(device) as other:
        ref = other.tensor_mut(torch.zeros(6, device=device))
        with pytest.raises(tfi.RuntimeStateError, match="another session"):
            session.launch(kernels.function("fill"), ONE_BLOCK, [ref, 1.0, 6])


def test_workspace_of_another_session_is_refused(session: tfi.Session, device: str, kernels: tfi.Module):
    with tfi.session(device) as other:
        span = other.alloc_bytes(24)
        with pytest.raises(tfi.RuntimeStateError, match="another session"):
            session.launch(kernels.function("fill"), ONE_BLOCK, [span, 1.0, 6])


@pytest.mark.gpu
@pytest.mark.parametrize(("home", "guest"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_function_of_another_device_is_refused_and_the_next_launch_works(home: str, guest: str):
    with tfi.session(home) as first, tfi.session(guest) as second:
        foreign = first.compile_nvrtc(SOURCE).function("nothing")
        with pytest.raises(tfi.RuntimeStateError, match="must be loaded on"):
            second.launch(foreign, ONE_BLOCK, [])
        second.launch(second.compile_nvrtc(SOURCE).function("nothing"), ONE_BLOCK, [])
        second.synchronize()


@pytest.fixture(params=["cluster", "cooperative", "programmatic"])
def mode(request: pytest.FixtureRequest) -> LaunchConfig:
    return LaunchConfig(2, 1, **{request.param: (2,) if request.param == "cluster" else True})


def test_cpu_has_plain_launches_only(mode: LaunchConfig):
    with tfi.session("cpu") as s:
        nothing = s.compile_nvrtc(SOURCE).function("nothing")
        with pytest.raises(tfi.UnsupportedError, match="Use a plain launch") as error:
            s.launch(nothing, mode, [])
        assert error.value.argument == "config"
        s.launch(nothing, ONE_BLOCK, [])


def test_last_launches_are_remembered_oldest_first(session: tfi.Session, device: str, kernels: tfi.Module):
    x = torch.zeros(6, device=device)
    session.launch(kernels.function("nothing"), ONE_BLOCK, [])
    for _ in range(2):
        session.launch(kernels.function("fill"), ONE_BLOCK, [x, 1.0, 6])
    assert [kernel.name for kernel in session.recent_kernels] == ["nothing", "fill", "fill"]


def test_only_the_last_launches_are_remembered(session: tfi.Session, kernels: tfi.Module):
    for _ in range(30):
        session.launch(kernels.function("nothing"), ONE_BLOCK, [])
    assert len(session.recent_kernels) == 8
