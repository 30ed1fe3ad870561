"""Sessions: opening and closing, nesting, threads and processes, and the verbs that move bytes."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from support import in_subprocess

import tenferro_interop as tfi
from tenferro_interop import _core

ADD_ONE = 'extern "C" __global__ void add_one(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1.0f; }'
ONE_BLOCK = tfi.LaunchConfig(1, 64)
VERBS: dict[str, Callable[[tfi.Session], Any]] = {
    "synchronize": lambda s: s.synchronize(),
    "tensor": lambda s: s.tensor(np.zeros(1)),
    "tensor_mut": lambda s: s.tensor_mut(np.zeros(1)),
    "alloc_output": lambda s: s.alloc_output(1, "float32"),
    "retain_tensor": lambda s: s.retain_tensor(np.zeros(1)),
    "alloc_bytes": lambda s: s.alloc_bytes(1),
    "upload_bytes": lambda s: s.upload_bytes(b"x"),
    "copy_bytes": lambda s: s.copy_bytes(None, None),
    "download_tensor": lambda s: s.download_tensor(np.zeros(1)),
    "load_ptx": lambda s: s.load_ptx("x"),
    "load_cubin": lambda s: s.load_cubin(b"x"),
    "compile_nvrtc": lambda s: s.compile_nvrtc("x"),
    "launch": lambda s: s.launch(None, None, []),
    "prepare": lambda s: s.prepare(None, None, []),
    "resource": lambda s: s.resource("key", object),
    "__enter__": lambda s: s.__enter__(),
}


def in_new_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread that has used no CUDA yet."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def current_context() -> int:
    """Return the driver's current context of this thread, 0 for none."""
    from cuda.bindings import driver

    status, context = driver.cuCtxGetCurrent()
    assert int(status) == 0
    return int(context)


def add_one(s: tfi.Session, x: Any) -> None:
    s.launch(s.compile_nvrtc(ADD_ONE).function("add_one"), ONE_BLOCK, [x, x.numel()])


# Identity, device and stream


def test_identity_is_equal_for_two_sessions_of_a_device(device: str):
    with tfi.session(device) as first, tfi.session(device) as second:
        assert first.runtime_identity == second.runtime_identity
        assert hash(first.runtime_identity) == hash(second.runtime_identity)


def test_identity_outlives_its_session(device: str):
    with tfi.session(device) as first:
        identity = first.runtime_identity
    with tfi.session(device) as second:
        assert second.runtime_identity == identity


@pytest.mark.gpu
def test_identity_differs_across_devices():
    with tfi.session("cpu") as host, tfi.session("cuda") as gpu:
        assert host.runtime_identity != gpu.runtime_identity


def test_device_names_the_device(session: tfi.Session, device: str):
    assert session.device == {"cpu": "cpu", "cuda": "cuda:0"}[device]
    assert session.runtime_identity.device == session.device


def test_stream_speaks_the_stream_protocol(session: tfi.Session):
    assert isinstance(session.stream, tfi.StreamRef)
    assert session.stream.__cuda_stream__() == (0, session.stream.handle)


def test_stream_is_one_object_for_the_whole_session(session: tfi.Session):
    assert session.stream is session.stream


def test_stream_text_hides_the_handle(session: tfi.Session):
    assert str(session.stream.handle) not in repr(session.stream) or session.stream.handle == 0


@pytest.mark.gpu
def test_stream_of_our_own_is_not_the_default_stream():
    with tfi.session("cuda") as s:
        assert s.stream.handle > 2


@pytest.mark.gpu
def test_stream_is_the_frameworks_current_one():
    x, side = torch.zeros(4, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side), tfi.session(like=x) as s:
        assert s.stream.handle == side.cuda_stream


@pytest.mark.gpu
def test_stream_given_as_a_torch_stream_is_captured():
    side = torch.cuda.Stream()
    with tfi.session("cuda", stream=side) as s:
        assert s.stream.handle == side.cuda_stream


@pytest.mark.gpu
def test_stream_of_one_session_is_taken_by_another():
    with tfi.session("cuda") as outer, tfi.session("cuda", stream=outer.stream) as inner:
        assert inner.stream.handle == outer.stream.handle


# Opening


@pytest.mark.parametrize("device", [0, 1, True, 1.5, "gpu", "cuda:x", "cuda:-1", "cuda:1:2", "", b"cuda", object()])
def test_device_that_is_no_device_is_refused(device: object):
    with pytest.raises(tfi.ValidationError) as error:
        tfi.session(device)
    assert (error.value.op, error.value.argument) == ("session", "device")


def test_bare_int_stream_is_refused_on_the_cpu():
    with pytest.raises(tfi.ValidationError) as error:
        tfi.session("cpu", stream=5)
    assert (error.value.op, error.value.argument) == ("session", "stream")


@pytest.mark.gpu
@pytest.mark.parametrize("stream", [0, 1, 2, 5, True])
def test_bare_int_stream_is_refused_on_a_gpu(stream: int):
    with pytest.raises(tfi.ValidationError, match=r"StreamRef\.from_handle") as error:
        tfi.session("cuda", stream=stream)
    assert (error.value.op, error.value.argument) == ("session", "stream")


@pytest.mark.gpu
def test_device_that_is_not_there_is_refused():
    with pytest.raises(tfi.ValidationError, match="cuda:99") as error:
        tfi.session("cuda:99")
    assert error.value.argument == "device"


@pytest.mark.parametrize("name", ["cpu:0", "cpu:1", torch.device("cpu"), torch.device("cpu", 0)])
def test_every_name_of_the_cpu_is_one_runtime(name: object):
    with tfi.session("cpu") as plain, tfi.session(name) as named:
        assert named.runtime_identity == plain.runtime_identity


def test_torch_device_is_taken(device: str):
    with tfi.session(torch.device(device)) as s:
        assert s.device.startswith(device)


def test_like_says_the_device(device: str):
    with tfi.session(like=torch.zeros(1, device=device)) as s:
        assert s.device.startswith(device)


def test_like_and_the_same_device_agree(device: str):
    with tfi.session(device, like=torch.zeros(1, device=device)) as s:
        assert s.device.startswith(device)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 0)])
def test_host_like_contradicts_a_gpu(device: object):
    with pytest.raises(tfi.ValidationError, match="like") as error:
        tfi.session(device, like=np.zeros(1))
    assert error.value.argument == "device"


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_gpu_like_contradicts_another_device(device: str):
    with pytest.raises(tfi.ValidationError, match="like") as error:
        tfi.session(device, like=torch.zeros(1, device="cuda:0"))
    assert error.value.argument == "device"


@pytest.mark.parametrize("like", [3, "x", object(), [1, 2]])
def test_like_must_be_a_tensor(like: object):
    with pytest.raises(tfi.SignatureError, match="__dlpack__"):
        tfi.session(like=like)


def test_cpu_takes_no_stream():
    with pytest.raises(tfi.ValidationError, match="must be None for the CPU device") as error:
        tfi.session("cpu", stream=tfi.StreamRef.from_handle(0))
    assert error.value.argument == "stream"


def test_without_a_gpu_a_cuda_session_points_to_the_cpu():
    done = in_subprocess("""
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import tenferro_interop as tfi
        try:
            tfi.session("cuda")
        except tfi.UnsupportedError as error:
            print(error)
    """)
    assert "tfi.session('cpu')" in done.stdout, done.stderr


def test_without_a_gpu_the_default_is_the_cpu():
    done = in_subprocess("""
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import tenferro_interop as tfi
        with tfi.session() as s:
            print(s.device)
    """)
    assert done.stdout == "cpu\n", done.stderr


@pytest.mark.gpu
def test_default_is_the_first_gpu():
    with tfi.session() as s:
        assert s.device == "cuda:0"


def test_open_failure_leaves_no_session_open(device: str):
    with tfi.session(device) as s:
        with pytest.raises(tfi.ValidationError):
            tfi.session(0)
        s.synchronize()


@pytest.mark.parametrize(
    "cls",
    [
        tfi.Session, tfi.TensorRef, tfi.TensorMut, tfi.DeviceBytes, tfi.DeviceTensor, tfi.Module, tfi.Function,
        tfi.StreamRef, tfi.ResourceGuard,
    ],
)  # fmt: skip
def test_what_a_session_makes_cannot_be_constructed(cls: type):
    with pytest.raises(tfi.RuntimeStateError, match=f"{cls.__name__} must come from"):
        cls()


# Nesting and closing


def test_nested_sessions_close_last_in_first_out(device: str):
    outer, inner = tfi.session(device), tfi.session(device)
    inner.close()
    outer.close()
    assert not outer.open


def test_closing_out_of_order_is_refused_and_changes_nothing(device: str):
    with tfi.session(device) as outer, tfi.session(device) as inner:
        with pytest.raises(tfi.RuntimeStateError) as error:
            outer.close()
        assert error.value.op == "close"
        inner.synchronize()
        outer.synchronize()


def test_outer_session_works_after_the_inner_one(device: str):
    x = torch.zeros(4, device=device)
    with tfi.session(device) as outer:
        with tfi.session(device) as inner:
            add_one(inner, x)
        add_one(outer, x)
    assert x.tolist() == [2.0] * 4


def test_outer_session_works_inside_the_inner_one(device: str):
    x = torch.zeros(4, device=device)
    with tfi.session(device) as outer, tfi.session(device):
        add_one(outer, x)
    assert x.tolist() == [1.0] * 4


@pytest.mark.gpu
def test_cpu_and_gpu_sessions_nest():
    host, gpu = torch.zeros(4), torch.zeros(4, device="cuda")
    with tfi.session("cuda") as outer, tfi.session("cpu") as inner:
        add_one(inner, host)
        add_one(outer, gpu)
    assert host.tolist() == gpu.tolist() == [1.0] * 4


def test_closing_twice_does_nothing(device: str):
    with tfi.session(device) as s:
        s.close()
        s.close()
    assert not s.open


def test_closing_leaves_the_block_of_an_outer_session(device: str):
    with tfi.session(device) as outer:
        with tfi.session(device) as inner:
            inner.close()
        outer.synchronize()


def test_verbs_list_is_complete():
    public = {name for name in dir(tfi.Session) if not name.startswith("_") and callable(getattr(tfi.Session, name))}
    assert public - {"close"} == set(VERBS) - {"__enter__"}


@pytest.mark.parametrize("verb", VERBS)
def test_verb_after_close_is_refused(device: str, verb: str):
    s = tfi.session(device)
    s.close()
    with pytest.raises(tfi.RuntimeStateError, match="must be open, got a closed one"):
        VERBS[verb](s)


@pytest.mark.parametrize("verb", VERBS)
def test_verb_in_another_thread_is_refused(session: tfi.Session, verb: str):
    with pytest.raises(tfi.RuntimeStateError, match="in the thread that opened it"):
        in_new_thread(lambda: VERBS[verb](session))


def test_closing_in_another_thread_is_refused(session: tfi.Session):
    with pytest.raises(tfi.RuntimeStateError, match="thread"):
        in_new_thread(session.close)
    session.synchronize()


def test_session_goes_on_after_use_in_another_thread(session: tfi.Session, device: str):
    x = torch.zeros(4, device=device)
    with pytest.raises(tfi.RuntimeStateError):
        in_new_thread(lambda: add_one(session, x))
    add_one(session, x)
    session.synchronize()
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exception_in_the_block_closes_the_session(device: str, kind: type[BaseException]):
    with pytest.raises(kind), tfi.session(device) as s:
        raise kind
    assert not s.open


@pytest.fixture
def _no_session_left() -> Iterator[None]:
    """Close what a test left open on purpose."""
    before = _core.innermost()
    yield
    while _core.innermost() is not before:
        _core.innermost().close()


@pytest.mark.usefixtures("_no_session_left")
def test_exception_in_the_block_is_not_replaced_by_a_failing_close(device: str):
    def leave_an_inner_session_open() -> None:
        with tfi.session(device):
            tfi.session(device)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as error:
        leave_an_inner_session_open()
    assert any("closing the session failed too" in note for note in error.value.__notes__)


def test_refs_die_with_their_session(device: str):
    with tfi.session(device) as s:
        ref, span = s.tensor(torch.zeros(1, device=device)), s.alloc_bytes(8)
    for memory in (ref, span):
        with pytest.raises(tfi.RuntimeStateError, match="closed session"):
            memory.raw_address()


def test_tensor_is_let_go_with_its_reference(session: tfi.Session):
    class Tracked(np.ndarray):
        pass

    x = np.zeros(4).view(Tracked)
    alive = weakref.ref(x)
    if session.device == "cpu":
        session.tensor(x)
    del x
    gc.collect()
    assert alive() is None


def test_two_threads_work_in_sessions_of_their_own(device: str):
    ready = threading.Barrier(2)

    def work(start: float) -> list[float]:
        x = torch.full((4,), start, device=device)
        with tfi.session(device) as s:
            ready.wait(60)
            for _ in range(50):
                add_one(s, x)
            s.synchronize()
        return x.tolist()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, [0.0, 100.0])
    assert (first, second) == ([50.0] * 4, [150.0] * 4)


# The driver's context, before and after


@pytest.mark.gpu
def test_thread_without_context_has_none_afterwards():
    def work() -> tuple[int, bool, int]:
        before = current_context()
        with tfi.session("cuda"):
            inside = current_context()
        return before, inside != 0, current_context()

    with tfi.session("cuda"):
        pass  # the driver is up
    assert in_new_thread(work) == (0, True, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_exception_restores_a_thread_without_context(kind: type[BaseException]):
    def work() -> tuple[int, int]:
        before = current_context()
        with pytest.raises(kind), tfi.session("cuda"):
            raise kind
        return before, current_context()

    with tfi.session("cuda"):
        pass
    assert in_new_thread(work) == (0, 0)


@pytest.mark.gpu
def test_nested_sessions_restore_a_thread_without_context():
    def work() -> list[int]:
        seen = []
        with tfi.session("cuda"):
            outer = current_context()
            with tfi.session("cuda"):
                seen.append(current_context() - outer)
            seen.append(current_context() - outer)
        return [*seen, current_context()]

    with tfi.session("cuda"):
        pass
    assert in_new_thread(work) == [0, 0, 0]


@pytest.mark.gpu
def test_refused_launch_keeps_the_context():
    with tfi.session("cuda") as s:
        before = current_context()
        with pytest.raises(tfi.ValidationError):
            s.launch(None, ONE_BLOCK, [])
        assert current_context() == before


@pytest.mark.gpu
def test_frameworks_context_and_device_are_as_before():
    torch.zeros(1, device="cuda")
    before = (current_context(), torch.cuda.current_device())
    with tfi.session("cuda") as s:
        s.synchronize()
    assert (current_context(), torch.cuda.current_device()) == before


@pytest.mark.gpu
def test_context_pushed_and_left_inside_is_reported():
    from cuda.bindings import driver

    def work() -> str:
        s = tfi.session("cuda")
        status, device = driver.cuDeviceGet(0)
        assert int(status) == 0
        status, other = driver.cuCtxCreate(None, 0, device)
        assert int(status) == 0
        try:
            with pytest.raises(tfi.RuntimeStateError) as error:
                s.close()
            return str(error.value)
        finally:
            driver.cuCtxDestroy(other)
            driver.cuCtxPopCurrent()

    assert "pushed a context" in in_new_thread(work)


@pytest.mark.gpu
def test_launch_on_the_default_stream_works_without_a_current_context():
    x = torch.zeros(4, device="cuda")
    from cuda.bindings import driver

    with tfi.session(like=x) as s:
        add_one(s, x)
        primary = current_context()
        driver.cuCtxSetCurrent(driver.CUcontext(0))
        try:
            add_one(s, x)
            during = current_context()
        finally:
            driver.cuCtxSetCurrent(driver.CUcontext(primary))
    assert (during, x.tolist()) == (0, [2.0] * 4)


# Processes


def test_forked_child_is_refused_and_the_parent_goes_on(device: str):
    done = in_subprocess(f"""
        import os
        import numpy as np, torch
        import tenferro_interop as tfi
        s = tfi.session({device!r})
        span = s.upload_bytes(b"abcd")
        pid = os.fork()
        if pid == 0:
            try:
                s.tensor(np.zeros(1))
            except tfi.RuntimeStateError as error:
                print(f"pid {{os.getppid()}}" in str(error), "forked child" in str(error), flush=True)
            s.close()
            del span
            os._exit(0)
        print(os.waitpid(pid, 0)[1], flush=True)
        out = s.alloc_output(4, "uint8")
        s.copy_bytes(s.tensor_mut(out), span)
        print(bytes(s.download_tensor(out)))
        s.close()
    """)
    assert (done.returncode, done.stdout) == (0, "True True\n0\nb'abcd'\n"), done.stderr


def test_forked_child_opens_a_cpu_session_of_its_own():
    done = in_subprocess(f"""
        import os
        import numpy as np
        import tenferro_interop as tfi
        def run():
            x = np.zeros(64, np.float32)
            with tfi.session("cpu") as s:
                s.launch(s.compile_nvrtc({ADD_ONE!r}).function("add_one"), tfi.LaunchConfig(1, 64), [x, 64])
            return x.sum()
        run()
        pid = os.fork()
        if pid == 0:
            os._exit(int(run()))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), run())
    """)
    assert (done.returncode, done.stdout) == (0, "64 64.0\n"), done.stderr


def test_session_left_open_does_not_disturb_the_exit_of_the_process(device: str):
    done = in_subprocess(f"""
        import tenferro_interop as tfi
        s = tfi.session({device!r})
        span = s.alloc_bytes(64)
    """)
    assert (done.returncode, done.stderr) == (0, "")
