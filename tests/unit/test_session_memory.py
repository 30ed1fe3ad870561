"""The session's verbs that move bytes: outputs, workspaces, uploads, copies, retained tensors and downloads."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tenferro_interop as tfi

ADD_ONE = 'extern "C" __global__ void add_one(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1.0f; }'


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


@pytest.mark.parametrize(
    ("dst", "src", "nbytes"), [(4, 8, None), (8, 4, 5), (4, 8, 5), (8, 8, -1), (8, 8, True), (8, 8, 1.0)]
)
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
            s.launch(add, tfi.LaunchConfig(1, 64), [s.retain_tensor(x)[:8], 2])
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
    session.launch(session.compile_nvrtc(ADD_ONE).function("add_one"), tfi.LaunchConfig(1, 64), [x, 4])
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
    assert session.pending_count == 0


# Images on the CPU device


@pytest.mark.parametrize("load", [lambda s: s.load_ptx(".version 8.0"), lambda s: s.load_cubin(b"\x7fELF")])
def test_cpu_loads_no_machine_code_and_says_what_to_do(load: Callable[[tfi.Session], Any]):
    with tfi.session("cpu") as s, pytest.raises(tfi.UnsupportedError, match=r"s\.compile_nvrtc\(source\)") as error:
        load(s)
    assert error.value.op in ("load_ptx", "load_cubin")
