"""Public failure reports, section C: the read-only flag, capsules, versions, deleters."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support import (
    EVERY_USE,
    FILL,
    READING,
    WRITING,
    Use,
    copied,
    in_subprocess,
    launch_reads,
    launch_writes,
    reader,
    reads,
    refused,
    still_launches,
    writes,
)

import tenferro_interop as tfi
from tenferro_interop.testing import FakeProducer

ONE = tfi.LaunchConfig(1, 1)


def case(name: str, *values: Any) -> Any:
    return pytest.param(*values, id=name)


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


def mapped(folder: Path) -> Any:
    np.arange(4, dtype="f4").tofile(folder / "values")
    return np.memmap(folder / "values", "f4", mode="r")


# 25: reading what may not be written

READ_ONLY = [
    case("flag", lambda folder: read_only(np.arange(4, dtype="f4"))),
    case("bytes", lambda folder: np.frombuffer(np.arange(4, dtype="f4").tobytes(), "f4")),
    case("view", lambda folder: read_only(np.arange(8, dtype="f4"))[:4]),
    case("memmap", mapped),
]


@pytest.mark.parametrize("make", READ_ONLY)
def test_case_025_read_only_array_is_read(cpu_session: tfi.Session, tmp_path: Path, make: Any):
    x = make(tmp_path)
    assert cpu_session.tensor(x).read_only
    assert copied(cpu_session, x, 4) == [0, 1, 2, 3]


def test_case_025_a_version_is_asked_for_first(cpu_session: tfi.Session):
    fake = FakeProducer()
    cpu_session.tensor(fake)
    assert fake.calls == [{"max_version": (1, 3)}]


# 26: writing what may not be written


@pytest.mark.parametrize("use", WRITING)
@pytest.mark.parametrize("make", READ_ONLY)
def test_case_026_read_only_array_is_not_written(cpu_session: tfi.Session, tmp_path: Path, make: Any, use: Use):
    with refused(cpu_session, tfi.ValidationError, actual="read-only"):
        use(cpu_session, make(tmp_path))


@pytest.mark.parametrize("use", WRITING)
def test_case_026_broadcast_array_is_not_written(cpu_session: tfi.Session, use: Use):
    with pytest.raises(tfi.ValidationError):
        use(cpu_session, np.broadcast_to(np.zeros(1), 5))
    assert still_launches(cpu_session)


@pytest.mark.parametrize("use", WRITING)
@pytest.mark.parametrize("flags", [1, 3, 1 | 1 << 40])
def test_case_026_flag_of_any_producer_is_obeyed(cpu_session: tfi.Session, flags: int, use: Use):
    fake = FakeProducer(flags=flags)
    with refused(cpu_session, tfi.ValidationError, actual="read-only"):
        use(cpu_session, fake)
    assert set(fake.deleter_calls) == {1}


@pytest.mark.parametrize("flags", [0, 2, 4])
def test_case_026_other_flags_do_not_forbid_writing(cpu_session: tfi.Session, flags: int):
    assert not cpu_session.tensor_mut(FakeProducer(flags=flags)).read_only


def test_case_026_refused_write_leaves_the_values(cpu_session: tfi.Session):
    x = read_only(np.arange(4, dtype="f4"))
    kernel = cpu_session.compile_nvrtc(FILL).function("fill")
    with refused(cpu_session, tfi.ValidationError, kernel="fill", index=0):
        cpu_session.launch(kernel, tfi.LaunchConfig.flat(4), [x, 9.0, 4])
    assert x.tolist() == [0, 1, 2, 3]


def test_case_026_reference_for_reading_is_not_written(cpu_session: tfi.Session):
    ref = cpu_session.tensor(read_only(np.zeros(4, "f4")))
    with refused(cpu_session, tfi.SignatureError, index=0):
        launch_writes(cpu_session, ref)


def test_case_026_read_only_memory_is_no_target_of_a_copy(cpu_session: tfi.Session):
    target = cpu_session.retain_tensor(read_only(np.zeros(4, "f4")))
    with refused(cpu_session, tfi.ValidationError, op="copy_bytes", argument="dst", actual="read-only"):
        cpu_session.copy_bytes(target, cpu_session.alloc_bytes(16))


def test_case_026_retained_read_only_memory_is_not_written(cpu_session: tfi.Session):
    kept = cpu_session.retain_tensor(read_only(np.zeros(4, "f4")))
    with refused(cpu_session, tfi.ValidationError, index=0, actual="read-only"):
        launch_writes(cpu_session, kept)


# 27: JAX arrays never change


@pytest.mark.parametrize("use", WRITING)
def test_case_027_jax_array_is_not_written(session: tfi.Session, device: str, use: Use):
    with jax.default_device(jax.devices(device)[0]):
        x = jnp.arange(4.0)
    with refused(session, tfi.ValidationError, actual="read-only"):
        use(session, x)
    assert x.tolist() == [0, 1, 2, 3]


def test_case_027_jax_array_looked_at_before_is_not_written(session: tfi.Session, device: str):
    with jax.default_device(jax.devices(device)[0]):
        x = jnp.arange(4.0)
    assert str(x)
    with refused(session, tfi.ValidationError, actual="read-only"):
        session.tensor_mut(x)


def test_case_027_jax_array_says_it_is_read_only(session: tfi.Session, device: str):
    with jax.default_device(jax.devices(device)[0]):
        assert session.tensor(jnp.arange(4.0)).read_only


# 29: the name decides


def test_case_029_jax_answers_with_the_legacy_capsule(session: tfi.Session, device: str):
    with jax.default_device(jax.devices(device)[0]):
        x = jnp.arange(4.0)
    assert copied(session, x, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_029_struct_follows_the_name_and_not_the_keyword(cpu_session: tfi.Session, use: Use):
    use(cpu_session, FakeProducer(version=None))
    assert still_launches(cpu_session)


def test_case_029_versioned_answer_to_an_old_signature_is_taken(cpu_session: tfi.Session):
    assert cpu_session.tensor(FakeProducer(flags=1, keywords=())).read_only


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("major", [0, 2, 3, 2**32 - 1])
def test_case_029_other_major_version_is_refused_and_given_back(cpu_session: tfi.Session, major: int, use: Use):
    fake = FakeProducer(version=(major, 0))
    with refused(cpu_session, tfi.ValidationError) as caught:
        use(cpu_session, fake)
    assert "FakeProducer" in str(caught.value)
    assert fake.deleter_calls == [1]


# 30: older signatures


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("keywords", [(), ("stream",), ("stream", "copy")])
def test_case_030_older_signature_is_called_without_keywords(cpu_session: tfi.Session, keywords: Any, version: Any):
    fake = FakeProducer(keywords=keywords, version=version)
    assert cpu_session.tensor(fake).shape == (4,)
    assert fake.calls == [{"max_version": (1, 3)}, {}]


# 31: the producer's own error


class Unexportable(Exception):
    """Stands for whatever a framework raises."""


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("kind", [TypeError, BufferError, ValueError, RuntimeError, KeyError, Unexportable])
def test_case_031_error_of_the_producer_reaches_the_user(cpu_session: tfi.Session, kind: type[Exception], use: Use):
    fake = FakeProducer(error=kind("cannot export today"))
    with refused(cpu_session, tfi.ExportError) as caught:
        use(cpu_session, fake)
    assert "cannot export today" in str(caught.value)
    assert "FakeProducer" in str(caught.value)
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize(("kind", "calls"), [(TypeError, 2), (BufferError, 1), (ValueError, 1)])
def test_case_031_producer_is_asked_again_only_for_a_signature(
    cpu_session: tfi.Session, kind: type[Exception], calls: int
):
    fake = FakeProducer(error=kind("cannot export"))
    with refused(cpu_session, tfi.ExportError):
        cpu_session.tensor(fake)
    assert len(fake.calls) == calls


def test_case_031_interrupt_is_not_wrapped(cpu_session: tfi.Session):
    with pytest.raises(KeyboardInterrupt):
        cpu_session.tensor(FakeProducer(error=KeyboardInterrupt()))
    assert still_launches(cpu_session)


# 33, 34: one capsule, one consumer


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("make", [case("torch", lambda: torch.zeros(3)), case("numpy", lambda: np.zeros(3))])
def test_case_033_bare_capsule_is_refused_every_time(cpu_session: tfi.Session, make: Any, use: Use):
    capsule = make().__dlpack__()
    for _ in range(2):
        with refused(cpu_session, tfi.SignatureError):
            use(cpu_session, capsule)


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("use", [reads, writes])
def test_case_033_consumed_capsule_is_refused(cpu_session: tfi.Session, version: Any, use: Use):
    fake = FakeProducer(reuse_capsule=True, version=version)
    use(cpu_session, fake)
    with refused(cpu_session, tfi.SignatureError):
        use(cpu_session, fake)
    assert fake.deleter_calls == [1]


def _race(fake: FakeProducer, barrier: threading.Barrier, won: list[object]) -> None:
    with tfi.session("cpu") as s:
        barrier.wait()
        try:
            won.append(s.tensor(fake))
        except tfi.SignatureError as error:
            won.append(error)


def test_case_034_two_threads_and_one_capsule_have_one_winner():
    rounds = []
    for _ in range(1000):
        fake, barrier, won = FakeProducer(reuse_capsule=True), threading.Barrier(2), []
        threads = [threading.Thread(target=_race, args=(fake, barrier, won)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = sum(isinstance(each, tfi.TensorRef) for each in won)
        won.clear()
        rounds.append((winners, fake.deleter_calls))
    assert rounds == [(1, [1])] * 1000


# 35, 37, 39: the deleter

BAD = {
    "device type": {"device": (9, 0)},
    "device that is elsewhere": {"device": (2, 0), "device_answer": (1, 0)},
    "element type": {"dtype": (3, 8, 1)},
    "no lanes": {"dtype": (2, 32, 0)},
    "version": {"version": (2, 0)},
    "no memory": {"data": 0},
    "negative extent": {"shape": (-1,)},
    "overflow": {"shape": (2**40, 2**40)},
    "no shape": {"shape": None, "ndim": 2},
    "negative rank": {"ndim": -3},
    "gaps": {"strides": (2,)},
    "name": {"capsule_name": b"tensor"},
    "used name": {"capsule_name": b"used_dltensor_versioned"},
    "empty name": {"capsule_name": b"dltensor\xff"},
}


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("fault", BAD)
def test_case_035_every_refused_tensor_is_given_back_once(cpu_session: tfi.Session, fault: str, version: Any, use: Use):
    fake = FakeProducer(**{"version": (1, 3) if fault == "version" else version, **BAD[fault]})
    with pytest.raises(tfi.TenferroError) as caught:
        use(cpu_session, fake)
    del caught
    gc.collect()
    assert set(fake.deleter_calls) == {1}
    assert still_launches(cpu_session)


@pytest.mark.parametrize("use", READING)
@pytest.mark.parametrize("version", [None, (1, 3)])
def test_case_037_a_thousand_imports_are_a_thousand_deletes(version: Any, use: Use):
    fake = FakeProducer(version=version)
    with tfi.session("cpu") as s:
        for _ in range(1000):
            use(s, fake)
    assert fake.deleter_calls == [1] * 1000


def test_case_037_reference_keeps_the_tensor_until_it_goes(cpu_session: tfi.Session):
    fake = FakeProducer()
    ref = cpu_session.tensor(fake)
    assert fake.deleter_calls == [0]
    del ref
    assert fake.deleter_calls == [1]


class Owner(np.ndarray[Any, Any]):
    """An array that a weak reference may watch."""


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_037_array_is_collected_after_close(use: Use):
    x = np.zeros(4, "f4").view(Owner)
    watch = weakref.ref(x)
    with tfi.session("cpu") as s:
        for _ in range(1000):
            use(s, x)
    del x
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_037_torch_storage_is_collected_after_close(device: str, use: Use):
    x = torch.zeros(4, device=device)
    watch = weakref.ref(x)
    with tfi.session(device) as s:
        for _ in range(100):
            use(s, x)
        s.synchronize()
    del x
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_039_deleter_may_be_null(cpu_session: tfi.Session, version: Any, use: Use):
    fake = FakeProducer(has_deleter=False, version=version)
    use(cpu_session, fake)
    assert set(fake.deleter_calls) == {0}
    assert still_launches(cpu_session)


@pytest.mark.parametrize("version", [None, (1, 3)])
@pytest.mark.parametrize("use", EVERY_USE)
def test_case_039_struct_may_vanish_with_its_deleter(cpu_session: tfi.Session, version: Any, use: Use):
    fake = FakeProducer(scribble=True, version=version)
    use(cpu_session, fake)
    assert set(fake.deleter_calls) == {1}
    assert still_launches(cpu_session)


def test_case_039_refused_struct_may_vanish_too(cpu_session: tfi.Session):
    fake = FakeProducer(scribble=True, strides=(2,))
    with refused(cpu_session, tfi.LayoutError, actual=(2,)):
        cpu_session.tensor(fake)
    assert fake.deleter_calls == [1]


# 38: our own deleter

EXPORT_AND_FREE = """
import ctypes, threading, weakref
import tenferro_interop as tfi
from tenferro_interop.testing import DLManagedTensor, DLManagedTensorVersioned

pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]

def take(tensor, versioned):
    capsule = tensor.__dlpack__(max_version=(1, 0) if versioned else None)
    name, used, struct = (
        (b"dltensor_versioned", b"used_dltensor_versioned", DLManagedTensorVersioned) if versioned
        else (b"dltensor", b"used_dltensor", DLManagedTensor)
    )
    address = pointer(capsule, name)
    rename(capsule, used)
    return address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(struct.from_address(address).deleter)

with tfi.session("cpu") as s:
    for versioned in (True, False):
        tensor = s.alloc_output((4,), "float32")
        owner = weakref.ref(tensor.owner)
        address, deleter = take(tensor, versioned)
        del tensor
        assert owner() is not None
        thread = threading.Thread(target=deleter, args=(address,))  # ctypes releases the GIL for the call
        thread.start()
        thread.join()
        assert owner() is None
"""


def test_case_038_our_deleter_runs_in_a_thread_without_the_gil():
    done = in_subprocess(EXPORT_AND_FREE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("consumer", ["torch.from_dlpack(t)", "np.from_dlpack(t)", "t.__dlpack__()", "t"])
def test_case_038_a_view_that_outlives_the_interpreter_is_harmless(consumer: str):
    done = in_subprocess(f"""
        import builtins
        import numpy as np, torch
        import tenferro_interop as tfi
        s = tfi.session("cpu")
        t = s.alloc_output((4,), "float32")
        kept = {consumer}
        builtins.kept_for_ever = kept
        torch.kept_for_ever = kept
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_case_038_our_deleter_does_nothing_once_python_has_gone():
    done = in_subprocess("""
        import ctypes
        import tenferro_interop as tfi
        from tenferro_interop.testing import DLManagedTensorVersioned
        s = tfi.session("cpu")
        capsule = s.alloc_output((4,), "float32").__dlpack__(max_version=(1, 0))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        address = pointer(capsule, b"dltensor_versioned")
        rename(capsule, b"used_dltensor_versioned")
        deleter = DLManagedTensorVersioned.from_address(address).deleter
        at_exit = getattr(ctypes.CDLL(None), "__cxa_atexit")  # calls f(argument) after Python has finalised
        at_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        assert at_exit(deleter, address, None) == 0
    """)
    assert (done.returncode, done.stderr) == (0, "")


# 41: two answers about the device


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(
    ("declared", "actual"), [((1, 0), (2, 0)), ((1, 0), (13, 0)), ((1, 0), (3, 0)), ((3, 0), (1, 0)), ((3, 0), (2, 0))]
)
def test_case_041_contradiction_about_the_device_type_is_refused(
    cpu_session: tfi.Session, declared: Any, actual: Any, use: Use
):
    fake = FakeProducer(device=actual, device_answer=declared)
    with refused(cpu_session, tfi.ValidationError):
        use(cpu_session, fake)
    assert fake.deleter_calls == [1]


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_041_tensor_that_says_it_is_elsewhere_is_not_even_exported(cpu_session: tfi.Session, use: Use):
    fake = FakeProducer(device=(1, 0), device_answer=(2, 0))
    with refused(cpu_session, tfi.RuntimeStateError, device="cuda:0"):
        use(cpu_session, fake)
    assert fake.calls == []


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize(("declared", "actual"), [((1, 0), (1, 1)), ((1, 5), (1, 0)), ((1, -1), (1, 0))])
def test_case_041_ordinal_of_host_memory_does_not_matter(
    cpu_session: tfi.Session, declared: Any, actual: Any, use: Use
):
    use(cpu_session, FakeProducer(device=actual, device_answer=declared))
    assert still_launches(cpu_session)


def test_case_041_array_on_the_second_jax_cpu_device_is_host_memory():
    done = in_subprocess("""
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import jax, jax.numpy as jnp
        import tenferro_interop as tfi
        x = jax.device_put(jnp.arange(4.0), jax.devices("cpu")[1])
        with tfi.session(like=x) as s:
            assert s.device == "cpu"
            assert s.download_tensor(x).tolist() == [0, 1, 2, 3]
    """)
    assert done.returncode == 0, done.stderr


# 42: junk


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("answer", [5, "capsule", (1, 2), object(), np.zeros(2), FakeProducer()])
def test_case_042_answer_that_is_no_capsule_names_the_producer(cpu_session: tfi.Session, answer: object, use: Use):
    with refused(cpu_session, tfi.SignatureError) as caught:
        use(cpu_session, FakeProducer(answer=answer))
    assert "FakeProducer" in str(caught.value)


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_042_no_answer_names_the_producer(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.SignatureError) as caught:
        use(cpu_session, Silent())
    assert "Silent" in str(caught.value)


class Silent:
    """Answers nothing."""

    def __dlpack__(self, **keywords: object) -> None:
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("use", EVERY_USE)
@pytest.mark.parametrize("answer", [RuntimeError("gone"), TypeError("odd"), 5, (1,), "cpu", (1, 0, 0), ("a", "b")])
def test_case_042_failing_device_query_names_the_producer(cpu_session: tfi.Session, answer: object, use: Use):
    fake = FakeProducer(device_answer=answer)
    with refused(cpu_session, tfi.SignatureError) as caught:
        use(cpu_session, fake)
    assert "FakeProducer" in str(caught.value)
    assert fake.calls == []


@pytest.mark.parametrize("use", EVERY_USE)
def test_case_042_missing_device_query_names_the_producer(cpu_session: tfi.Session, use: Use):
    with refused(cpu_session, tfi.SignatureError) as caught:
        use(cpu_session, Homeless())
    assert "Homeless" in str(caught.value)


class Homeless:
    """Exports, but does not say where it lives."""

    def __dlpack__(self, **keywords: object) -> object:
        return FakeProducer().export()


@pytest.mark.parametrize("use", READING)
def test_case_042_deleted_jax_array_says_so(session: tfi.Session, device: str, use: Use):
    with jax.default_device(jax.devices(device)[0]):
        x = jnp.arange(4.0)
    x.delete()
    with refused(session, tfi.RuntimeStateError, actual="deleted"):
        use(session, x)


def test_case_042_donated_jax_array_says_so(cpu_session: tfi.Session):
    with jax.default_device(jax.devices("cpu")[0]):
        x = jnp.arange(4.0)
        jax.jit(lambda v: v + 1, donate_argnums=0)(x).block_until_ready()
    with refused(cpu_session, tfi.RuntimeStateError, actual="deleted"):
        launch_reads(cpu_session, x)


@pytest.mark.parametrize("value", [3, "text", None, object(), [1.0], {"a": 1}, np.float32(3)])
def test_case_042_what_exports_nothing_is_named(cpu_session: tfi.Session, value: object):
    with refused(cpu_session, tfi.SignatureError, op="tensor") as caught:
        cpu_session.tensor(value)
    assert type(value).__name__ in str(caught.value)


def test_case_042_bare_address_is_never_a_tensor(cpu_session: tfi.Session):
    with refused(cpu_session, tfi.SignatureError, index=0, actual="int"):
        cpu_session.launch(reader(cpu_session, "float"), ONE, [ctypes.addressof((ctypes.c_float * 4)())])
