"""What the driver is asked, to the byte and the stream: programs over a driver that runs nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import stub_driver

Run = Callable[[str], list[str]]


@pytest.fixture(scope="session")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_driver.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def run(driver_folder: Path) -> Run:
    """Run a program to its end and return the lines it printed."""

    def finished(program: str) -> list[str]:
        done = stub_driver.run(program, driver_folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return finished


def kernel(parameters: str, *sizes: int) -> str:
    """Return the head of a program: `k`, a kernel of these parameters that the driver knows by their sizes."""
    return f"""
declare("k", {", ".join(map(str, sizes))})
def compiled(s):
    return s.compile_nvrtc('''#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k({parameters}) {{}}''').function("k")
"""


NOTHING = kernel("")


@pytest.mark.parametrize(
    ("c_type", "value", "layout", "expected"),
    [
        ("float", "1.5", "<f", 1.5),
        ("float", "3", "<f", 3.0),
        ("double", "0.1", "<d", 0.1),
        ("__half", "1.5", "<e", 1.5),
        ("__nv_bfloat16", "-2.0", "<H", 0xC000),
        ("bool", "True", "<B", 1),
        ("signed char", "-128", "<b", -128),
        ("unsigned char", "255", "<B", 255),
        ("short", "-2", "<h", -2),
        ("int", "-(2**31)", "<i", -(2**31)),
        ("unsigned", "2**32 - 1", "<I", 2**32 - 1),
        ("long long", "-(2**63)", "<q", -(2**63)),
        ("unsigned long long", "2**64 - 1", "<Q", 2**64 - 1),
        ("double2", "tfi.KernelArg.struct(bytes(range(16)))", "<16s", bytes(range(16))),
    ],
)
def test_number_reaches_the_driver_in_its_declared_width(
    run: Run, c_type: str, value: str, layout: str, expected: object
):
    lines = run(
        kernel(f"{c_type} value", struct.calcsize(layout))
        + f"""
with tfi.session("cuda") as s:
    s.launch(compiled(s), tfi.LaunchConfig(1, 1), [{value}])
print(log()[-1].partition("args=")[2])
"""
    )
    assert bytes.fromhex(lines[0]) == struct.pack(layout, expected)


def test_tensors_numbers_and_geometry_of_one_launch(run: Run):
    lines = run(
        kernel("float a, const float* x, float* y, long long n", 4, 8, 8, 8)
        + """
from tenferro_interop.testing import FakeProducer
x = FakeProducer((3, 4), device=(2, 0), data=0x7000, byte_offset=64)
with tfi.session("cuda") as s:
    y = s.alloc_output((12,), "float32")
    s.launch(compiled(s), tfi.LaunchConfig((2, 3, 4), (32, 2, 1), 1024), [2.0, x, y, 12])
    print(log()[-1])
    print(s.stream.handle, s.tensor(y)._address)
"""
    )
    stream, y = map(int, lines[1].split())
    args = "|".join(
        struct.pack(layout, value).hex() for layout, value in (("<f", 2), ("<Q", 0x7040), ("<Q", y), ("<q", 12))
    )
    assert lines[0] == (f"launch k stream={stream:#x} context=0xc0 grid=2,3,4 block=32,2,1 shared=1024 args={args}")


def test_forty_one_arguments_are_all_packed(run: Run):
    lines = run(
        kernel(", ".join(f"int p{i}" for i in range(41)), *([4] * 41))
        + """
with tfi.session("cuda") as s:
    s.launch(compiled(s), tfi.LaunchConfig(1, 1), list(range(41)))
print(log()[-1].partition("args=")[2])
"""
    )
    assert lines[0] == "|".join(struct.pack("<i", i).hex() for i in range(41))


def test_clusters_cooperative_and_programmatic_launch_are_attributes(run: Run):
    lines = run(
        NOTHING
        + """
with tfi.session("cuda") as s:
    s.launch(compiled(s), tfi.LaunchConfig(4, 1, cluster=(2,), cooperative=True, programmatic=True), [])
print(*log()[1:], sep="\\n")
"""
    )
    assert lines[:3] == ["attribute 4=2,1,1", "attribute 2=1,0,0", "attribute 6=1,0,0"]
    assert lines[3].startswith("launch k ")


@pytest.mark.parametrize(("handle", "named"), [(0, "(nil)"), (1, "0x1"), (0x5550, "0x5550")])
def test_launch_goes_to_the_stream_that_was_given(run: Run, handle: int, named: str):
    lines = run(
        NOTHING
        + f"""
with tfi.session("cuda", stream=tfi.StreamRef.from_handle({handle})) as s:
    s.launch(compiled(s), tfi.LaunchConfig(1, 1), [])
    s.synchronize()
print(*log()[-2:], sep="\\n")
"""
    )
    assert f"launch k stream={named} context=0xc0 " in lines[0]
    assert lines[1] == f"synchronize stream={named}"


@pytest.mark.parametrize(("handle", "told"), [(0, 1), (1, 1), (0x5550, 0x5550)])
def test_producer_is_told_the_stream_by_the_rules_of_the_protocol(run: Run, handle: int, told: int):
    lines = run(
        kernel("const float* x", 8)
        + f"""
from tenferro_interop.testing import FakeProducer
x = FakeProducer((4,), device=(2, 0))
with tfi.session("cuda", stream=tfi.StreamRef.from_handle({handle})) as s:
    s.launch(compiled(s), tfi.LaunchConfig(1, 1), [x])
print(x.calls[-1]["stream"])
"""
    )
    assert lines == [str(told)]


def test_empty_geometry_asks_the_driver_nothing(run: Run):
    lines = run(
        NOTHING
        + """
with tfi.session("cuda") as s:
    k = compiled(s)
    log()
    s.launch(k, tfi.LaunchConfig.flat(0), [])
    print(log())
"""
    )
    assert lines == ["[]"]


def test_previous_context_is_current_again_afterwards(run: Run):
    lines = run(
        NOTHING
        + """
current = ctypes.c_void_p()
with tfi.session("cuda"):
    pass
stub.cuCtxPushCurrent(ctypes.c_void_p(0xC1))
try:
    with tfi.session("cuda") as s:
        k = compiled(s)
        s.launch(k, tfi.LaunchConfig(1, 1), [])
        print(log()[-1])
        raise KeyboardInterrupt
except KeyboardInterrupt:
    stub.cuCtxGetCurrent(ctypes.byref(current))
    print(hex(current.value))
"""
    )
    assert "context=0xc0" in lines[0]
    assert lines[1] == "0xc1"


def test_array_of_another_session_is_ordered_by_an_event(run: Run):
    lines = run(
        kernel("float* y", 8)
        + """
with tfi.session("cuda") as first:
    y = first.alloc_output((4,), "float32")
    with tfi.session("cuda") as second:
        k = compiled(second)
        log()
        second.launch(k, tfi.LaunchConfig(1, 1), [y])
        print(first.stream.handle, second.stream.handle)
        print(*log(), sep="\\n")
"""
    )
    first, second = (f"{int(handle):#x}" for handle in lines[0].split())
    assert first != second
    assert lines[1].startswith("record event=")
    assert lines[1].endswith(f"stream={first}")
    assert lines[2].startswith(f"wait stream={second} event=")
    assert lines[3].startswith(f"launch k stream={second} ")


def test_case_093_opt_in_to_shared_memory_only_grows(run: Run):
    lines = run(
        NOTHING
        + """
with tfi.session("cuda") as s:
    for nbytes in (100, 60, 4, 80, 120, 100):
        s.launch(compiled(s), tfi.LaunchConfig(1, 1, nbytes << 10), [])
print([line for line in log() if line.startswith("grant")])
"""
    )
    assert lines == [f"{[f'grant k shared={100 << 10}', f'grant k shared={120 << 10}']}"]


def test_refused_launch_names_the_drivers_code_and_the_session_works_on(run: Run):
    lines = run(
        NOTHING
        + """
with tfi.session("cuda") as s:
    k = compiled(s)
    fail("cuLaunchKernel", 719)
    try:
        s.launch(k, tfi.LaunchConfig(1, 1), [])
    except tfi.BackendError as error:
        print(error.op, error.code, error.name)
    log()
    s.launch(k, tfi.LaunchConfig(1, 1), [])
    print(len(log()))
"""
    )
    assert lines == ["launch 719 CUDA_ERROR_LAUNCH_FAILED", "1"]


def test_case_121_fault_is_told_by_the_barrier_with_the_last_launches(run: Run):
    lines = run(
        NOTHING
        + """
with tfi.session("cuda") as s:
    k = compiled(s)
    s.launch(k, tfi.LaunchConfig(1, 1), [])
    fail("cuStreamSynchronize", 700)
    try:
        s.synchronize()
    except tfi.BackendError as error:
        print(error.code, error.recent)
    for use in (lambda: s.launch(k, tfi.LaunchConfig(1, 1), []), lambda: s.alloc_bytes(4), lambda: tfi.session("cuda")):
        try:
            use()
        except tfi.RuntimeStateError as error:
            print(error.op)
print("closed")
"""
    )
    assert lines == ["700 ['k']", "launch", "alloc_bytes", "session", "closed"]


def test_case_117_reset_device_is_an_error_and_closing_works(run: Run):
    lines = run(
        NOTHING
        + """
with tfi.session("cuda") as s:
    k = compiled(s)
    for function in ("cuLaunchKernel", "cuStreamSynchronize", "cuEventRecord", "cuMemFreeAsync"):
        fail(function, 709, 100)
    for use in (lambda: s.launch(k, tfi.LaunchConfig(1, 1), []), s.synchronize):
        try:
            use()
        except tfi.BackendError as error:
            print(error.op, error.name)
print("closed")
"""
    )
    assert lines == ["launch CUDA_ERROR_CONTEXT_IS_DESTROYED", "synchronize CUDA_ERROR_CONTEXT_IS_DESTROYED", "closed"]


def test_out_of_memory_is_named_and_the_session_works_on(run: Run):
    lines = run(
        """
with tfi.session("cuda") as s:
    fail("cuMemAllocAsync", 2)
    try:
        s.alloc_output((4,), "float32")
    except tfi.BackendError as error:
        print(error.op, error.name)
    print(s.alloc_output((4,), "float32").shape)
"""
    )
    assert lines == ["alloc CUDA_ERROR_OUT_OF_MEMORY", "(4,)"]


def test_size_that_the_driver_contradicts_is_refused(run: Run):
    lines = run(
        kernel("int n", 8)
        + """
with tfi.session("cuda") as s:
    try:
        compiled(s)
    except tfi.SignatureError as error:
        print(error.index, error.expected, error.actual)
"""
    )
    assert lines == ["0 8 4"]


def test_stream_of_another_context_is_refused(run: Run):
    lines = run(
        """
try:
    tfi.session("cuda", stream=tfi.StreamRef.from_handle(0x9000))
except tfi.ValidationError as error:
    print(error.argument)
"""
    )
    assert lines == ["stream"]


def test_capture_refuses_barriers_and_keeps_what_it_recorded(run: Run):
    lines = run(
        kernel("float* y", 8)
        + """
import gc
with tfi.session("cuda") as s:
    k, y = compiled(s), s.alloc_output((4,), "float32")
    log()
    capture(s.stream.handle)
    s.launch(k, tfi.LaunchConfig(1, 1), [y])
    for barrier in (s.synchronize, lambda: s.download_tensor(y), lambda: s.upload_bytes(b"1")):
        try:
            barrier()
        except tfi.RuntimeStateError as error:
            print(error.op)
    capture(0)
    del k, y
    gc.collect()
print([line.split()[0] for line in log()])
"""
    )
    assert lines == ["synchronize", "download_tensor", "upload_bytes", "['launch']"]


def test_prepared_launch_asks_for_the_stream_at_each_call(run: Run):
    lines = run(
        kernel("int n", 4)
        + """
with tfi.session("cuda") as s:
    prepared = s.prepare(compiled(s), tfi.LaunchConfig(1, 1), [7])
for handle in (0x5550, 0x6660):
    with tfi.session("cuda", stream=tfi.StreamRef.from_handle(handle)):
        prepared()
print([line.split()[2] for line in log() if line.startswith("launch")])
"""
    )
    assert lines == ["['stream=0x5550', 'stream=0x6660']"]


def test_memory_is_freed_in_the_order_of_its_stream(run: Run):
    lines = run(
        """
with tfi.session("cuda", stream=tfi.StreamRef.from_handle(0x5550)) as s:
    y = s.alloc_output((4,), "float32")
    span = s.upload_bytes(b"1234")
    del y, span
print(*log(), sep="\\n")
"""
    )
    assert lines == [
        "alloc nbytes=16 stream=0x5550", "alloc nbytes=4 stream=0x5550", "upload nbytes=4 stream=0x5550",
        "free stream=0x5550", "free stream=0x5550",
    ]  # fmt: skip
