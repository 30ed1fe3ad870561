"""Sessions: opening and closing, nesting, threads and processes, and the verbs that move bytes."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from support import in_subprocess

import tenferro_interop as tfi

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
    with pytest.raises(tfi.ValidationError, match="StreamRef.from_handle") as error:
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


def test_exception_in_the_block_is_not_replaced_by_a_failing_close(device: str):
    with pytest.raises(ValueError, match="mine") as error, tfi.session(device):
        inner = tfi.session(device)
        raise ValueError("mine")
    inner.close()
    assert any("closing the session failed too" in note for note in error.value.__notes__)


@pytest.fixture
def _no_session_left():
    """Close what a test left open on purpose."""
    from tenferro_interop import _core

    before = _core.innermost()
    yield
    while _core.innermost() is not before:
        _core.innermost().close()


test_exception_in_the_block_is_not_replaced_by_a_failing_close = pytest.mark.usefixtures("_no_session_left")(
    test_exception_in_the_block_is_not_replaced_by_a_failing_close
)


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
def test_launch_on_the_default_stream_after_another_context_is_current():
    x = torch.zeros(4, device="cuda")
    with tfi.session(like=x) as s:
        add_one(s, x)
        from cuda.bindings import driver

        driver.cuCtxPushCurrent(driver.CUcontext(0))
        try:
            add_one(s, x)
        finally:
            driver.cuCtxPopCurrent()
    assert x.tolist() == [2.0] * 4


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
        print(run(), flush=True)
        if pid == 0:
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
    """)
    assert (done.returncode, done.stdout) == (0, "64.0\n64.0\n0\n"), done.stderr


def test_session_left_open_does_not_disturb_the_exit_of_the_process(device: str):
    done = in_subprocess(f"""
        import tenferro_interop as tfi
        s = tfi.session({device!r})
        span = s.alloc_bytes(64)
    """)
    assert (done.returncode, done.stderr) == (0, "")


# Memory


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "uint8", "float16"])
def test_output_has_the_shape_and_type_asked_for(session: tfi.Session, dtype: str):
    out = session.alloc_output((2, 3), dtype)
    assert (out.shape, out.strides, out.dtype.name, out.nbytes) == ((2, 3), (3, 1), dtype, 6 * out.dtype.itemsize)


def test_output_may_be_taken_over_after_the_session(device: str):
    with tfi.session(device) as s:
        out = s.alloc_output(4, "float32")
        fill = s.compile_nvrtc('extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 3.0f; }').function("fill")
        s.launch(fill, tfi.LaunchConfig(1, 4), [out])
    assert torch.from_dlpack(out).tolist() == [3.0] * 4


def test_output_like_a_tensor_is_of_its_framework(session: tfi.Session, device: str):
    out = session.alloc_output((2, 3), "float32", like=torch.zeros(1, device=device))
    assert isinstance(out, torch.Tensor)
    assert (tuple(out.shape), out.dtype, out.device.type) == ((2, 3), torch.float32, device)


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**70, 0), (-1,), (True,), (1.5,), (2**63,)])
def test_output_shape_that_cannot_be_addressed_is_refused(session: tfi.Session, shape: tuple[Any, ...]):
    with pytest.raises(tfi.ValidationError) as error:
        session.alloc_output(shape, "float32")
    assert error.value.argument == "shape"


@pytest.mark.parametrize("dtype", ["float33", "object", "struct", "void"])
def test_output_of_unknown_type_is_refused(session: tfi.Session, dtype: str):
    with pytest.raises(tfi.DTypeError) as error:
        session.alloc_output(1, dtype)
    assert error.value.argument == "dtype"


def test_allocation_that_cannot_be_had_is_a_backend_error(session: tfi.Session):
    with pytest.raises(tfi.BackendError) as error:
        session.alloc_bytes(2**62)
    assert error.value.op == "alloc"
    assert error.value.name


@pytest.mark.parametrize("nbytes", [-1, True, 1.0, "4", 2**63, 2**64, None])
def test_size_that_is_no_size_is_refused(session: tfi.Session, nbytes: Any):
    with pytest.raises(tfi.ValidationError) as error:
        session.alloc_bytes(nbytes)
    assert (error.value.op, error.value.argument) == ("alloc_bytes", "nbytes")


def test_workspace_has_its_size(session: tfi.Session):
    span = session.alloc_bytes(1024)
    assert (span.nbytes, len(span)) == (1024, 1024)
    assert span.raw_address() % 256 == 0


def test_workspace_of_no_bytes_is_an_empty_span(session: tfi.Session):
    span = session.alloc_bytes(0)
    assert (span.nbytes, span.raw_address()) == (0, 0)


def test_workspace_slices_share_the_memory(session: tfi.Session):
    span = session.alloc_bytes(100)
    part = span[10:30][5:]
    assert (part.nbytes, part.raw_address()) == (15, span.raw_address() + 15)


@pytest.mark.parametrize("part", [slice(None, None, 2), slice(None, None, -1), 3])
def test_workspace_takes_plain_slices_only(session: tfi.Session, part: Any):
    with pytest.raises(tfi.ValidationError, match=r"\[start:stop\]"):
        session.alloc_bytes(10)[part]


def test_workspace_slice_keeps_the_memory_alive(session: tfi.Session):
    span = session.upload_bytes(b"abcdefgh")
    part = span[4:]
    del span
    gc.collect()
    assert downloaded(session, part) == b"efgh"


def downloaded(s: tfi.Session, span: tfi.DeviceBytes) -> bytes:
    out = s.alloc_output(span.nbytes, "uint8")
    s.copy_bytes(s.tensor_mut(out), span)
    return bytes(s.download_tensor(out))


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", "u1")])
def test_upload_takes_anything_bytes_like(session: tfi.Session, data: Any):
    assert downloaded(session, session.upload_bytes(data)) == b"abc"


def test_upload_is_a_snapshot(session: tfi.Session):
    data = bytearray(b"before")
    span = session.upload_bytes(data)
    data[:] = b"after!"
    assert downloaded(session, span) == b"before"


def test_upload_of_nothing_is_an_empty_span(session: tfi.Session):
    assert session.upload_bytes(b"").nbytes == 0


@pytest.mark.parametrize("data", [5, "text", None, [1, 2]])
def test_upload_of_what_is_not_bytes_is_refused(session: tfi.Session, data: Any):
    with pytest.raises(tfi.ValidationError) as error:
        session.upload_bytes(data)
    assert (error.value.op, error.value.argument) == ("upload_bytes", "data")


def test_copy_takes_all_of_the_source_by_default(session: tfi.Session):
    target = session.upload_bytes(b"........")
    session.copy_bytes(target, session.upload_bytes(b"abcd"))
    assert downloaded(session, target) == b"abcd...."


def test_copy_takes_as_many_bytes_as_asked(session: tfi.Session):
    target = session.upload_bytes(b"........")
    session.copy_bytes(target[2:], session.upload_bytes(b"abcd"), 3)
    assert downloaded(session, target) == b"..abc..."


def test_copy_of_no_bytes_does_nothing(session: tfi.Session):
    target = session.upload_bytes(b"keep")
    session.copy_bytes(target, session.alloc_bytes(0))
    session.copy_bytes(target, target, 0)
    assert downloaded(session, target) == b"keep"


@pytest.mark.parametrize(("dst", "src", "nbytes"), [(4, 8, None), (8, 4, 5), (4, 8, 5), (8, 8, -1), (8, 8, True), (8, 8, 1.0)])
def test_copy_beyond_a_span_is_refused(session: tfi.Session, dst: int, src: int, nbytes: Any):
    with pytest.raises(tfi.ValidationError) as error:
        session.copy_bytes(session.alloc_bytes(dst), session.alloc_bytes(src), nbytes)
    assert (error.value.op, error.value.argument) == ("copy_bytes", "nbytes")


@pytest.mark.parametrize(("dst", "src"), [(0, 0), (0, 3), (3, 0)])
def test_copy_onto_itself_is_refused(session: tfi.Session, dst: int, src: int):
    span = session.alloc_bytes(16)
    with pytest.raises(tfi.AliasError) as error:
        session.copy_bytes(span[dst:], span[src:], 4)
    assert error.value.argument == "dst"


def test_copy_between_neighbours_is_no_overlap(session: tfi.Session):
    span = session.upload_bytes(b"abcd....")
    session.copy_bytes(span[4:], span[:4])
    assert downloaded(session, span) == b"abcdabcd"


def test_copy_from_another_session_is_refused(session: tfi.Session, device: str):
    with tfi.session(device) as other:
        span = other.alloc_bytes(4)
        with pytest.raises(tfi.RuntimeStateError, match="this session") as error:
            session.copy_bytes(session.alloc_bytes(4), span)
    assert error.value.argument == "src"


@pytest.mark.parametrize("thing", [None, b"abcd", np.zeros(4, "u1"), 0])
def test_copy_takes_references_only(session: tfi.Session, thing: Any):
    with pytest.raises(tfi.SignatureError, match="DeviceBytes or tensor reference") as error:
        session.copy_bytes(session.alloc_bytes(4), thing)
    assert error.value.argument == "src"


def test_copy_into_a_read_reference_is_refused(session: tfi.Session, device: str):
    target = session.tensor(torch.zeros(4, device=device))
    with pytest.raises(tfi.ValidationError, match="tensor_mut") as error:
        session.copy_bytes(target, session.alloc_bytes(16))
    assert error.value.argument == "dst"


def test_copy_of_a_strided_tensor_is_refused(session: tfi.Session, device: str):
    source = session.tensor(torch.zeros(4, 4, device=device)[:, :2], strided=True)
    with pytest.raises(tfi.LayoutError):
        session.copy_bytes(session.alloc_bytes(64), source)


def test_copy_counts_as_a_write_of_a_torch_tensor(session: tfi.Session, device: str):
    target = torch.zeros(4, device=device)
    before = target._version
    session.copy_bytes(session.tensor_mut(target), session.upload_bytes(bytes(16)))
    assert target._version > before


def test_retained_tensor_outlives_its_owner(session: tfi.Session, device: str):
    x = torch.arange(4, dtype=torch.uint8, device=device)
    address = x.data_ptr()
    span = session.retain_tensor(x)
    del x
    gc.collect()
    assert span.raw_address() == address
    assert downloaded(session, span) == bytes([0, 1, 2, 3])


def test_retained_read_only_memory_is_not_written():
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    with tfi.session("cpu") as s:
        add = s.compile_nvrtc(ADD_ONE).function("add_one")
        with pytest.raises(tfi.ValidationError, match="read-only"):
            s.launch(add, ONE_BLOCK, [s.retain_tensor(x)[:8], 2])
        with pytest.raises(tfi.ValidationError, match="read-only"):
            s.copy_bytes(s.retain_tensor(x), s.alloc_bytes(4))
    assert x.tolist() == [0.0] * 4


def test_leaked_bytes_are_never_given_back(session: tfi.Session):
    span = session.upload_bytes(b"abcd")
    owner = weakref.ref(span.owner)
    assert span.leak() == span.raw_address()
    del span
    gc.collect()
    assert owner() is not None


# Downloads


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64, torch.uint8, torch.float16])
def test_download_returns_the_values(session: tfi.Session, device: str, dtype: torch.dtype):
    x = torch.tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype, device=device)
    out = session.download_tensor(x)
    assert (out.dtype.name, out.tolist()) == (str(dtype).partition(".")[2], x.tolist())


def test_download_of_bfloat16_gives_its_bits(session: tfi.Session, device: str):
    out = session.download_tensor(torch.tensor([1.0, -2.0], dtype=torch.bfloat16, device=device))
    assert (out.dtype.name, out.tolist()) == ("uint16", [0x3F80, 0xC000])


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 3, 2)])
def test_download_of_no_elements_keeps_the_shape(session: tfi.Session, device: str, shape: tuple[int, ...]):
    assert session.download_tensor(torch.zeros(shape, device=device)).shape == shape


def test_download_of_a_scalar_tensor(session: tfi.Session, device: str):
    assert session.download_tensor(torch.tensor(3.0, device=device)).tolist() == 3.0


def test_download_takes_a_reference(session: tfi.Session, device: str):
    ref = session.tensor(torch.arange(3, device=device))
    assert session.download_tensor(ref).tolist() == [0, 1, 2]


def test_download_is_a_copy():
    x = np.zeros(3)
    with tfi.session("cpu") as s:
        out = s.download_tensor(x)
    out[:] = 7
    assert x.tolist() == [0.0] * 3


def test_download_sees_what_was_launched_before(session: tfi.Session, device: str):
    x = torch.zeros(4, device=device)
    add_one(session, x)
    assert session.download_tensor(x).tolist() == [1.0] * 4


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2,), (0,)])
def test_download_of_a_host_array_is_refused_on_a_gpu(shape: tuple[int, ...]):
    with tfi.session("cuda") as s, pytest.raises(tfi.RuntimeStateError, match="must be on cuda:0, got cpu"):
        s.download_tensor(np.zeros(shape))


def test_download_of_another_sessions_reference_is_refused(session: tfi.Session, device: str):
    with tfi.session(device) as other:
        ref = other.tensor(torch.zeros(1, device=device))
        with pytest.raises(tfi.RuntimeStateError, match="this session"):
            session.download_tensor(ref)


def test_synchronize_lets_go_of_what_was_in_use(session: tfi.Session):
    session.copy_bytes(session.alloc_bytes(8), session.upload_bytes(bytes(8)))
    session.synchronize()
    assert session.pending == []


# Images on the CPU device


@pytest.mark.parametrize("load", [lambda s: s.load_ptx(".version 8.0"), lambda s: s.load_cubin(b"\x7fELF")])
def test_cpu_loads_no_machine_code_and_says_what_to_do(load: Callable[[tfi.Session], Any]):
    with tfi.session("cpu") as s, pytest.raises(tfi.UnsupportedError, match=r"s\.compile_nvrtc\(source\)") as error:
        load(s)
    assert error.value.op in ("load_ptx", "load_cubin")
