"""Runtime-wide resources: made once per key, guarded while in use, retried when their making failed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tenferro_interop as tfi


@pytest.fixture
def key() -> object:
    """Return a key of its own for each test: resources live as long as the process."""
    return object()


def counting(made: list[int]) -> Any:
    """Return an init that counts its calls and returns their number."""

    def init() -> int:
        made.append(1)
        return len(made)

    return init


def test_init_runs_once(session: tfi.Session, key: object):
    made: list[int] = []
    for _ in range(3):
        with session.resource(key, counting(made)) as value:
            assert value == 1
    assert len(made) == 1


def test_resource_is_shared_by_the_sessions_of_a_device(device: str, key: object):
    with tfi.session(device) as first, first.resource(key, list) as value:
        value.append("kept")
    with tfi.session(device) as second, second.resource(key, list) as value:
        assert value == ["kept"]


@pytest.mark.gpu
def test_resource_belongs_to_one_device(key: object):
    with tfi.session("cpu") as host, host.resource(key, lambda: "host"):
        pass
    with tfi.session("cuda") as gpu, gpu.resource(key, lambda: "gpu") as value:
        assert value == "gpu"


def test_type_is_a_key(session: tfi.Session):
    class Handle:
        pass

    with session.resource(Handle, Handle) as first:
        pass
    with session.resource(Handle, Handle) as second:
        assert second is first


def test_keys_are_compared_by_value(session: tfi.Session, key: object):
    with session.resource((key, 1), lambda: "one"), session.resource((key, 2), lambda: "two") as other:
        assert other == "two"


def test_none_is_a_resource_like_any_other(session: tfi.Session, key: object):
    made: list[int] = []

    def init() -> None:
        made.append(1)

    for _ in range(2):
        with session.resource(key, init) as value:
            assert value is None
    assert len(made) == 1


@pytest.mark.parametrize("bad", [[], {}, ([],)])
def test_key_without_hash_is_refused(session: tfi.Session, bad: Any):
    with pytest.raises(tfi.ValidationError, match="hashable") as error:
        session.resource(bad, object)
    assert (error.value.op, error.value.argument) == ("resource", "key")


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_failing_init_raises_its_own_error_and_stores_nothing(
    session: tfi.Session, key: object, kind: type[BaseException]
):
    def fail() -> int:
        raise kind("first")

    with pytest.raises(kind, match="first"):
        session.resource(key, fail)
    with session.resource(key, lambda: 2) as value:
        assert value == 2


def test_asking_again_while_holding_is_an_error_and_no_deadlock(session: tfi.Session, key: object):
    with session.resource(key, object):
        with pytest.raises(tfi.RuntimeStateError, match="must not be asked for again") as error:
            session.resource(key, object)
        assert (error.value.op, error.value.argument) == ("resource", "key")


def test_init_asking_for_its_own_key_is_an_error_and_stores_nothing(session: tfi.Session, key: object):
    with pytest.raises(tfi.RuntimeStateError, match="must not be asked for again"):
        session.resource(key, lambda: session.resource(key, object))
    with session.resource(key, lambda: "made") as value:
        assert value == "made"


def test_init_may_ask_for_another_key(session: tfi.Session, key: object):
    def init() -> str:
        with session.resource((key, "inner"), lambda: "inner") as inner:
            return f"outer of {inner}"

    with session.resource(key, init) as value:
        assert value == "outer of inner"


def test_two_keys_may_be_held_together(session: tfi.Session, key: object):
    with session.resource((key, 1), lambda: 1) as one, session.resource((key, 2), lambda: 2) as two:
        assert (one, two) == (1, 2)


def test_threads_take_turns(device: str, key: object):
    together = threading.Barrier(4)
    inside: list[int] = []
    most: list[int] = []

    def work(_: int) -> None:
        with tfi.session(device) as s:
            together.wait(60)
            for _ in range(100):
                with s.resource(key, list) as value:
                    inside.append(1)
                    most.append(len(inside))
                    value.append(threading.get_ident())
                    inside.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    with tfi.session(device) as s, s.resource(key, list) as value:
        assert (len(value), len(set(value)), max(most)) == (400, 4, 1)


def test_only_one_thread_makes_the_resource(device: str, key: object):
    together, made = threading.Barrier(4), []

    def work(_: int) -> int:
        with tfi.session(device) as s:
            together.wait(60)
            with s.resource(key, counting(made)) as value:
                return value

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [1] * 4


def test_making_one_resource_does_not_hold_up_another(device: str, key: object):
    started, finish = threading.Event(), threading.Event()

    def slow() -> str:
        started.set()
        assert finish.wait(60)
        return "slow"

    def make() -> str:
        with tfi.session(device) as s, s.resource((key, "slow"), slow) as value:
            return value

    with ThreadPoolExecutor(1) as pool, tfi.session(device) as s:
        pending = pool.submit(make)
        assert started.wait(60)
        with s.resource((key, "quick"), lambda: "quick") as value:
            assert value == "quick"
        finish.set()
        assert pending.result(60) == "slow"


def test_waiting_thread_goes_on_after_a_failed_init(device: str, key: object):
    started, waiting = threading.Event(), threading.Event()

    def fail() -> str:
        started.set()
        assert waiting.wait(60)
        raise ValueError("first")

    def second() -> str:
        assert started.wait(60)
        waiting.set()
        with tfi.session(device) as s, s.resource(key, lambda: "second") as value:
            return value

    with ThreadPoolExecutor(1) as pool, tfi.session(device) as s:
        pending = pool.submit(second)
        with pytest.raises(ValueError, match="first"):
            s.resource(key, fail)
        assert pending.result(60) == "second"


def test_guard_lets_others_in_when_released(session: tfi.Session, key: object):
    session.resource(key, list).release()
    with session.resource(key, list) as value:
        assert value == []


def test_guard_may_be_released_twice(session: tfi.Session, key: object):
    guard = session.resource(key, list)
    guard.release()
    guard.release()
    other = session.resource(key, list)
    guard.release()
    with pytest.raises(tfi.RuntimeStateError):
        session.resource(key, list)
    other.release()


def test_value_after_release_is_refused(session: tfi.Session, key: object):
    guard = session.resource(key, list)
    guard.release()
    with pytest.raises(tfi.RuntimeStateError, match="released guard"):
        _ = guard.value


def test_guard_without_a_name_is_released_when_it_goes(session: tfi.Session, key: object):
    guard = session.resource(key, list)
    del guard
    with session.resource(key, list) as value:
        assert value == []


def test_guard_is_released_by_an_exception_in_its_block(session: tfi.Session, key: object):
    with pytest.raises(ValueError, match="mine"), session.resource(key, list):
        raise ValueError("mine")
    with session.resource(key, list) as value:
        assert value == []


def test_guard_outlives_its_session(device: str, key: object):
    with tfi.session(device) as s:
        guard = s.resource(key, lambda: "value")
    assert guard.value == "value"
    guard.release()


def test_kernel_may_be_kept_as_a_resource(device: str, key: object):
    source = 'extern "C" __global__ void nothing() {}'
    for _ in range(2):
        with (
            tfi.session(device) as s,
            s.resource(key, lambda s=s: s.compile_nvrtc(source).function("nothing")) as kernel,
        ):
            s.launch(kernel, tfi.LaunchConfig(1, 1), [])
