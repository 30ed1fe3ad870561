"""The session: one device context and one stream, held by one thread, and the verbs on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from ._cuda_source import parameter_names
from ._devices import Image
from ._errors import BackendError, RuntimeStateError, ValidationError
from ._explain import explain_launch, place_error
from ._explain_arguments import overlap_error, reference_error
from ._explain_import import explain_import
from ._launch import LaunchConfig, scalar_of
from ._modules import Function, Module, PreparedLaunch
from ._nvrtc_options import NvrtcOptions
from ._producers import producer_of
from ._resources import ResourceGuard
from ._runtime import Allocation, LoadedImage, Runtime, RuntimeIdentity
from ._spans import copied_nbytes, note_write, overlaps_itself, require_span
from ._stream import StreamRef
from ._tensors import (
    MAX_BYTES,
    DeviceBytes,
    DeviceTensor,
    TensorMut,
    TensorRef,
    as_dtype,
    checked_shape,
    from_array_interface,
)

T = TypeVar("T")

_core.install_hooks(
    explain_launch=explain_launch,
    place_error=place_error,
    producer_of=producer_of,
    explain_import=explain_import,
    scalar_of=scalar_of,
)


class Session(_core.SessionCore):
    """One captured device context and execution stream; made by `tenferro_interop.session`.

    Everything goes through the captured stream.  A session belongs to the thread that opened it and closes in last-in
    first-out order; the thread's previous CUDA context is restored.  After `close` every method raises
    `RuntimeStateError`.
    """

    __slots__ = ("__weakref__",)

    @classmethod
    def _open(cls, runtime: Runtime, stream: StreamRef, *, own_stream: bool = False) -> Session:
        self = cls.__new__(cls)
        status = self._begin(runtime, stream.handle, stream, own_stream)
        if status:
            raise BackendError(
                f"the context of {runtime.name} could not be made current ({status})", op="session", code=status
            )
        return self

    @property
    def runtime_identity(self) -> RuntimeIdentity:
        """Which runtime this session works on; equal for all sessions of one device."""
        return self._runtime.identity

    @property
    def _runtime(self) -> Runtime:
        runtime: Runtime = self.runtime  # type: ignore[assignment]  # the core knows only its own half
        return runtime

    @property
    def device(self) -> str:
        """The device: ``cpu``, ``cuda:0``, ..."""
        return self._runtime.name

    @property
    def stream(self) -> StreamRef:
        """The captured stream."""
        if self.stream_ref is None:
            self.stream_ref = StreamRef.from_handle(self.stream_handle)
        ref: StreamRef = self.stream_ref
        return ref

    def synchronize(self) -> None:
        """Block the host until the captured stream has done everything enqueued on it.

        Raises `BackendError` for an asynchronous fault, listing the last launches: the context is then lost, memory in
        flight is kept on purpose, and every session of the device refuses further work.  Raises `RuntimeStateError`
        inside CUDA-graph capture.
        """
        self._require_ready("synchronize")
        self._refuse_capture("synchronize")
        self._guarded(lambda: self._runtime.device.synchronize(self.stream_handle))
        self._take_pending()
        self._runtime.drain()

    def _guarded(self, call: Callable[[], None]) -> None:
        """Run a host barrier; where it fails, keep all in flight and mark the runtime as failed."""
        try:
            call()
        except BackendError as error:
            self._runtime.fail()
            self._runtime.leak(self._take_pending())
            names = [kernel.name for kernel in self.recent_kernels]
            raise BackendError(
                f"{error.args[0]}. The last launches of this session were {names}; the context is lost",
                op=error.op,
                code=error.code,
                name=error.name,
                log=error.log,
                recent=names,
            ) from error

    def _refuse_capture(self, op: str) -> None:
        if self._runtime.device.is_capturing(self.stream_handle):
            raise RuntimeStateError(
                f"{op} must be outside CUDA-graph capture, got a capturing stream. Call it before or after the capture",
                op=op,
            )

    def tensor(self, x: object, *, strided: bool = False) -> TensorRef:
        """Return a checked read-only reference to any DLPack or `__cuda_array_interface__` tensor.

        The kernel sees a bare pointer, so the tensor must be compact row-major unless `strided=True`: then hand
        `ref.strides` (in elements) to the kernel.

        Raises `RuntimeStateError` for another device, `LayoutError`, `DTypeError`, `ValidationError` for a state that
        has no raw form.
        """
        ref: TensorRef = self._checked(x, TensorRef, False, strided)
        return ref

    def tensor_mut(self, x: object, *, strided: bool = False) -> TensorMut:
        """Return a checked reference that kernels may write through.

        Raises as `tensor` does, and `ValidationError` for read-only memory, a `jax.Array`, a leaf that requires grad;
        `LayoutError` where elements of `x` overlap each other.
        """
        ref: TensorMut = self._checked(x, TensorMut, True, strided)
        if not ref.is_contiguous and overlaps_itself(ref):
            raise overlap_error(ref, "tensor_mut")
        return ref

    def _checked(self, x: object, cls: type[Any], writable: bool, strided: bool) -> Any:
        op = "tensor_mut" if writable else "tensor"
        refusal, ref = _core.reference(self, x, writable, strided, cls)
        if refusal == "OK":
            return ref
        if writable and refusal in ("LAYOUT", "READ_ONLY") and overlaps_itself(ref):
            raise overlap_error(ref, "tensor_mut")
        raise reference_error(refusal, self, x, ref, op)

    def alloc_output(self, shape: Sequence[int] | int, dtype: object, *, like: object = None) -> Any:
        """Return an uninitialised compact tensor on this device, to be written by kernels.

        With `like`, one made by that tensor's framework where it can (torch, NumPy), else a `DeviceTensor`, which
        every framework takes over without copy.

        Raises `ValidationError` for a shape that cannot be addressed, `DTypeError`, `BackendError` when out of memory.
        """
        self._require_ready("alloc_output")
        kind = as_dtype(dtype, "alloc_output")
        extents, nbytes = checked_shape(shape, kind, "alloc_output")
        made = None if like is None else self._like(like, extents, kind)
        if made is not None:
            return made
        allocation = Allocation(self._runtime, nbytes, self.stream_handle, self.stream)
        return DeviceTensor._make(self._runtime, allocation, extents, kind, self.stream)

    def _like(self, like: object, shape: tuple[int, ...], dtype: Any) -> Any:
        producer = producer_of(type(like))
        made = None if producer is None else producer.empty(shape, dtype.name, self.device)
        if made is not None:
            return made
        return _core.allocate_like(type(like), shape, dtype, (self.device_type, self.device_id))

    def retain_tensor(self, x: object) -> DeviceBytes:
        """Return the tensor's memory as read-only `DeviceBytes` that keep it alive, whatever becomes of `x`."""
        ref = self.tensor(x)
        return DeviceBytes._make(self, ref._address, ref.nbytes, ref, True)

    def alloc_bytes(self, nbytes: int) -> DeviceBytes:
        """Return an uninitialised workspace; zero bytes give an empty span.

        Raises `ValidationError` for a negative size, `BackendError` when out of memory.
        """
        self._require_ready("alloc_bytes")
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or not 0 <= nbytes <= MAX_BYTES:
            raise ValidationError(
                f"nbytes must be a non-negative int of at most 63 bits, got {nbytes!r}",
                op="alloc_bytes",
                argument="nbytes",
            )
        allocation = Allocation(self._runtime, nbytes, self.stream_handle, self.stream)
        return DeviceBytes._make(self, allocation.address, nbytes, allocation)

    def upload_bytes(self, data: bytes | bytearray | memoryview) -> DeviceBytes:
        """Return a copy of host bytes on the device; the host's may change as soon as this returns."""
        self._require_ready("upload_bytes")
        try:
            snapshot = memoryview(data).tobytes()
        except TypeError:
            raise ValidationError(
                f"data must be bytes-like, got {type(data).__name__}", op="upload_bytes", argument="data"
            ) from None
        self._refuse_capture("upload_bytes")
        span = self.alloc_bytes(len(snapshot))
        if snapshot:
            self._runtime.device.upload(span._address, snapshot, self.stream_handle)
        return span

    def copy_bytes(self, dst: DeviceBytes | TensorMut, src: DeviceBytes | TensorRef, nbytes: int | None = None) -> None:
        """Enqueue a copy of `nbytes` (by default all of `src`) from the start of `src` to the start of `dst`.

        Raises `ValidationError` where a span is too short or `dst` may not be written, `AliasError` where they
        overlap, `LayoutError` for a strided tensor.
        """
        self._require_ready("copy_bytes")
        count = copied_nbytes(self, dst, src, nbytes)
        if count:
            self._runtime.device.copy(dst._address, src._address, count, self.stream_handle)
            self._keep((dst.owner, src.owner))
            note_write(dst)

    def download_tensor(self, x: object) -> np.ndarray[Any, np.dtype[Any]]:
        """Wait for the stream and return the tensor's values as a new NumPy array.

        Types that NumPy lacks (bfloat16, float8) come as unsigned integers of the same width.  Raises as `tensor`,
        and `RuntimeStateError` inside CUDA-graph capture.
        """
        ref = x if isinstance(x, TensorRef) else self.tensor(x)
        self._require_ready("download_tensor")
        require_span(self, "x", ref, "download_tensor")
        self._refuse_capture("download_tensor")
        name = ref.dtype.name
        out = np.empty(ref.shape, name if hasattr(np, name) else f"uint{ref.dtype.bits * ref.dtype.lanes}")
        if ref.nbytes:
            target, device = out.ctypes.data, self._runtime.device
            self._guarded(lambda: device.download(target, ref._address, ref.nbytes, self.stream_handle))
        return out

    def load_ptx(self, ptx: str | bytes) -> Module:
        """Load PTX text, with or without a terminating NUL.

        Raises `ValidationError` for an interior NUL or non-ASCII text, which the assembler refuses; `BackendError` with
        the assembler's log.
        """
        self._require_ready("load_ptx")
        data = ptx.encode() if isinstance(ptx, str) else bytes(ptx)
        text = data[:-1] if data.endswith(b"\0") else data
        if b"\0" in text or not text.isascii():
            what = "an interior NUL" if b"\0" in text else f"non-ASCII text at byte {_first_non_ascii(text)}"
            raise ValidationError(f"ptx must be ASCII without NUL, got {what}", op="load_ptx", argument="ptx")
        return Module._make(self._load("load_ptx", lambda: self._runtime.device.load_ptx(text + b"\0")))

    def load_cubin(self, cubin: bytes) -> Module:
        """Load a CUBIN or fatbin image.

        Raises `ValidationError` for what is not a whole image, `BackendError` naming both architectures where the image
        is for another.
        """
        self._require_ready("load_cubin")
        return Module._make(self._load("load_cubin", lambda: self._runtime.device.load_cubin(bytes(cubin))))

    def compile_nvrtc(self, source: str, options: NvrtcOptions | None = None) -> Module:
        """Compile CUDA C++ for this session's device and load it; cached in memory and on disk.

        Raises `ValidationError` for a NUL in the source, `CompileError` with the compiler's log.
        """
        self._require_ready("compile_nvrtc")
        if not isinstance(source, str) or "\0" in source:
            what = "a NUL" if isinstance(source, str) else type(source).__name__
            raise ValidationError(
                f"source must be a str without NUL, got {what}", op="compile_nvrtc", argument="source"
            )
        options = options or NvrtcOptions()
        runtime = self._runtime
        loaded = runtime.images.get((source, options))
        if loaded is None:
            loaded = self._load(
                "compile_nvrtc", lambda: runtime.device.compile(source, options), parameter_names(source)
            )
            runtime.images.put((source, options), loaded)
        return Module._make(loaded)

    def _load(
        self, op: str, load: Callable[[], Image], names: Mapping[str, tuple[str, ...]] | None = None
    ) -> LoadedImage:
        self._refuse_capture(op)
        return LoadedImage(self._runtime, load(), names or {})

    def prepare(self, function: Function, config: LaunchConfig, args: Sequence[object]) -> PreparedLaunch:
        """Check a launch now and return it to be repeated; enqueues nothing.

        Raises what `launch` raises.
        """
        prepared = PreparedLaunch.__new__(PreparedLaunch)
        prepared._prepare(self, function, config, tuple(args))
        return prepared

    def resource(self, key: Hashable, init: Callable[[], T]) -> ResourceGuard[T]:
        """Return exclusive access to a runtime-wide resource, made by `init` on first use.

        `key` is any hashable value, a type for instance.  Raises what `init` raises (nothing is stored then), and
        `RuntimeStateError` when this thread already holds that key.
        """
        self._require_ready("resource")
        return self._runtime.resources.acquire(key, init)

    def _import_array_interface(self, obj: object) -> Any:
        if self._runtime.device.kind == "cpu":
            raise explain_import("device", obj, (self, (_core.DL_CUDA, 0)))
        capsule, stream = from_array_interface(obj)
        if stream is not None:
            self._wait_stream(stream)
        return capsule

    def _keep_for_graph(self, owners: list[object]) -> None:
        """Keep for good what a recorded graph may replay: the driver does not tell when the graph goes."""
        if owners:
            self._runtime.leak(list(owners))

    def _retire_pending(self) -> None:
        self._runtime.retire(self.stream_handle, self._take_pending())

    def _take_event(self) -> int:
        return self._runtime.take_event()

    def _let_go(self) -> None:
        """Hand what is in flight, the event and our own stream to the runtime; called once, by `close`."""
        runtime = self._runtime
        if not runtime.failed:
            self._retire_pending()
            if self.edge_event:
                runtime.give_event(self.edge_event)
        if self.own_stream:
            runtime.give_stream(self.stream_handle)

    def __repr__(self) -> str:
        """Return the device and state."""
        return f"<Session on {self.device}, {'open' if self.open else 'closed'}>"


def _first_non_ascii(text: bytes) -> int:
    return next(index for index, byte in enumerate(text) if byte > 127)
