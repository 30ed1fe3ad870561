"""Public failure reports, section D: where a tensor lives.  Those that need two GPUs are not here."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support import EVERY_USE, READING, Use, copied, refused, still_launches

import tenferro_interop as tfi
from tenferro_interop._tensors import from_array_interface
from tenferro_interop.testing import FakeProducer

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13

# 43: host pointers and a GPU, device pointers and the CPU


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("ordinal", [0, 1, 7])
def test_case_043_gpu_memory_is_refused_on_the_cpu(cpu_session: tfi.Session, ordinal: int, use: Use):
    with refused(cpu_session, tfi.RuntimeStateError, device=f"cuda:{ordinal}"):
        use(cpu_session, FakeProducer(device=(CUDA, ordinal)))


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_043_readable_address_does_not_make_it_host_memory(cpu_session: tfi.Session, use: Use):
    values = np.arange(4, dtype="f4")
    fake = FakeProducer(device=(CUDA, 0), data=values.ctypes.data)
    with refused(cpu_session, tfi.RuntimeStateError, device="cuda:0"):
        use(cpu_session, fake)
    assert values.tolist() == [0, 1, 2, 3]


class Interface:
    """Speaks `__cuda_array_interface__` only."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (address, False), "version": 3}


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_043_array_interface_is_refused_on_the_cpu(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.RuntimeStateError):
        use(cpu_session, Interface(np.zeros(4, "f4").ctypes.data))


@pytest.mark.parametrize(
    ("change", "cls"),
    [
        ({"typestr": ">f4"}, tfi.DTypeError),
        ({"typestr": "<M8"}, tfi.DTypeError),
        ({"typestr": "|V8"}, tfi.DTypeError),
        ({"mask": object()}, tfi.ValidationError),
        ({"strides": (6,)}, tfi.LayoutError),
    ],
)
def test_case_043_array_interface_without_a_raw_form_is_refused(change: Any, cls: type[tfi.TenferroError]):
    x = Interface(0)
    x.__cuda_array_interface__ |= change
    with pytest.raises(cls) as caught:
        from_array_interface(x)
    assert type(caught.value) is cls


@pytest.mark.gpu
@pytest.mark.parametrize("stream", [None, 1])
def test_case_043_array_interface_is_read_on_a_gpu(stream: int | None):
    x = torch.arange(4.0, device="cuda")
    wrapped = Interface(x.data_ptr())
    wrapped.__cuda_array_interface__["stream"] = stream
    torch.cuda.synchronize()
    with tfi.session("cuda") as s:
        assert copied(s, wrapped, 4) == [0, 1, 2, 3]


HOST = [
    pytest.param(lambda: torch.ones(4), id="torch"),
    pytest.param(lambda: np.ones(4, "f4"), id="numpy"),
    pytest.param(lambda: jax.device_put(jnp.ones(4), jax.devices("cpu")[0]), id="jax"),
    pytest.param(FakeProducer, id="fake"),
]


@pytest.mark.gpu
@pytest.mark.parametrize("use", READING)
@pytest.mark.parametrize("make", HOST)
def test_case_043_host_memory_is_refused_on_a_gpu(make: Any, use: Use):
    x = make()
    with tfi.session("cuda") as s, refused(s, tfi.RuntimeStateError, expected="cuda:0", device="cpu"):
        use(s, x)


@pytest.mark.gpu
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_043_real_gpu_tensor_is_refused_on_the_cpu(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.RuntimeStateError, device="cuda:0"):
        use(cpu_session, torch.ones(4, device="cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_043_cupy_array_is_refused_on_the_cpu(cpu_session: tfi.Session, use: Use):
    import cupy

    with refused(cpu_session, tfi.RuntimeStateError, device="cuda:0"):
        use(cpu_session, cupy.ones(4, "f4"))


@pytest.mark.gpu
@pytest.mark.parametrize("use", READING)
def test_case_043_jax_gpu_array_is_refused_on_the_cpu(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.RuntimeStateError, device="cuda:0"):
        use(cpu_session, jax.device_put(jnp.ones(4), jax.devices("cuda")[0]))


# 46: pinned host memory


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_046_pinned_memory_is_host_memory(cpu_session: tfi.Session, version: Any, use: Use):
    use(cpu_session, FakeProducer(device=(PINNED, 0), version=version))
    assert still_launches(cpu_session)


def test_case_046_kernel_reads_pinned_memory(cpu_session: tfi.Session):
    values = np.arange(4, dtype="f4")
    assert copied(cpu_session, FakeProducer(device=(PINNED, 0), data=values.ctypes.data), 4) == [0, 1, 2, 3]


def test_case_046_reference_names_pinned_memory(cpu_session: tfi.Session):
    assert cpu_session.tensor(FakeProducer(device=(PINNED, 0))).device == "pinned host memory"


def test_case_046_session_like_pinned_memory_is_on_the_cpu():
    with tfi.session(like=FakeProducer(device=(PINNED, 0))) as s:
        assert s.device == "cpu"


@pytest.mark.gpu
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_046_real_pinned_tensor_is_host_memory(cpu_session: tfi.Session, use: Use):
    use(cpu_session, torch.zeros(4).pin_memory())
    assert still_launches(cpu_session)


@pytest.mark.gpu
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_046_pinned_memory_is_refused_by_name_on_a_gpu(use: Use):
    with tfi.session("cuda") as s, refused(s, tfi.RuntimeStateError, device="pinned host memory"):
        use(s, FakeProducer(device=(PINNED, 0)))


@pytest.mark.gpu
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_046_real_pinned_tensor_is_refused_on_a_gpu(use: Use):
    with tfi.session("cuda") as s, refused(s, tfi.RuntimeStateError) as caught:
        use(s, torch.zeros(4).pin_memory())
    assert caught.value.device in ("cpu", "pinned host memory")


# 47: managed memory, and types that nobody has


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_047_managed_memory_is_refused_by_name_on_the_cpu(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.RuntimeStateError, device="managed memory of cuda:0"):
        use(cpu_session, FakeProducer(device=(MANAGED, 0)))


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("device_type", [0, 4, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 99, -1, 2**31 - 1])
def test_case_047_every_other_device_is_refused_by_number(cpu_session: tfi.Session, device_type: int, use: Use):
    with refused(cpu_session, tfi.RuntimeStateError, device=f"DLPack device type {device_type}"):
        use(cpu_session, FakeProducer(device=(device_type, 0)))


@pytest.mark.parametrize("device_type", [4, 14, 99])
def test_case_047_session_like_another_device_is_refused(device_type: int):
    with pytest.raises(tfi.ValidationError) as caught:
        tfi.session(like=FakeProducer(device=(device_type, 0)))
    assert (caught.value.op, caught.value.argument) == ("session", "like")


@pytest.mark.gpu
@pytest.mark.parametrize("use", READING)
def test_case_047_managed_cupy_array_is_gpu_memory(use: Use):
    import cupy

    with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
        x = cupy.arange(4, dtype="f4")
    with tfi.session("cuda") as s:
        use(s, x)
        assert copied(s, x, 4) == [0, 1, 2, 3]


# 51: no ambient device


@pytest.mark.gpu
@pytest.mark.parametrize("make", HOST)
def test_case_051_session_follows_the_data_to_the_cpu(make: Any):
    with tfi.session(like=make()) as s:
        assert s.device == "cpu"


@pytest.mark.parametrize("make", HOST)
def test_case_051_session_like_host_memory_reads_it(make: Any):
    x = make()
    with tfi.session(like=x) as s:
        assert (s.device, s.tensor(x).device) == ("cpu", "cpu")


@pytest.mark.gpu
def test_case_051_jax_callback_on_the_cpu_platform_opens_the_cpu():
    from jax.experimental.buffer_callback import buffer_callback

    seen: list[str] = []

    def body(context: Any, out: Any, x: Any) -> None:
        with tfi.session(like=x) as s:
            seen.append(s.device)

    with jax.default_device(jax.devices("cpu")[0]):
        call = buffer_callback(body, jax.ShapeDtypeStruct((4,), jnp.float32))
        jax.jit(call)(jnp.arange(4.0)).block_until_ready()
    assert seen == ["cpu"]


def test_case_051_device_that_contradicts_the_data_is_refused():
    with pytest.raises(tfi.ValidationError) as caught:
        tfi.session("cuda:0", like=np.zeros(4))
    assert (caught.value.op, caught.value.argument) == ("session", "device")
