"""Public failure reports, section B: shape, strides, pointer."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support import (
    COPY,
    EVERY_USE,
    READING,
    WRITING,
    Use,
    copied,
    launch_reads,
    launch_writes,
    reader,
    reads,
    refused,
    still_launches,
    writer,
    writes,
)

import tenferro_interop as tfi
from tenferro_interop.testing import FakeProducer

ONE = tfi.LaunchConfig(1, 1)
EXTREME = (2**63 - 1, -(2**63), 0, -1, 7)


def numbers(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(math.prod(shape), dtype="f4").reshape(shape)


class Array(np.ndarray[Any, Any]):
    """A subclass that means nothing else by its memory, as `numpy.matrix`."""


def case(name: str, *values: Any) -> Any:
    return pytest.param(*values, id=name)


# 11: empty tensors

TORCH_EMPTY = [
    case("sliced", lambda x: x.new_zeros(0, 3)[:, ::2]),
    case("flat", lambda x: x.new_zeros(0)),
    case("transposed", lambda x: x.new_zeros(3, 0).t()),
    case("expanded", lambda x: x.new_zeros(1, 0).expand(5, 0)),
    case("past the end", lambda x: x.new_zeros(4)[4:]),
]
NUMPY_EMPTY = [
    case("inner", np.zeros((4, 0, 4), "f4")),
    case("reversed", np.zeros((0, 3), "f4")[::-1, ::-2]),
    case("broadcast", np.broadcast_to(np.zeros((1, 0), "f4"), (5, 0))),
]


@pytest.mark.parametrize("make", TORCH_EMPTY)
def test_case_011_empty_torch_tensor_is_contiguous(session: tfi.Session, device: str, make: Any):
    ref = session.tensor(make(torch.zeros(1, device=device)))
    assert (math.prod(ref.shape), ref.nbytes, ref.is_contiguous) == (0, 0, True)


@pytest.mark.parametrize("make", TORCH_EMPTY)
def test_case_011_empty_torch_tensor_may_be_written(session: tfi.Session, device: str, make: Any):
    launch_writes(session, make(torch.zeros(1, device=device)))
    assert still_launches(session)


@pytest.mark.parametrize("x", NUMPY_EMPTY)
def test_case_011_empty_numpy_array_is_contiguous(cpu_session: tfi.Session, x: Any):
    ref = cpu_session.tensor(x)
    assert (ref.shape, ref.nbytes, ref.is_contiguous) == (x.shape, 0, True)


@pytest.mark.parametrize("shape", [(4, 0, 5), (0,), (0, 3)])
def test_case_011_empty_jax_array_is_contiguous(session: tfi.Session, device: str, shape: tuple[int, ...]):
    with jax.default_device(jax.devices(device)[0]):
        ref = session.tensor(jnp.zeros(shape))
    assert (ref.shape, ref.nbytes, ref.is_contiguous) == (shape, 0, True)


@pytest.mark.parametrize("strides", [(3, 2), (0, 0), (-5, 2**62), None])
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_011_empty_needs_neither_memory_nor_particular_strides(cpu_session: tfi.Session, strides: Any, use: Use):
    use(cpu_session, FakeProducer((0, 3), strides=strides, data=0))
    assert still_launches(cpu_session)


def test_case_011_launch_over_nothing_checks_and_runs_nothing(session: tfi.Session, device: str):
    x, y = torch.zeros(0, device=device), torch.zeros(0, device=device)
    session.launch(session.compile_nvrtc(COPY).function("copy_f32"), tfi.LaunchConfig.flat(0), [x, y, 0])
    assert still_launches(session)


# 13: axes of one element


@pytest.mark.parametrize(
    ("make", "n"),
    [
        case("stepped", lambda x: x[::3][:1], 1),
        case("column", lambda x: x.reshape(4, 4)[:, :1].t()[:, :1], 1),
        case("expanded", lambda x: x[:4].reshape(1, 4).expand(1, 4), 4),
        case("strided", lambda x: x.as_strided((1, 4, 1), (99, 1, 77)), 4),
    ],
)
def test_case_013_torch_axis_of_one_may_have_any_stride(session: tfi.Session, device: str, make: Any, n: int):
    x = make(torch.arange(16.0, device=device))
    assert session.tensor(x).is_contiguous
    assert copied(session, x, n) == list(range(n))


@pytest.mark.parametrize(
    "x",
    [
        case("reversed", numbers((1, 10))[::-1]),
        case("subclass", numbers((1, 2)).view(Array)),
        case("broadcast", np.broadcast_to(numbers((1, 4)), (1, 4))),
        case("new axis", numbers((4,))[:, None][:, ::-1]),
    ],
)
def test_case_013_numpy_axis_of_one_may_have_any_stride(cpu_session: tfi.Session, x: Any):
    assert cpu_session.tensor(x).is_contiguous
    assert copied(cpu_session, x, x.size) == list(range(x.size))


@pytest.mark.parametrize("stride", EXTREME)
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_013_stride_of_an_axis_of_one_is_never_used(cpu_session: tfi.Session, stride: int, use: Use):
    use(cpu_session, FakeProducer((1, 4, 1), strides=(stride, 1, stride)))
    assert still_launches(cpu_session)


# 14: no strides

VERSIONS = pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (1, 3), (1, 99)])


@VERSIONS
@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 1, 3), (1,)])
def test_case_014_null_strides_are_row_major(cpu_session: tfi.Session, version: Any, shape: tuple[int, ...]):
    bare = cpu_session.tensor(FakeProducer(shape, strides=None, version=version))
    told = cpu_session.tensor(FakeProducer(shape, version=version))
    assert bare.is_contiguous
    assert (bare.shape, bare.strides, bare.nbytes) == (told.shape, told.strides, told.nbytes)


@VERSIONS
def test_case_014_kernel_reads_through_null_strides(cpu_session: tfi.Session, version: Any):
    values = numbers((2, 3))
    assert copied(cpu_session, FakeProducer((2, 3), strides=None, version=version, data=values.ctypes.data), 6) == [
        0, 1, 2, 3, 4, 5,
    ]  # fmt: skip


def test_case_014_byte_offset_leads_to_the_first_element(cpu_session: tfi.Session):
    values = numbers((8,))
    fake = FakeProducer((4,), data=values.ctypes.data, byte_offset=12)
    assert cpu_session.tensor(fake).raw_address() == values.ctypes.data + 12
    assert copied(cpu_session, fake, 4) == [3, 4, 5, 6]


def test_case_014_jax_callback_buffer_without_strides_is_row_major():
    from jax.experimental.buffer_callback import buffer_callback

    seen: list[Any] = []

    def body(context: Any, out: Any, x: Any) -> None:
        with tfi.session("cpu") as s:
            ref = s.tensor(x)
            seen.append((ref.shape, ref.strides, ref.is_contiguous, copied(s, x, 6)))

    with jax.default_device(jax.devices("cpu")[0]):
        call = buffer_callback(body, jax.ShapeDtypeStruct((2, 3), jnp.float32))
        jax.jit(call)(jnp.arange(6.0).reshape(2, 3)).block_until_ready()
    assert seen == [((2, 3), (3, 1), True, [0, 1, 2, 3, 4, 5])]


# 15: no axes


def assert_one_number(ref: tfi.TensorRef, itemsize: int) -> None:
    assert (ref.shape, ref.strides, ref.ndim, ref.nbytes, ref.is_contiguous) == ((), (), 0, itemsize, True)


def test_case_015_torch_tensor_without_axes_is_one_element(session: tfi.Session, device: str):
    x = torch.tensor(3.0, device=device)
    assert_one_number(session.tensor(x), 4)
    assert copied(session, x, 1) == [3]


def test_case_015_jax_array_without_axes_is_one_element(session: tfi.Session, device: str):
    with jax.default_device(jax.devices(device)[0]):
        x = jnp.asarray(np.float32(3))
    assert_one_number(session.tensor(x), 4)
    assert copied(session, x, 1) == [3]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "c16"])
def test_case_015_numpy_array_without_axes_is_one_element(cpu_session: tfi.Session, dtype: str):
    x = np.array(3, dtype)
    assert_one_number(cpu_session.tensor(x), x.itemsize)


@VERSIONS
@pytest.mark.parametrize("strides", [None, ()])
@pytest.mark.parametrize("shape", [None, ()])
def test_case_015_shape_and_strides_of_no_axes_may_be_null(
    cpu_session: tfi.Session, version: Any, shape: Any, strides: Any
):
    assert_one_number(cpu_session.tensor(FakeProducer(shape, strides=strides, version=version)), 4)


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("ndim", [1, 2, 40, -1, -(2**31)])
def test_case_015_axes_without_a_shape_are_refused(cpu_session: tfi.Session, ndim: int, use: Use):
    fake = FakeProducer(None, strides=None, ndim=ndim)
    with refused(cpu_session, tfi.LayoutError):
        use(cpu_session, fake)
    assert set(fake.deleter_calls) == {1}


# 17: transposed and sliced views

TORCH_VIEWS = [
    case("transposed", lambda d: torch.arange(6.0, device=d).reshape(2, 3).t(), (1, 3)),
    case("columns", lambda d: torch.zeros(6, 6, device=d)[:, :4], (6, 1)),
    case("channels last", lambda d: torch.zeros(2, 4, 4, 3, device=d).permute(0, 3, 1, 2), (48, 1, 12, 3)),
    case("every second", lambda d: torch.zeros(8, device=d)[::2], (2,)),
    case("permuted", lambda d: torch.zeros(2, 3, 4, device=d).permute(2, 0, 1), (1, 12, 4)),
]
NUMPY_VIEWS = [
    case("transposed", numbers((2, 3)).T, (1, 3)),
    case("columns", numbers((6, 6))[:, :4], (6, 1)),
    case("reversed", numbers((6,))[::-1], (-1,)),
    case("Fortran", np.asfortranarray(numbers((2, 3))), (1, 2)),
    case("rows backwards", numbers((2, 3))[::-1], (-3, 1)),
]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(("make", "strides"), TORCH_VIEWS)
def test_case_017_torch_view_is_refused(session: tfi.Session, device: str, make: Any, strides: Any, use: Use):
    with refused(session, tfi.LayoutError, actual=strides):
        use(session, make(device))


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(("x", "strides"), NUMPY_VIEWS)
def test_case_017_numpy_view_is_refused(cpu_session: tfi.Session, x: Any, strides: Any, use: Use):
    with refused(cpu_session, tfi.LayoutError, actual=strides):
        use(cpu_session, x)


@pytest.mark.parametrize("use", [reads, writes])
@pytest.mark.parametrize(("make", "strides"), TORCH_VIEWS)
def test_case_017_torch_strides_are_given_to_who_asks(
    session: tfi.Session, device: str, make: Any, strides: Any, use: Any
):
    ref = use(session, make(device), strided=True)
    assert (ref.strides, ref.is_contiguous) == (strides, False)


@pytest.mark.parametrize("use", [reads, writes])
@pytest.mark.parametrize(("x", "strides"), NUMPY_VIEWS)
def test_case_017_numpy_strides_are_given_to_who_asks(cpu_session: tfi.Session, x: Any, strides: Any, use: Any):
    ref = use(cpu_session, x, strided=True)
    assert (ref.strides, ref.raw_address()) == (strides, x.ctypes.data)


def test_case_017_kernel_reads_through_strides_it_was_handed(session: tfi.Session, device: str):
    source = """
    extern "C" __global__ void pick(const float* x, float* y, int n, long long s0, long long s1) {
      for (int i = 0; i < 6; ++i) y[i] = x[i / 2 * s0 + i % 2 * s1];
    }
    """
    kernel = session.compile_nvrtc(source).function("pick")
    ref = session.tensor(torch.arange(6.0, device=device).reshape(2, 3).t(), strided=True)
    y = session.alloc_output((6,), "float32")
    session.launch(kernel, ONE, [ref, y, 6, *ref.strides])
    assert session.download_tensor(y).tolist() == [0, 3, 1, 4, 2, 5]


def test_case_017_numpy_field_of_a_record_names_the_layout(cpu_session: tfi.Session):
    x = np.zeros(3, "i1,f4")["f1"]
    with refused(cpu_session, tfi.LayoutError, actual=(5,)):
        cpu_session.tensor(x)


# 18: broadcast

TORCH_BROADCAST = [
    case("rows", lambda d: torch.zeros(1, 3, device=d).expand(4, 3)),
    case("one number", lambda d: torch.zeros((), device=d).expand(5)),
    case("columns", lambda d: torch.zeros(4, 1, device=d).expand(4, 3)),
]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("make", TORCH_BROADCAST)
def test_case_018_expanded_tensor_is_refused(session: tfi.Session, device: str, make: Any, use: Use):
    x = make(device)
    with refused(session, tfi.LayoutError, actual=x.stride()):
        use(session, x)


@pytest.mark.parametrize("make", TORCH_BROADCAST)
def test_case_018_expanded_tensor_is_never_writable(session: tfi.Session, device: str, make: Any):
    with refused(session, tfi.LayoutError, op="tensor_mut") as caught:
        session.tensor_mut(make(device), strided=True)
    assert "overlap" in str(caught.value)


@pytest.mark.parametrize("make", TORCH_BROADCAST)
def test_case_018_expanded_tensor_is_readable_through_strides(session: tfi.Session, device: str, make: Any):
    x = make(device)
    assert session.tensor(x, strided=True).strides == x.stride()


def test_case_018_gradient_of_a_sum_is_not_read_flat(session: tfi.Session, device: str):
    seen: list[torch.Tensor] = []
    x = torch.zeros(4, requires_grad=True, device=device)
    (x * 1).register_hook(seen.append)
    y = x * 1
    y.register_hook(seen.append)
    y.sum().backward()
    with refused(session, tfi.LayoutError, actual=(0,)):
        session.tensor(seen[0])


# 19: overlapping windows

WINDOWS = [
    case("windows", (4, 3), (1, 1)),
    case("square", (8, 8), (1, 1)),
    case("half steps", (3, 4), (2, 1)),
    case("same place", (3,), (0,)),
    case("backwards", (4, 3), (-1, 1)),
    case("three axes", (2, 2, 2), (4, 3, 1)),
]


@pytest.mark.parametrize(("shape", "strides"), WINDOWS[:4])
def test_case_019_torch_windows_are_not_dense(session: tfi.Session, device: str, shape: Any, strides: Any):
    x = torch.arange(64.0, device=device).as_strided(shape, strides)
    with refused(session, tfi.LayoutError, actual=strides):
        session.tensor(x)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize(("shape", "strides"), WINDOWS)
def test_case_019_overlapping_elements_are_never_writable(
    cpu_session: tfi.Session, shape: Any, strides: Any, strided: bool
):
    x = np.lib.stride_tricks.as_strided(np.zeros(64, "f4")[32:], shape, [4 * step for step in strides])
    with refused(cpu_session, tfi.LayoutError, op="tensor_mut", actual=strides) as caught:
        cpu_session.tensor_mut(x, strided=strided)
    assert "overlap" in str(caught.value)


def test_case_019_torch_unfold_is_not_writable(session: tfi.Session, device: str):
    with refused(session, tfi.LayoutError, op="tensor_mut", actual=(1, 1)):
        session.tensor_mut(torch.arange(6.0, device=device).unfold(0, 3, 1), strided=True)


@pytest.mark.parametrize(
    ("shape", "strides"), [((4, 3), (3, 1)), ((3, 4), (1, 3)), ((4,), (2,)), ((4,), (-1,)), ((2, 1, 3), (8, 0, 2))]
)
def test_case_019_separate_elements_are_writable(cpu_session: tfi.Session, shape: Any, strides: Any):
    x = np.lib.stride_tricks.as_strided(np.zeros(64, "f4")[32:], shape, [4 * step for step in strides])
    assert cpu_session.tensor_mut(x, strided=True).strides == strides


# 21: alignment

WIDE = "struct alignas(16) Wide { unsigned short h[8]; };"


@pytest.mark.parametrize("start", [1, 3, 7])
def test_case_021_vector_kernel_refuses_an_odd_slice(session: tfi.Session, device: str, start: int):
    x = torch.zeros(64 + start, device=device)[start:]
    with refused(session, tfi.LayoutError, index=0, expected=16):
        session.launch(reader(session, "float4"), ONE, [x])


def test_case_021_vector_kernel_takes_a_slice_on_the_boundary(session: tfi.Session, device: str):
    session.launch(reader(session, "float4"), ONE, [torch.zeros(68, device=device)[4:]])
    assert still_launches(session)


def test_case_021_declared_alignment_is_checked(session: tfi.Session, device: str):
    x = session.tensor(torch.zeros(1025, dtype=torch.bfloat16, device=device)[1:])
    with refused(session, tfi.LayoutError, index=0, expected=16):
        session.launch(reader(session, "Wide", WIDE), ONE, [x])


@pytest.mark.parametrize("build", [reader, writer])
@pytest.mark.parametrize(("dtype", "c_type", "past"), [("f4", "float", 1), ("f8", "double", 4), ("i2", "short", 1)])
def test_case_021_elements_off_their_boundary_are_refused(
    cpu_session: tfi.Session, dtype: str, c_type: str, past: int, build: Any
):
    memory = np.zeros(72, "u1")
    x = memory[(past - memory.ctypes.data) % 8 :][:56].view(dtype)
    with refused(cpu_session, tfi.LayoutError, index=0, expected=x.itemsize):
        cpu_session.launch(build(cpu_session, c_type), ONE, [x])


@pytest.mark.parametrize("use", [reads, writes])
def test_case_021_reference_is_checked_at_launch_too(cpu_session: tfi.Session, use: Any):
    memory = np.zeros(72, "u1")
    ref = use(cpu_session, memory[(1 - memory.ctypes.data) % 4 :][:32].view("f4"))
    with refused(cpu_session, tfi.LayoutError, index=0, expected=4):
        cpu_session.launch(reader(cpu_session, "float"), ONE, [ref])


def test_case_021_vector_kernel_refuses_a_broken_last_vector(session: tfi.Session, device: str):
    with refused(session, tfi.LayoutError, index=0, expected=16, actual=24):
        session.launch(reader(session, "float4"), ONE, [torch.zeros(6, device=device)])


def test_case_021_empty_tensor_has_no_boundary_to_miss(cpu_session: tfi.Session):
    cpu_session.launch(reader(cpu_session, "float4"), ONE, [FakeProducer((0,), data=1)])
    assert still_launches(cpu_session)


# 22: more than 2^31 elements

BIG = 2**31 + 8


@pytest.mark.parametrize("count", [BIG, 2**32, 2**33])
def test_case_022_sizes_are_64_bit(cpu_session: tfi.Session, count: int):
    ref = cpu_session.tensor(np.broadcast_to(np.zeros(1, "i1"), (count,)), strided=True)
    assert (ref.shape, ref.nbytes) == ((count,), count)


@pytest.mark.parametrize("shape", [(2**33,), (2**17, 2**17), (2**20, 2, 2**20)])
def test_case_022_compact_sizes_are_64_bit(cpu_session: tfi.Session, shape: tuple[int, ...]):
    ref = cpu_session.tensor(FakeProducer(shape))
    assert (ref.is_contiguous, ref.nbytes) == (True, 4 * math.prod(shape))


@pytest.mark.parametrize("count", [BIG, 2**32, 2**33])
def test_case_022_count_does_not_fit_an_int(count: int):
    with pytest.raises(OverflowError) as caught:
        tfi.KernelArg.i32(count)
    assert (type(caught.value), caught.value.actual) == (tfi.ScalarRangeError, count)


@pytest.mark.parametrize("count", [BIG, 2**32, 2**33])
def test_case_022_count_does_not_fit_an_int_parameter(session: tfi.Session, count: int):
    x, y = session.alloc_output(1, "float32"), session.alloc_output(1, "float32")
    kernel = session.compile_nvrtc(COPY).function("copy_f32")
    with refused(session, tfi.ScalarRangeError, index=2, expected="int", actual=count):
        session.launch(kernel, ONE, [x, y, count])


@pytest.mark.parametrize(("threads", "blocks"), [(BIG, 8388609), (2**31, 8388608), (2**33 + 1, 33554433)])
def test_case_022_flat_counts_blocks_in_64_bits(threads: int, blocks: int):
    assert tfi.LaunchConfig.flat(threads, 256).grid == (blocks, 1, 1)


def test_case_022_flat_beyond_the_grid_is_refused():
    with pytest.raises(tfi.ValidationError) as caught:
        tfi.LaunchConfig.flat(2**41, 256)
    assert caught.value.argument == "grid"


@pytest.mark.gpu
def test_case_022_kernel_reaches_the_last_of_many_elements():
    source = """
    extern "C" __global__ void fill(signed char* x, long long n) {
      long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
      if (i < n) x[i] = 7;
    }
    """
    x = torch.zeros(BIG, dtype=torch.int8, device="cuda")
    with tfi.session(like=x) as s:
        assert s.tensor(x).nbytes == BIG
        s.launch(s.compile_nvrtc(source).function("fill"), tfi.LaunchConfig.flat(BIG, 256), [x, BIG])
        s.synchronize()
    assert [x[0].item(), x[2**31].item(), x[-1].item()] == [7, 7, 7]


# 23: counts that wrap


@pytest.mark.parametrize(
    "shape", [(2**40, 2**40), (2**62, 4), (2**63,), (2**61, 2), (2**32, 2**32), (-1,), (4, -4), (-2, -2), (2**64, 0)]
)
def test_case_023_unaddressable_output_is_refused(session: tfi.Session, shape: tuple[int, ...]):
    with refused(session, tfi.ValidationError, op="alloc_output", argument="shape"):
        session.alloc_output(shape, "float32")


@pytest.mark.parametrize("like", [np.zeros(1, "f4"), torch.zeros(1)])
def test_case_023_unaddressable_output_of_a_framework_is_refused(cpu_session: tfi.Session, like: Any):
    with refused(cpu_session, tfi.ValidationError, op="alloc_output", argument="shape"):
        cpu_session.alloc_output((2**40, 2**40), "float32", like=like)


@pytest.mark.parametrize("shape", [(1.5,), ("4",), (True,), (None,)])
def test_case_023_extent_must_be_an_int(session: tfi.Session, shape: Any):
    with refused(session, tfi.ValidationError, op="alloc_output", argument="shape"):
        session.alloc_output(shape, "float32")


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(
    "shape", [(2**40, 2**40), (2**62, 4), (2**62,), (2**32, 2**32), (-1,), (-2, -2), (4, -4), (-(2**63),)]
)
def test_case_023_unaddressable_tensor_is_refused(cpu_session: tfi.Session, shape: tuple[int, ...], use: Use):
    fake = FakeProducer(shape, data=64)
    with refused(cpu_session, tfi.LayoutError):
        use(cpu_session, fake)
    assert set(fake.deleter_calls) == {1}


@pytest.mark.parametrize("use", [reads, writes])
@pytest.mark.parametrize("strides", [(2**62,), (-(2**62),), (2**63 - 1,), (-(2**63),), (2**60,)])
def test_case_023_strides_beyond_the_address_space_are_refused(cpu_session: tfi.Session, strides: Any, use: Any):
    fake = FakeProducer((4,), strides=strides)
    with refused(cpu_session, tfi.LayoutError):
        use(cpu_session, fake, strided=True)
    assert fake.deleter_calls == [1]


@pytest.mark.parametrize("use", READING + WRITING)
@pytest.mark.parametrize("data", [0])
def test_case_023_elements_without_memory_are_refused(cpu_session: tfi.Session, data: int, use: Use):
    with refused(cpu_session, tfi.ValidationError):
        use(cpu_session, FakeProducer((4,), data=data))


def test_case_023_freed_storage_is_refused(session: tfi.Session, device: str):
    x = torch.zeros(4, device=device)
    x.untyped_storage().resize_(0)
    with refused(session, tfi.ValidationError):
        launch_reads(session, x)
