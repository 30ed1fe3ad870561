"""Public failure reports, section E: streams of host memory (55), what stands for a stream (59).  Needs no GPU."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch
from support import READING, Use, still_launches

import tenferro_interop as tfi
from tenferro_interop._stream import resolve
from tenferro_interop.testing import FakeProducer


class Answering:
    """A stream object whose protocol method gives any answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


class WithProperty:
    """A stream object of the protocol's first draft, where it was a property."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    @property
    def __cuda_stream__(self) -> Any:
        return self.answer


class Broken:
    def __cuda_stream__(self) -> Any:
        raise OSError("gone")


BAD_ANSWERS = [
    (1, 5),
    (-1, 5),
    (0,),
    (),
    None,
    0,
    "a1",
    ("a", 1),
    (0, "a"),
    (0, 1.0),
    (0, None),
    (0, True),
    (0, 1, 2),
    [0, 1],
]
BAD_HANDLES = [(0, -1), (0, 2**64)]


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=repr)
def test_case_059_wrong_answer_of_the_protocol_is_refused(answer: Any):
    with pytest.raises(tfi.ValidationError) as error:
        resolve(Answering(answer))
    assert (error.value.op, error.value.argument, error.value.actual) == ("session", "stream", answer)


@pytest.mark.parametrize("answer", BAD_HANDLES, ids=repr)
def test_case_059_wrong_handle_of_the_protocol_is_refused(answer: Any):
    with pytest.raises(tfi.ValidationError, match="stream handle must be"):
        resolve(Answering(answer))


@pytest.mark.parametrize("answer", [*BAD_ANSWERS, *BAD_HANDLES], ids=repr)
def test_case_059_wrong_answer_of_a_property_is_refused(answer: Any):
    with pytest.raises(tfi.ValidationError):
        resolve(WithProperty(answer))


def test_case_059_right_answer_of_a_property_is_taken():
    assert resolve(WithProperty((0, 4096))).handle == 4096


def test_case_059_right_answer_is_taken_and_its_owner_kept():
    stream = Answering((0, 4096))
    assert (resolve(stream).handle, resolve(stream).owner) == (4096, stream)


def test_case_059_per_thread_default_stream_is_refused():
    with pytest.raises(tfi.UnsupportedError, match="same in every thread"):
        resolve(Answering((0, 2)))


def test_case_059_error_of_the_protocol_is_the_users():
    with pytest.raises(OSError, match="gone"):
        resolve(Broken())


@pytest.mark.parametrize("stream", ["main", 1.5, b"x", [], {}, object()], ids=lambda each: type(each).__name__)
def test_case_059_object_without_the_protocol_is_refused(stream: Any):
    with pytest.raises(tfi.ValidationError, match="must offer __cuda_stream__") as error:
        resolve(stream)
    assert (error.value.op, error.value.argument) == ("session", "stream")


@pytest.mark.parametrize("handle", [-1, 2**64, True, 1.0, "1", None], ids=repr)
def test_case_059_handle_that_is_no_address_is_refused(handle: Any):
    with pytest.raises(tfi.ValidationError):
        tfi.StreamRef.from_handle(handle)


@pytest.mark.gpu
@pytest.mark.parametrize("answer", [*BAD_ANSWERS, *BAD_HANDLES], ids=repr)
def test_case_059_refused_stream_leaves_no_session_open(answer: Any):
    with tfi.session("cuda") as s:
        with pytest.raises(tfi.ValidationError):
            tfi.session("cuda", stream=Answering(answer))
        s.synchronize()


# 55


@pytest.mark.parametrize("use", READING)
def test_case_055_host_memory_is_asked_for_without_a_stream(cpu_session: tfi.Session, use: Use):
    x = FakeProducer((4,))
    use(cpu_session, x)
    assert [call.get("stream") for call in x.calls] == [None]


@pytest.mark.parametrize("use", READING)
@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "a subclass of torch.Tensor"])
def test_case_055_every_framework_exports_host_memory_to_us(cpu_session: tfi.Session, use: Use, framework: str):
    class Subclass(torch.Tensor):
        pass

    x = {
        "numpy": np.ones(3, "f4"),
        "torch": torch.ones(3),
        "jax": jax.device_put(np.ones(3, "f4"), jax.devices("cpu")[0]),
        "a subclass of torch.Tensor": torch.ones(3).as_subclass(Subclass),
    }[framework]
    use(cpu_session, x)
    assert still_launches(cpu_session)
