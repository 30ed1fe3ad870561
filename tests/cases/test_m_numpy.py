"""Public failure reports, section M: what only NumPy has, and the torch and JAX states that are as treacherous."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support import EVERY_USE, READING, Use, copied, launch_reads, reads, refused, still_launches
from torch._subclasses.fake_tensor import FakeTensorMode

import tenferro_interop as tfi
from tenferro_interop.testing import FakeProducer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
    pytest.mark.filterwarnings("ignore:.*quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),
]


def case(name: str, *values: Any) -> Any:
    return pytest.param(*values, id=name)


# 149: byte order


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">i4", ">u8", ">c8", ">f2"])
def test_case_149_foreign_byte_order_is_refused(cpu_session: tfi.Session, dtype: str, use: Use):
    with refused(cpu_session, tfi.DTypeError, actual=dtype) as caught:
        use(cpu_session, np.zeros(3, dtype))
    assert "newbyteorder" in str(caught.value)


@pytest.mark.parametrize("dtype", ["<f4", "=f4", ">i1", ">u1", ">b1"])
def test_case_149_native_and_single_bytes_have_no_order(cpu_session: tfi.Session, dtype: str):
    assert cpu_session.tensor(np.zeros(3, dtype)).shape == (3,)


# 150: what is no number

KINDS = ["M8[s]", "m8[ns]", "O", "S3", "U3", "V4", [("a", "i4")], [("a", "i4", (2,))], np.dtypes.StringDType()]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_case_150_array_of_no_numbers_is_refused(cpu_session: tfi.Session, dtype: Any, use: Use):
    x = np.empty(3, dtype)
    with refused(cpu_session, tfi.DTypeError, actual=str(x.dtype)):
        use(cpu_session, x)


def test_case_150_record_array_is_refused(cpu_session: tfi.Session):
    x = np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")])
    with refused(cpu_session, tfi.DTypeError, actual=str(x.dtype)):
        cpu_session.tensor(x)


@pytest.mark.parametrize("builtin", [ValueError, TypeError])
def test_case_150_class_is_what_a_caller_would_catch(cpu_session: tfi.Session, builtin: type[Exception]):
    with pytest.raises(builtin):
        cpu_session.tensor(np.zeros(3, "M8[s]"))


# 151: long double


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_case_151_long_double_is_refused(cpu_session: tfi.Session, dtype: Any, use: Use):
    x = np.zeros(3, dtype)
    with refused(cpu_session, tfi.DTypeError, actual=str(x.dtype)):
        use(cpu_session, x)


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("dtype", [(2, 128, 1), (2, 80, 1), (5, 160, 1), (5, 255, 1)])
def test_case_151_long_double_of_another_producer_is_refused(
    cpu_session: tfi.Session, dtype: tuple[int, int, int], use: Use
):
    with refused(cpu_session, tfi.DTypeError, actual=dtype):
        use(cpu_session, FakeProducer(dtype=dtype))


# 153: subclasses with a meaning of their own

MASKED = [
    case("masked", np.ma.array([1, 2, 3], mask=[0, 1, 0])),
    case("nothing masked", np.ma.array([1, 2, 3])),
    case("all masked", np.ma.masked_all(3)),
    case("view", np.ma.array(np.zeros((2, 3)), mask=True)[0]),
]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("x", MASKED)
def test_case_153_masked_array_is_refused(cpu_session: tfi.Session, x: Any, use: Use):
    with refused(cpu_session, tfi.ValidationError, actual="MaskedArray") as caught:
        use(cpu_session, x)
    assert "filled" in str(caught.value)


class Masked(np.ma.MaskedArray[Any, Any]):
    """Carries a mask too."""


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_153_subclass_of_a_masked_array_is_refused(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.ValidationError, actual="MaskedArray"):
        use(cpu_session, np.ma.array([1.0, 2.0], mask=[0, 1]).view(Masked))


def test_case_153_filled_array_is_taken(cpu_session: tfi.Session):
    x = np.ma.array([1, 2, 3], mask=[0, 1, 0], dtype="f4").filled(9)
    assert copied(cpu_session, x, 3) == [1, 9, 3]


class Units(np.ndarray[Any, Any]):
    """Means by its memory what an array means."""


def test_case_153_other_subclass_is_taken(cpu_session: tfi.Session):
    assert copied(cpu_session, np.arange(3, dtype="f4").view(Units), 3) == [0, 1, 2]


# The same kind of fault in torch: bits, wrappers and layouts that raw memory does not show.


class Subclass(torch.Tensor):
    """Takes the `__dlpack__` path, where plain tensors take the exchange API."""


LAZY = [
    case("conjugate", lambda d: torch.zeros(3, dtype=torch.complex64, device=d).conj(), "conjugate"),
    case("negative", lambda d: torch.zeros(3, dtype=torch.complex64, device=d).conj().imag, "negative"),
    case("zero-tensor", lambda d: torch._efficientzerotensor((3,), device=d), "zero-tensor"),
]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(("make", "bit"), LAZY)
def test_case_153_torch_lazy_bit_is_refused(session: tfi.Session, device: str, make: Any, bit: str, use: Use):
    with refused(session, tfi.ValidationError, actual=bit):
        use(session, make(device))


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(("make", "bit"), LAZY[:2])
def test_case_153_torch_subclass_with_lazy_bit_gives_the_same_answer(
    session: tfi.Session, device: str, make: Any, bit: str, use: Use
):
    with refused(session, tfi.ValidationError, actual=bit):
        use(session, make(device).as_subclass(Subclass))


@pytest.mark.parametrize(("make", "bit"), LAZY)
def test_case_153_torch_tensor_of_the_same_type_seen_before_does_not_vouch(
    session: tfi.Session, device: str, make: Any, bit: str
):
    x = make(device)
    launch_reads(session, torch.zeros(3, dtype=x.dtype, device=device))
    with refused(session, tfi.ValidationError, actual=bit):
        launch_reads(session, x)


def test_case_153_resolved_torch_tensor_is_taken(session: tfi.Session, device: str):
    x = torch.tensor([1 + 2j, 3 - 4j], device=device).conj().imag.resolve_neg()
    assert copied(session, x.contiguous(), 2) == [-2, 4]


SHAPELESS = [
    case("meta", lambda: torch.zeros(3, device="meta"), "meta"),
    case("sparse", lambda: torch.zeros(3).to_sparse(), "torch.sparse_coo"),
    case("sparse rows", lambda: torch.zeros(3, 3).to_sparse_csr(), "torch.sparse_csr"),
    case("nested", lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "nested"),
    case("quantised", lambda: torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8), "quantised"),
]


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(("make", "what"), SHAPELESS)
def test_case_153_torch_tensor_without_strided_memory_is_refused(
    cpu_session: tfi.Session, make: Any, what: str, use: Use
):
    with refused(cpu_session, tfi.LayoutError, actual=what):
        use(cpu_session, make())


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_153_torch_meta_subclass_gives_the_same_answer(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.LayoutError, actual="meta"):
        use(cpu_session, torch.zeros(3, device="meta").as_subclass(Subclass))


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_153_torch_fake_tensor_is_refused(cpu_session: tfi.Session, use: Use):
    with FakeTensorMode():
        x = torch.zeros(3)
    with refused(cpu_session, tfi.UnsupportedError, actual="FakeTensor"):
        use(cpu_session, x)


def _within(transform: str, call: Any) -> None:
    x = torch.zeros(2, 3)
    if transform == "vmap":
        torch.vmap(lambda v: (call(v), v)[1])(x)
    elif transform == "grad":
        torch.func.grad(lambda v: (call(v), v.sum())[1])(x)
    elif transform == "jvp":
        torch.func.jvp(lambda v: (call(v), v)[1], (x,), (x,))
    else:
        torch.func.functionalize(lambda v: (call(v), v)[1])(x)


@pytest.mark.parametrize("use", READING)
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "functionalize"])
def test_case_153_torch_tensor_inside_a_transform_is_refused(cpu_session: tfi.Session, transform: str, use: Use):
    with refused(cpu_session, tfi.UnsupportedError):
        _within(transform, lambda v: use(cpu_session, v))


@pytest.mark.parametrize("use", READING)
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: jax.grad(lambda v: f(v).sum())])
def test_case_153_jax_tracer_is_refused(cpu_session: tfi.Session, transform: Any, use: Use):
    with jax.default_device(jax.devices("cpu")[0]), refused(cpu_session, tfi.UnsupportedError):
        transform(lambda v: (use(cpu_session, v), v)[1])(jnp.zeros((2, 3)))


LIKE_TENSORS = [
    case("tensor", lambda x: x),
    case("parameter", torch.nn.Parameter),
    case("subclass", lambda x: x.as_subclass(Subclass)),
    case("buffer", torch.nn.Buffer),
    case("requires grad", lambda x: x.requires_grad_()),
    case("subclass that requires grad", lambda x: x.requires_grad_().as_subclass(Subclass)),
    case("non-leaf", lambda x: x.requires_grad_() * 1),
]


@pytest.mark.parametrize("make", LIKE_TENSORS)
def test_case_153_torch_types_read_alike(session: tfi.Session, device: str, make: Any):
    x = make(torch.arange(3.0, device=device))
    ref = session.tensor(x)
    assert (ref.shape, ref.dtype.name, ref.raw_address()) == ((3,), "float32", x.data_ptr())
    assert copied(session, x, 3) == [0, 1, 2]


@pytest.mark.parametrize("use", EVERY_USE[2:])
@pytest.mark.parametrize("make", [LIKE_TENSORS[1], *LIKE_TENSORS[4:]])
def test_case_153_torch_tensor_that_records_is_not_written(session: tfi.Session, device: str, make: Any, use: Use):
    with refused(session, tfi.ValidationError, actual="requires_grad"):
        use(session, make(torch.arange(3.0, device=device)))


@pytest.mark.parametrize("use", EVERY_USE[2:])
@pytest.mark.parametrize("make", LIKE_TENSORS)
def test_case_153_torch_types_are_written_alike_without_grad(session: tfi.Session, device: str, make: Any, use: Use):
    x = make(torch.arange(3.0, device=device))
    with torch.no_grad():
        use(session, x)
    assert still_launches(session)


@pytest.mark.parametrize("use", [reads, launch_reads])
def test_case_153_jax_array_over_several_devices_says_so(use: Use):
    from support import in_subprocess

    done = in_subprocess(f"""
        import os, sys
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        os.environ["JAX_PLATFORMS"] = "cpu"
        sys.path.insert(0, "tests")
        import jax, jax.numpy as jnp
        import tenferro_interop as tfi
        from support import {use.__name__} as use
        mesh = jax.make_mesh((2,), ("i",))
        x = jax.device_put(jnp.arange(4.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
        with tfi.session("cpu") as s:
            try:
                use(s, x)
            except tfi.ValidationError as error:
                assert error.actual == "sharded"
            else:
                raise AssertionError
            use(s, x.addressable_shards[1].data)
    """)
    assert done.returncode == 0, done.stderr
