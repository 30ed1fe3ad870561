"""Public failure reports, section A: element types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from support import EVERY_USE, READING, Use, launch_reads, reader, refused, still_launches

import tenferro_interop as tfi
from tenferro_interop.testing import FakeProducer

ONE = tfi.LaunchConfig(1, 1)
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def on_jax(device: str, values: Any, dtype: Any) -> jax.Array:
    with jax.default_device(jax.devices(device)[0]):
        return jnp.asarray(values, dtype=dtype)


def make(framework: str, device: str, dtype: str) -> Any:
    if framework == "torch":
        return torch.zeros(3, dtype=getattr(torch, dtype), device=device)
    if framework == "jax":
        return on_jax(device, [0, 0, 0], dtype)
    return np.zeros(3, dtype)


FRAMEWORKS = pytest.mark.parametrize("framework", ["torch", "jax"])


# 1: bool


@FRAMEWORKS
def test_case_001_bool_is_one_byte_of_code_6(session: tfi.Session, device: str, framework: str):
    ref = session.tensor(make(framework, device, "bool"))
    assert (ref.dtype, ref.dtype.name, ref.nbytes) == (tfi.DType(6, 8, 1), "bool", 3)


def test_case_001_numpy_bool_is_one_byte_of_code_6(cpu_session: tfi.Session):
    ref = cpu_session.tensor(np.zeros(3, bool))
    assert (ref.dtype, ref.nbytes) == (tfi.DType(6, 8, 1), 3)


@FRAMEWORKS
def test_case_001_bool_tensor_fits_bool_pointer(session: tfi.Session, device: str, framework: str):
    session.launch(reader(session, "bool"), ONE, [make(framework, device, "bool")])
    assert still_launches(session)


@pytest.mark.parametrize("c_type", ["unsigned char", "signed char", "char"])
@FRAMEWORKS
def test_case_001_bool_tensor_is_not_an_integer(session: tfi.Session, device: str, framework: str, c_type: str):
    with refused(session, tfi.DTypeError, index=0, actual="bool"):
        session.launch(reader(session, c_type), ONE, [make(framework, device, "bool")])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@FRAMEWORKS
def test_case_001_integer_tensor_is_not_bool(session: tfi.Session, device: str, framework: str, dtype: str):
    with refused(session, tfi.DTypeError, index=0, expected="bool", actual=dtype):
        session.launch(reader(session, "bool"), ONE, [make(framework, device, dtype)])


# 2: widths below a byte

SUB_BYTE = [(1, 1, 1), (6, 1, 1), (6, 1, 8), (1, 1, 8), (0, 1, 3), (0, 4, 1), (1, 4, 1), (0, 4, 2), (2, 4, 1)]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", SUB_BYTE)
def test_case_002_sub_byte_type_is_refused(cpu_session: tfi.Session, dtype: tuple[int, int, int], use: Use):
    with refused(cpu_session, tfi.DTypeError, actual=dtype):
        use(cpu_session, FakeProducer((8,), dtype=dtype))


@pytest.mark.parametrize("dtype", SUB_BYTE)
def test_case_002_text_tells_code_bits_and_lanes(cpu_session: tfi.Session, dtype: tuple[int, int, int]):
    with pytest.raises(tfi.DTypeError, match="code={} bits={} lanes={}".format(*dtype)):
        cpu_session.tensor(FakeProducer((8,), dtype=dtype))


@pytest.mark.parametrize("version", [None, (1, 3)])
def test_case_002_refused_type_is_given_back_once(cpu_session: tfi.Session, version: tuple[int, int] | None):
    fake = FakeProducer((8,), dtype=(1, 1, 1), version=version)
    with refused(cpu_session, tfi.DTypeError):
        cpu_session.tensor(fake)
    assert fake.deleter_calls == [1]


# 3: bfloat16


@FRAMEWORKS
def test_case_003_bfloat16_is_two_bytes(session: tfi.Session, device: str, framework: str):
    ref = session.tensor(make(framework, device, "bfloat16"))
    assert (ref.dtype, ref.nbytes) == (tfi.DType(4, 16, 1), 6)


@FRAMEWORKS
def test_case_003_bfloat16_fits_its_pointer(session: tfi.Session, device: str, framework: str):
    kernel = reader(session, "__nv_bfloat16", "#include <cuda_bf16.h>")
    session.launch(kernel, ONE, [make(framework, device, "bfloat16")])
    assert still_launches(session)


@pytest.mark.parametrize("c_type", ["unsigned short", "float"])
@FRAMEWORKS
def test_case_003_bfloat16_fits_no_other_pointer(session: tfi.Session, device: str, framework: str, c_type: str):
    with refused(session, tfi.DTypeError, index=0, actual="bfloat16"):
        session.launch(reader(session, c_type), ONE, [make(framework, device, "bfloat16")])


@pytest.mark.parametrize("use", READING)
def test_case_003_numpy_extension_type_is_refused_by_name(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.DTypeError, actual="bfloat16"):
        use(cpu_session, np.zeros(3, ml_dtypes.bfloat16))


# 5: four-bit floats


def test_case_005_torch_fp4_pairs_are_one_byte_each(session: tfi.Session, device: str):
    ref = session.tensor(torch.empty(4, dtype=torch.float4_e2m1fn_x2, device=device))
    assert (ref.dtype, ref.shape, ref.nbytes) == (tfi.DType(17, 4, 2), (4,), 4)


@pytest.mark.parametrize("use", READING)
def test_case_005_jax_fp4_of_one_lane_is_refused(session: tfi.Session, device: str, use: Use):
    with refused(session, tfi.DTypeError, actual=(17, 4, 1)):
        use(session, on_jax(device, [0, 0, 0, 0], jnp.float4_e2m1fn))


@pytest.mark.parametrize(("dtype", "nbytes"), [((17, 4, 2), 8), ((17, 4, 4), 16), ((15, 6, 4), 24), ((16, 6, 8), 48)])
def test_case_005_packed_floats_count_all_lanes(cpu_session: tfi.Session, dtype: tuple[int, int, int], nbytes: int):
    assert cpu_session.tensor(FakeProducer((8,), dtype=dtype)).nbytes == nbytes


@pytest.mark.parametrize("dtype", [(17, 4, 1), (17, 4, 3), (15, 6, 1), (15, 6, 2), (16, 6, 3)])
def test_case_005_partly_filled_bytes_are_refused(cpu_session: tfi.Session, dtype: tuple[int, int, int]):
    with refused(cpu_session, tfi.DTypeError, actual=dtype):
        cpu_session.tensor(FakeProducer((8,), dtype=dtype))


# 6: sub-byte integers that the producer hides

TORCH_SUB_BYTE = [f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)]


class Subclass(torch.Tensor):
    """Takes the `__dlpack__` path, where plain tensors take the exchange API."""


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", TORCH_SUB_BYTE)
def test_case_006_torch_sub_byte_integer_is_refused(session: tfi.Session, device: str, dtype: str, use: Use):
    x = torch.empty(4, dtype=getattr(torch, dtype), device=device)
    with refused(session, tfi.DTypeError, actual=f"torch.{dtype}"):
        use(session, x)


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", TORCH_SUB_BYTE)
def test_case_006_torch_subclass_gives_the_same_answer(session: tfi.Session, device: str, dtype: str, use: Use):
    x = torch.empty(4, dtype=getattr(torch, dtype), device=device).as_subclass(Subclass)
    with refused(session, tfi.DTypeError, actual=f"torch.{dtype}"):
        use(session, x)


def test_case_006_a_tensor_seen_before_does_not_vouch_for_the_next(session: tfi.Session, device: str):
    launch_reads(session, torch.zeros(4, dtype=torch.int8, device=device))
    with refused(session, tfi.DTypeError, actual="torch.int4"):
        launch_reads(session, torch.empty(4, dtype=torch.int4, device=device))


@pytest.mark.parametrize("use", READING)
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_case_006_jax_sub_byte_integer_is_refused(session: tfi.Session, device: str, dtype: str, use: Use):
    with refused(session, tfi.DTypeError, actual=dtype):
        use(session, on_jax(device, [0, 0, 0, 0], dtype))


# 7: complex

COMPLEX = [("complex32", 4), ("complex64", 8), ("complex128", 16)]


@pytest.mark.parametrize(("name", "itemsize"), COMPLEX)
def test_case_007_torch_complex_counts_the_whole_element(session: tfi.Session, device: str, name: str, itemsize: int):
    ref = session.tensor(torch.zeros(3, dtype=getattr(torch, name), device=device))
    assert (ref.dtype, ref.dtype.itemsize, ref.nbytes) == (tfi.DType(5, 8 * itemsize, 1), itemsize, 3 * itemsize)


@pytest.mark.parametrize(("name", "itemsize"), COMPLEX[1:])
def test_case_007_numpy_complex_counts_the_whole_element(cpu_session: tfi.Session, name: str, itemsize: int):
    ref = cpu_session.tensor(np.zeros(3, name))
    assert (ref.dtype, ref.nbytes) == (tfi.DType(5, 8 * itemsize, 1), 3 * itemsize)


@pytest.mark.parametrize(("name", "c_type"), [("complex64", "float2"), ("complex128", "double2")])
def test_case_007_complex_fits_the_vector_of_its_parts(session: tfi.Session, device: str, name: str, c_type: str):
    session.launch(reader(session, c_type), ONE, [make("torch", device, name)])
    assert still_launches(session)


@pytest.mark.parametrize("c_type", ["float", "double", "double2", "float4", "long long"])
def test_case_007_complex_fits_nothing_else(session: tfi.Session, device: str, c_type: str):
    with refused(session, tfi.DTypeError, index=0, actual="complex64"):
        session.launch(reader(session, c_type), ONE, [make("torch", device, "complex64")])


# 9: JAX without 64-bit types


@pytest.mark.parametrize(
    ("wide", "narrow", "c_type"), [("int64", "int32", "long long"), ("float64", "float32", "double")]
)
def test_case_009_jax_array_narrowed_on_the_way_in_is_refused_by_a_wide_kernel(
    session: tfi.Session, device: str, wide: str, narrow: str, c_type: str
):
    with jax.default_device(jax.devices(device)[0]):
        x = jnp.asarray(jax.dlpack.from_dlpack(np.zeros(3, wide)) if device == "cpu" else np.zeros(3, wide))
    with refused(session, tfi.DTypeError, index=0, expected=wide, actual=narrow):
        session.launch(reader(session, c_type), ONE, [x])


# 10: codes without a meaning

NAMELESS = [(3, 8, 1), (3, 64, 1), (200, 8, 1), (200, 64, 1), (18, 8, 1), (255, 8, 1), (254, 8, 1), (253, 64, 1)]
IMPOSSIBLE = [(2, 32, 0), (2, 0, 1), (0, 0, 0), (0, 128, 1), (1, 24, 1), (2, 8, 1), (4, 32, 1), (5, 16, 1), (6, 16, 1)]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", NAMELESS + IMPOSSIBLE)
def test_case_010_unknown_type_is_our_error(cpu_session: tfi.Session, dtype: tuple[int, int, int], use: Use):
    with refused(cpu_session, tfi.DTypeError, actual=dtype):
        use(cpu_session, FakeProducer(dtype=dtype))


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
@pytest.mark.parametrize("dtype", [(3, 64, 1), (200, 8, 1)])
def test_case_010_unknown_type_is_given_back_once(
    cpu_session: tfi.Session, dtype: tuple[int, int, int], version: tuple[int, int] | None, use: Use
):
    fake = FakeProducer(dtype=dtype, version=version)
    with refused(cpu_session, tfi.DTypeError):
        use(cpu_session, fake)
    assert set(fake.deleter_calls) == {1}
