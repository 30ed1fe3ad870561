"""What each refused call says: (call, class, whole text), all on the CPU device.  `test_errors.py` runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenferro_interop as tfi
from tenferro_interop import KernelArg, LaunchConfig
from tenferro_interop.testing import FakeProducer

SOURCE = """
struct Pair { char a; double b; };
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] += a * x[threadIdx.x];
}
extern "C" __global__ void pair(Pair p) {}
extern "C" __global__ void pairs(const Pair* p) {}
extern "C" __global__ void add4(float4* x) {}
extern "C" __global__ void __launch_bounds__(128) small() {}
extern "C" __global__ void divide(int* x, int d) { *x = *x / d; }
"""
ONE = LaunchConfig(1, 1)
X = np.zeros(4, np.float32)
Y = np.zeros(4, np.float32)
Call = Callable[[tfi.Session, tfi.Module], Any]


def axpy(*args: Any) -> Call:
    """Launch `axpy`; a function makes an argument in the session."""
    return lambda s, m: s.launch(m.function("axpy"), ONE, [each(s) if callable(each) else each for each in args])


def launch(kernel: str, config: Any, *args: Any) -> Call:
    return lambda s, m: s.launch(m.function(kernel), config, args)


def tensor(x: Any) -> Call:
    return lambda s, m: s.tensor(x)


def read_only() -> np.ndarray:
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    return x


def closed_session(s: tfi.Session, m: tfi.Module) -> None:
    with tfi.session("cpu") as other:
        pass
    other.synchronize()


def closed_reference(_: object) -> tfi.TensorRef:
    with tfi.session("cpu") as other:
        return other.tensor(X)


def reference_of_another(s: tfi.Session, m: tfi.Module) -> None:
    with tfi.session("cpu") as other:
        s.launch(m.function("axpy"), ONE, [1.0, other.tensor(X), Y, 4])


def closed_module(s: tfi.Session, m: tfi.Module) -> None:
    with s.compile_nvrtc(SOURCE) as other:
        function = other.function("small")
    s.launch(function, ONE, [])


def use_closed_module(s: tfi.Session, m: tfi.Module) -> None:
    with s.compile_nvrtc(SOURCE) as other:
        pass
    other.function("small")


def overlapping_copy(s: tfi.Session, m: tfi.Module) -> None:
    span = s.alloc_bytes(16)
    s.copy_bytes(span[4:], span, 8)


def held_resource(s: tfi.Session, m: tfi.Module) -> None:
    with s.resource("held", object):
        s.resource("held", object)


def failed_runtime(s: tfi.Session, m: tfi.Module) -> None:
    s.runtime.failed = True
    try:
        s.tensor(X)
    finally:
        s.runtime.failed = False


TEXTS: dict[str, tuple[Call, type[tfi.TenferroError], str]] = {
    "a closed session": (
        closed_session,
        tfi.RuntimeStateError,
        "synchronize: session must be open, got a closed one. Open a new one with `tfi.session(...)`",
    ),
    "too few arguments": (
        axpy(1.0, X, Y),
        tfi.SignatureError,
        "launch: kernel 'axpy' takes 4 arguments, got 3. Its parameters are (float, const float*, float*, int)",
    ),
    "number for a pointer": (
        axpy(1.0, 2.0, Y, 4),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 1 (const float* x) must be a tensor, got float. Pass a tensor, "
        "`s.tensor(x)`, a DeviceBytes, or `KernelArg.null()`; a bare address is never taken",
    ),
    "float for an int": (
        axpy(1.0, X, Y, 4.0),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 3 (int n) must be a number for int, got float. Pass `int(x)` if that is meant",
    ),
    "bool for an int": (
        axpy(1.0, X, Y, True),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 3 (int n) must be a number for int, got bool. A bool is converted "
        "only for a bool parameter: pass `int(flag)`",
    ),
    "array for an int": (
        axpy(1.0, X, Y, X),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 3 (int n) must be a number for int, got ndarray. Pass a number: `x.item()`",
    ),
    "complex for a float": (
        axpy(1j, X, Y, 4),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 0 (float a) must be a number for float, got complex. Pass "
        "`KernelArg.c64(z)` or `KernelArg.c128(z)` for a complex parameter",
    ),
    "number for a struct": (
        launch("pair", ONE, 1.0),
        tfi.SignatureError,
        "launch: kernel 'pair' argument 0 (struct of 16 bytes p) must be a struct of 16 bytes, got float. "
        "Pass `KernelArg.struct(value)`, bytes, a ctypes structure or a NumPy record",
    ),
    "None for a pointer": (
        axpy(1.0, None, Y, 4),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 1 (const float* x) must be a tensor, got None. A null pointer is "
        "`KernelArg.null()`",
    ),
    "int out of range": (
        axpy(1.0, X, Y, 2**31),
        tfi.ScalarRangeError,
        "launch: kernel 'axpy' argument 3 (int n) must fit int, got 2147483648",
    ),
    "NumPy scalar of another width": (
        axpy(np.float64(1.0), X, Y, 4),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 0 (float a) must be float, got a typed scalar float64. Pass a Python "
        "number, which is converted with a range check, or the exact type",
    ),
    "struct of another size": (
        launch("pair", ONE, bytes(9)),
        tfi.SignatureError,
        "launch: kernel 'pair' argument 0 (struct of 16 bytes p) must have 16 bytes, got 9. Match the "
        "kernel's struct, padding included (`np.dtype(..., align=True)`)",
    ),
    "tensor elsewhere": (
        axpy(1.0, X, FakeProducer((4,), device=(13, 0)), 4),
        tfi.RuntimeStateError,
        "launch: kernel 'axpy' argument 2 (float* y) must be on cpu, got managed memory of cuda:0. Copy it there first",
    ),
    "tensor of another device": (
        tensor(FakeProducer((4,), device=(2, 1))),
        tfi.RuntimeStateError,
        "tensor: tensor must be on cpu, got cuda:1. Copy it there first",
    ),
    "tensor of another type": (
        axpy(1.0, X, Y.astype("f8"), 4),
        tfi.DTypeError,
        "launch: kernel 'axpy' argument 2 (float* y) must point to float32, got float64. Convert the tensor, "
        "or use a kernel for float64",
    ),
    "transposed tensor": (
        axpy(1.0, np.zeros((2, 3), "f4").T, Y, 4),
        tfi.LayoutError,
        "launch: kernel 'axpy' argument 1 (const float* x) must be compact row-major, got shape (3, 2) with "
        "strides (1, 3). Pass `x.contiguous()` (NumPy: `np.ascontiguousarray(x)`), or take the strides "
        "yourself with `s.tensor(x, strided=True)`",
    ),
    "misaligned tensor": (
        axpy(1.0, FakeProducer((4,), byte_offset=1), Y, 4),
        tfi.LayoutError,
        "launch: kernel 'axpy' argument 1 (const float* x) must be aligned to 4 bytes, got an address that "
        "is 1 past it. Pass a copy, or a view that starts on the boundary",
    ),
    "read-only tensor": (
        axpy(1.0, X, read_only(), 4),
        tfi.ValidationError,
        "launch: kernel 'axpy' argument 2 (float* y) must be writable, got a read-only numpy.ndarray. Write "
        "to a copy, or to `s.alloc_output(...)`",
    ),
    "read reference": (
        axpy(1.0, X, lambda s: s.tensor(Y), 4),
        tfi.SignatureError,
        "launch: kernel 'axpy' argument 2 (float* y) is written by the kernel and must be a TensorMut, got a "
        "TensorRef. Pass `s.tensor_mut(x)`",
    ),
    "tensor without memory": (
        axpy(1.0, FakeProducer((4,), data=0), Y, 4),
        tfi.ValidationError,
        "launch: kernel 'axpy' argument 1 (const float* x) must have memory, got a null pointer with "
        "elements from FakeProducer. Fake, meta and freed tensors have none",
    ),
    "structs without saying so": (
        launch("pairs", ONE, X),
        tfi.SignatureError,
        "launch: kernel 'pairs' argument 0 (const struct* p) points to a struct, so the tensor must be given "
        "as `s.tensor(x)` or `s.tensor_mut(x)`, got ndarray",
    ),
    "reference of a closed session": (
        axpy(1.0, closed_reference, Y, 4),
        tfi.RuntimeStateError,
        "launch: kernel 'axpy' argument 1 (const float* x) must be a reference of this session, got one of a "
        "closed session. Make it with this session's `tensor`, `tensor_mut` or `alloc_bytes`",
    ),
    "reference of another session": (
        reference_of_another,
        tfi.RuntimeStateError,
        "launch: kernel 'axpy' argument 1 (const float* x) must be a reference of this session, got one of "
        "another session. Make it with this session's `tensor`, `tensor_mut` or `alloc_bytes`",
    ),
    "tensor beyond 63 bits": (
        axpy(1.0, FakeProducer((2**62,), strides=(0,)), Y, 4),
        tfi.LayoutError,
        "launch: kernel 'axpy' argument 1 (const float* x) must have an extent that 63-bit addresses can "
        "span, got more",
    ),
    "overlap": (
        axpy(1.0, Y, Y, 4),
        tfi.AliasError,
        "launch: kernel 'axpy' argument 2 (float* y) is written and must not overlap another argument, got "
        "overlapping memory. Pass a copy, or declare the kernel's contract with `module.function(name, "
        "may_alias=True)`",
    ),
    "tuple for a config": (
        launch("small", (1, 1)),
        tfi.ValidationError,
        "launch: config must be a LaunchConfig, got tuple",
    ),
    "grid too large": (
        launch("small", LaunchConfig((1, 65536), 1)),
        tfi.ValidationError,
        "launch: grid.y must be at most 65535 on cpu, got 65536",
    ),
    "block too large": (
        launch("small", LaunchConfig(1, 1025)),
        tfi.ValidationError,
        "launch: block.x must be at most 1024 on cpu, got 1025",
    ),
    "block beyond the kernel's maximum": (
        launch("small", LaunchConfig(1, (16, 16))),
        tfi.ValidationError,
        "launch: block of kernel 'small' must have at most 128 threads (the kernel's own maximum), got 16*16*1 = 256",
    ),
    "too much shared memory": (
        launch("small", LaunchConfig(1, 1, 300000)),
        tfi.ValidationError,
        "launch: shared_mem_bytes must be at most 232448 (device limit 232448 minus 0 static), got 300000",
    ),
    "grid that is no multiple of the cluster": (
        launch("small", LaunchConfig(3, 1, cluster=(2,))),
        tfi.ValidationError,
        "launch: grid must be a multiple of the cluster in every axis, got grid (3, 1, 1) with cluster (2, 1, 1)",
    ),
    "cluster on the CPU": (
        launch("small", LaunchConfig(2, 1, cluster=(2,))),
        tfi.UnsupportedError,
        "launch: clusters, cooperative and programmatic launches are not supported on the CPU device. Use a "
        "plain launch",
    ),
    "kernel that faults": (
        launch("divide", ONE, np.ones(1, "i4"), 0),
        tfi.BackendError,
        "launch: kernel 'divide': integer division by zero in block 0",
    ),
    "part of a vector": (
        launch("add4", ONE, np.zeros(6, "f4")),
        tfi.LayoutError,
        "launch: kernel 'add4' argument 0 (float4* x) must hold whole elements of 16 bytes, got 24 bytes",
    ),
    "name for a function": (
        lambda s, m: s.launch("axpy", ONE, []),
        tfi.ValidationError,
        "launch: function must be a kernel from `module.function(name)`, got str",
    ),
    "function of a closed module": (
        closed_module,
        tfi.RuntimeStateError,
        "launch: module of kernel 'small' must be open, got a closed one",
    ),
    "tensor without raw type": (
        axpy(1.0, FakeProducer((8,), dtype=(1, 1, 1)), Y, 4),
        tfi.DTypeError,
        "launch: kernel 'axpy' argument 1 (const float* x) must have a whole-byte element type that DLPack "
        "names, got code=1 bits=1 lanes=1. View it as an integer type of the same width first",
    ),
    "tensor: number": (
        tensor(3.0),
        tfi.SignatureError,
        "tensor: tensor must offer __dlpack__ or __cuda_array_interface__, got builtins.float. A scalar is "
        "passed as a number",
    ),
    "tensor: DLPack 2": (
        tensor(FakeProducer((4,), version=(2, 0))),
        tfi.ValidationError,
        "tensor: DLPack major version of tenferro_interop.testing.FakeProducer must be 1, got (2, 0)",
    ),
    "tensor: two devices": (
        tensor(FakeProducer((4,), device_answer=(3, 0))),
        tfi.ValidationError,
        "tensor: __dlpack_device__ of tenferro_interop.testing.FakeProducer and its capsule must agree on "
        "the device type, got ((3, 0), 1)",
    ),
    "tensor: device query fails": (
        tensor(FakeProducer((4,), device_answer=OSError("broken"))),
        tfi.SignatureError,
        "tensor: __dlpack_device__ of tenferro_interop.testing.FakeProducer failed: broken",
    ),
    "tensor: another capsule": (
        tensor(FakeProducer((4,), capsule_name=b"other")),
        tfi.SignatureError,
        "tensor: __dlpack__ of tenferro_interop.testing.FakeProducer must return an unused DLPack capsule, "
        "got one already consumed or of another kind",
    ),
    "tensor: export refused": (
        tensor(FakeProducer((4,), error=BufferError("busy"))),
        tfi.ExportError,
        "tensor: tenferro_interop.testing.FakeProducer refused to export itself: busy",
    ),
    "tensor: byte order": (
        tensor(np.zeros(3, ">f4")),
        tfi.DTypeError,
        "tensor: NumPy element type must be a native bool, integer, float or complex, got >f4: DLPack only "
        "supports native byte order. Pass `x.astype(x.dtype.newbyteorder('='))`",
    ),
    "tensor_mut: read-only": (
        lambda s, m: s.tensor_mut(read_only()),
        tfi.ValidationError,
        "tensor_mut: tensor must be writable, got a read-only numpy.ndarray. Write to a copy, or to "
        "`s.alloc_output(...)`",
    ),
    "tensor_mut: overlaps itself": (
        lambda s, m: s.tensor_mut(np.broadcast_to(np.zeros(1), 5)),
        tfi.LayoutError,
        "tensor_mut: tensor_mut must get elements that do not overlap, got shape (5,) with strides (0,). "
        "Write to a copy",
    ),
    "config: float": (
        lambda s, m: LaunchConfig(1.5, 1),
        tfi.ValidationError,
        "LaunchConfig: grid.x must be an int, got float",
    ),
    "config: zero": (
        lambda s, m: LaunchConfig((1, 0), 1),
        tfi.ValidationError,
        "LaunchConfig: grid must be positive in every axis, got (1, 0). For no work at all use "
        "`LaunchConfig.flat(0, block=...)`",
    ),
    "config: negative": (
        lambda s, m: LaunchConfig(-1, 1),
        tfi.ValidationError,
        "LaunchConfig: grid.x must be between 0 and 4294967295, got -1",
    ),
    "config: four extents": (
        lambda s, m: LaunchConfig((1, 1, 1, 1), 1),
        tfi.ValidationError,
        "LaunchConfig: grid must have one to three extents, got 4",
    ),
    "config: negative threads": (
        lambda s, m: LaunchConfig.flat(-1),
        tfi.ValidationError,
        "LaunchConfig: threads must not be negative, got -1",
    ),
    "argument: out of range": (
        lambda s, m: KernelArg.i8(200),
        tfi.ScalarRangeError,
        "KernelArg: 200 does not fit i8",
    ),
    "argument: float for an int": (
        lambda s, m: KernelArg.i32(1.0),
        tfi.SignatureError,
        "KernelArg: KernelArg.i32 must be given a Python number of that kind, got float",
    ),
    "argument: number for a struct": (
        lambda s, m: KernelArg.struct(5),
        tfi.SignatureError,
        "KernelArg: KernelArg.struct must be given bytes, a ctypes structure or a NumPy record, got int",
    ),
    "session: no device": (
        lambda s, m: tfi.session("gpu"),
        tfi.ValidationError,
        "session: device must be 'cpu', 'cuda' or 'cuda:N', got 'gpu'",
    ),
    "session: contradiction": (
        lambda s, m: tfi.session("cuda", like=X),
        tfi.ValidationError,
        "session: device must be where `like` lives, got cuda and cpu",
    ),
    "session: stream on the CPU": (
        lambda s, m: tfi.session("cpu", stream=5),
        tfi.ValidationError,
        "session: stream must be None for the CPU device, got a stream",
    ),
    "stream: negative handle": (
        lambda s, m: tfi.StreamRef.from_handle(-1),
        tfi.ValidationError,
        "stream: stream handle must be a non-negative int, got -1",
    ),
    "stream: per-thread default": (
        lambda s, m: tfi.StreamRef.from_handle(2),
        tfi.UnsupportedError,
        "stream: stream must be the same in every thread, got the per-thread default stream (2). Create a "
        "stream and pass that",
    ),
    "construct Session": (
        lambda s, m: tfi.Session(),
        tfi.RuntimeStateError,
        "session: Session must come from `tenferro_interop.session(...)`, got a direct construction",
    ),
    "construct TensorRef": (
        lambda s, m: tfi.TensorRef(),
        tfi.RuntimeStateError,
        "tensor: TensorRef must come from a session, got a direct construction",
    ),
    "construct DeviceBytes": (
        lambda s, m: tfi.DeviceBytes(),
        tfi.RuntimeStateError,
        "alloc_bytes: DeviceBytes must come from `Session.alloc_bytes`, `upload_bytes` or `retain_tensor`, "
        "got a direct construction",
    ),
    "construct DeviceTensor": (
        lambda s, m: tfi.DeviceTensor(),
        tfi.RuntimeStateError,
        "alloc_output: DeviceTensor must come from `Session.alloc_output`, got a direct construction",
    ),
    "construct StreamRef": (
        lambda s, m: tfi.StreamRef(),
        tfi.RuntimeStateError,
        "stream: StreamRef must come from `Session.stream` or `StreamRef.from_handle`, got a direct construction",
    ),
    "construct Module": (
        lambda s, m: tfi.Module(),
        tfi.RuntimeStateError,
        "module: Module must come from a session, got a direct construction",
    ),
    "construct Function": (
        lambda s, m: tfi.Function(),
        tfi.RuntimeStateError,
        "function: Function must come from `module.function(name)`, got a direct construction",
    ),
    "construct ResourceGuard": (
        lambda s, m: tfi.ResourceGuard(),
        tfi.RuntimeStateError,
        "resource: ResourceGuard must come from `Session.resource`, got a direct construction",
    ),
    "negative size": (
        lambda s, m: s.alloc_bytes(-1),
        tfi.ValidationError,
        "alloc_bytes: nbytes must be a non-negative int of at most 63 bits, got -1",
    ),
    "number for bytes": (
        lambda s, m: s.upload_bytes(5),
        tfi.ValidationError,
        "upload_bytes: data must be bytes-like, got int",
    ),
    "copy beyond a span": (
        lambda s, m: s.copy_bytes(s.alloc_bytes(4), s.alloc_bytes(8)),
        tfi.ValidationError,
        "copy_bytes: nbytes must be between 0 and the 4 bytes of dst, got 8",
    ),
    "copy onto itself": (
        overlapping_copy,
        tfi.AliasError,
        "copy_bytes: dst must not overlap src within 8 bytes, got overlapping spans",
    ),
    "copy to nothing": (
        lambda s, m: s.copy_bytes(None, None),
        tfi.SignatureError,
        "copy_bytes: dst must be a DeviceBytes or tensor reference, got NoneType",
    ),
    "copy to a read reference": (
        lambda s, m: s.copy_bytes(s.tensor(X), s.alloc_bytes(16)),
        tfi.ValidationError,
        "copy_bytes: dst must be writable, got a TensorRef. Pass `s.tensor_mut(x)`",
    ),
    "negative extent": (
        lambda s, m: s.alloc_output(-1, "float32"),
        tfi.ValidationError,
        "alloc_output: shape must hold non-negative ints, got (-1,)",
    ),
    "shape beyond 63 bits": (
        lambda s, m: s.alloc_output((2**40, 2**40), "float32"),
        tfi.ValidationError,
        "alloc_output: shape must fit 63-bit addresses, got (1099511627776, 1099511627776) of float32 "
        "(4835703278458516698824704 bytes)",
    ),
    "address after close": (
        lambda s, m: closed_reference(s).raw_address(),
        tfi.RuntimeStateError,
        "tensor: TensorRef must be used inside the session that made it, got a closed session",
    ),
    "source with NUL": (
        lambda s, m: s.compile_nvrtc("a\0"),
        tfi.ValidationError,
        "compile_nvrtc: source must be a str without NUL, got a NUL",
    ),
    "source as bytes": (
        lambda s, m: s.compile_nvrtc(b"a"),
        tfi.ValidationError,
        "compile_nvrtc: source must be a str without NUL, got bytes",
    ),
    "unknown symbol": (
        lambda s, m: m.function("axpyy"),
        tfi.BackendError,
        "module.function: kernel 'axpyy' must be in the module, got one with ['add4', 'axpy', 'divide', "
        "'pair', 'pairs', 'small']. Did you mean 'axpy'? A C++ kernel without extern \"C\" has a mangled name, "
        'a template needs `NvrtcOptions(name_expressions=("k<float>",))`',
    ),
    "symbol with NUL": (
        lambda s, m: m.function("a\0"),
        tfi.ValidationError,
        "module.function: symbol must be a str without NUL, got 'a\\x00'",
    ),
    "signature of another length": (
        lambda s, m: m.function("axpy", signature="float a"),
        tfi.SignatureError,
        "module.function: signature of 'axpy' must have 4 parameters, got 1",
    ),
    "signature of another type": (
        lambda s, m: m.function("axpy", signature="double, const float*, float*, int"),
        tfi.SignatureError,
        "module.function: signature of 'axpy' parameter 0 must be float, got double",
    ),
    "PTX on the CPU": (
        lambda s, m: s.load_ptx("x"),
        tfi.UnsupportedError,
        "load_ptx: the CPU device must be given CUDA C++ source, got PTX. Call `s.compile_nvrtc(source)`, or "
        "open a session on a GPU",
    ),
    "PTX with NUL": (
        lambda s, m: s.load_ptx("a\0b"),
        tfi.ValidationError,
        "load_ptx: ptx must be ASCII without NUL, got an interior NUL",
    ),
    "PTX beyond ASCII": (
        lambda s, m: s.load_ptx("// é"),
        tfi.ValidationError,
        "load_ptx: ptx must be ASCII without NUL, got non-ASCII text at byte 3",
    ),
    "CUBIN on the CPU": (
        lambda s, m: s.load_cubin(b"x"),
        tfi.UnsupportedError,
        "load_cubin: the CPU device must be given CUDA C++ source, got a CUBIN. Call "
        "`s.compile_nvrtc(source)`, or open a session on a GPU",
    ),
    "key without hash": (
        lambda s, m: s.resource([], object),
        tfi.ValidationError,
        "resource: key must be hashable, got list",
    ),
    "resource held already": (
        held_resource,
        tfi.RuntimeStateError,
        "resource: resource 'held' must not be asked for again while this thread holds it. Use the guard you have",
    ),
    "export to another device": (
        lambda s, m: s.alloc_output(1, "uint8").__dlpack__(dl_device=(2, 0)),
        tfi.ExportError,
        "__dlpack__: dl_device must be (1, 0) or, with a copy, the CPU, got (2, 0)",
    ),
    "export with a stream": (
        lambda s, m: s.alloc_output(1, "uint8").__dlpack__(stream=1),
        tfi.ExportError,
        "__dlpack__: stream must be None for host memory, got 1",
    ),
    "use of a closed module": (
        use_closed_module,
        tfi.RuntimeStateError,
        "module.function: module must be open, got a closed one",
    ),
    "failed runtime": (
        failed_runtime,
        tfi.RuntimeStateError,
        "tensor: runtime of cpu must be alive, got one whose context is poisoned by an earlier fault. "
        "Restart the process",
    ),
}
