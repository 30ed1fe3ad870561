"""Memory with a meaning: references to tensors, raw device bytes, and tensors of our own that other frameworks take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._dtypes import BY_NAME, DType
from ._errors import DTypeError, ExportError, LayoutError, RuntimeStateError, ValidationError
from ._runtime import Allocation, Runtime, runtime_of

MAX_BYTES = 2**63 - 1


def device_name(device_type: int, ordinal: int) -> str:
    """Return the name users give a device: ``cpu``, ``cuda:0``, ..."""
    names = {
        _core.DL_CPU: "cpu",
        _core.DL_CUDA: f"cuda:{ordinal}",
        _core.DL_CUDA_HOST: "pinned host memory",
        _core.DL_CUDA_MANAGED: f"managed memory of cuda:{ordinal}",
    }
    return names.get(device_type, f"DLPack device type {device_type}")


def as_dtype(dtype: object, op: str) -> DType:
    """Return a `DType` from a name, a NumPy or framework dtype, or a `DType`.

    Raises `DTypeError` for a name that is not known.
    """
    if isinstance(dtype, DType):
        return dtype
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    name = str(name).rpartition(".")[2]
    name = {"bool_": "bool", "float": "float32", "double": "float64", "half": "float16"}.get(name, name)
    if name not in BY_NAME:
        raise DTypeError(f"dtype must be one of {', '.join(sorted(BY_NAME))}, got {dtype!r}", op=op, argument="dtype")
    return BY_NAME[name]


def checked_shape(shape: Sequence[int] | int, dtype: DType, op: str) -> tuple[tuple[int, ...], int]:
    """Return the shape as a tuple and its size in bytes; `ValidationError` where it cannot be addressed."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = dtype.itemsize
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
            raise ValidationError(
                f"shape must hold non-negative ints, got {extents}", op=op, argument="shape", actual=extents
            )
        nbytes *= extent
    if max((nbytes, *extents)) > MAX_BYTES:
        raise ValidationError(
            f"shape must fit 63-bit addresses, got {extents} of {dtype} ({nbytes} bytes)", op=op, argument="shape"
        )
    return extents, nbytes


class TensorRef(_core.TensorRef):
    """A checked tensor of one session, to be read by kernels; made by `Session.tensor`.

    Attributes: `shape`, `strides` (in elements), `nbytes`, `read_only`, `is_contiguous`, `ndim`, and those below.
    Keeps the producer's memory alive, and is valid until its session closes.
    """

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        """Element type."""
        return DType(*self.dtype_code)

    @property
    def device(self) -> str:
        """Device of the memory."""
        return device_name(self.device_type, self.device_id)

    def raw_address(self) -> int:
        """Return the address of the first element, for other libraries; it must not outlive this reference.

        Raises `RuntimeStateError` once the session has closed.
        """
        return _valid_address(self, "tensor")

    def __repr__(self) -> str:
        """Return shape, type and device."""
        return f"<{type(self).__name__} {self.dtype}{list(self.shape)} on {self.device}>"


class TensorMut(TensorRef):
    """A checked tensor of one session, to be read and written by kernels; made by `Session.tensor_mut`."""

    __slots__ = ()


def _valid_address(memory: _core.MemoryRef, op: str) -> int:
    if not memory.is_valid:
        raise RuntimeStateError(
            f"{type(memory).__name__} must be used inside the session that made it, got a closed session", op=op
        )
    return memory._address


class DeviceBytes(_core.MemoryRef):
    """A span of device memory of one session: workspace, uploaded bytes, or a retained tensor.

    `nbytes` is its length; `span[a:b]` is a sub-span that shares the memory; `read_only` says that it retains a tensor
    that kernels may not write.  The memory is given back, in stream order, when the last span and the last launch that
    used it have gone.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise RuntimeStateError(
            "DeviceBytes must come from `Session.alloc_bytes`, `upload_bytes` or `retain_tensor`, got a direct "
            "construction",
            op="alloc_bytes",
        )

    @classmethod
    def _make(
        cls, session: _core.SessionCore, address: int, nbytes: int, owner: object, read_only: bool = False
    ) -> DeviceBytes:
        self = cls.__new__(cls)
        self._point(session, address, nbytes, owner, read_only)
        return self

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self.nbytes

    def __getitem__(self, part: slice) -> DeviceBytes:
        """Return a sub-span; only contiguous slices."""
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise ValidationError("DeviceBytes must be sliced as [start:stop]", op="alloc_bytes", argument="part")
        start, stop, _ = part.indices(self.nbytes)
        nbytes = max(stop - start, 0)
        return DeviceBytes._make(self.session, self._address + start, nbytes, self.owner, self.read_only)

    def raw_address(self) -> int:
        """Return the address; it must not outlive this span.

        Raises `RuntimeStateError` once the session has closed.
        """
        return _valid_address(self, "alloc_bytes")

    def leak(self) -> int:
        """Give up ownership for good and return the address: for when a barrier failed and work may still run."""
        runtime: Runtime = self.session.runtime
        runtime.leak([self.owner])
        return self._address

    def __repr__(self) -> str:
        """Return the size and device."""
        return f"<DeviceBytes {self.nbytes} bytes on {self.session.runtime.name}>"


class DeviceTensor(_core.DeviceArray):
    """A tensor of our own that any framework takes over without copy, by its `from_dlpack(t)`.

    Made by `Session.alloc_output`; compact row-major, uninitialised; may outlive its session.  Exports order the
    consumer's stream after the work enqueued so far.
    """

    __slots__ = ("_dtype", "_runtime")

    _dtype: DType
    _runtime: Runtime

    def __init__(self) -> None:
        raise RuntimeStateError(
            "DeviceTensor must come from `Session.alloc_output`, got a direct construction", op="alloc_output"
        )

    @classmethod
    def _make(
        cls, runtime: Runtime, allocation: Allocation, shape: tuple[int, ...], dtype: DType, stream: Any
    ) -> DeviceTensor:
        self = cls.__new__(cls)
        self._describe(allocation.address, shape, *dtype, runtime.device_type, runtime.device_id, allocation, stream)
        self._dtype = dtype
        self._runtime = runtime
        return self

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._dtype

    @property
    def device(self) -> str:
        """Device of the memory."""
        return self._runtime.name

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        nbytes: int = self.owner.nbytes
        return nbytes

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (device type, device id)."""
        return (self._runtime.device_type, self._runtime.device_id)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Export as DLPack says (https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html).

        The capsule is versioned for `max_version` of 1 or more.  `stream` is the consumer's: 1 the legacy default, -1
        asks for no ordering, None means the legacy default.  Raises `ExportError` (a BufferError) for another device.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            return self._export_to((dl_device[0], dl_device[1]), copy, max_version)
        source = self._copied() if copy else self
        source._order_for(stream)
        return source._capsule(max_version is not None and max_version[0] >= 1, bool(copy))

    def _export_to(self, wanted: tuple[int, int], copy: bool | None, max_version: tuple[int, int] | None) -> object:
        if wanted[0] != _core.DL_CPU or copy is False:
            raise ExportError(
                f"dl_device must be {self.__dlpack_device__()} or, with a copy, the CPU, got {wanted}",
                op="__dlpack__",
                argument="dl_device",
                actual=wanted,
            )
        host = runtime_of("cpu", 0)
        allocation = Allocation(host, self.nbytes, 0, None)
        if self.nbytes:
            self._runtime.device.download(allocation.address, self._address, self.nbytes, self.stream_handle)
        copied = DeviceTensor._make(host, allocation, self.shape, self._dtype, self.stream_owner)
        return copied._capsule(max_version is not None and max_version[0] >= 1, True)

    def _copied(self) -> DeviceTensor:
        allocation = type(self.owner)(self._runtime, self.nbytes, self.stream_handle, self.stream_owner)
        if self.nbytes:
            self._runtime.device.copy(allocation.address, self._address, self.nbytes, self.stream_handle)
        return DeviceTensor._make(self._runtime, allocation, self.shape, self._dtype, self.stream_owner)

    def _order_for(self, stream: int | None) -> None:
        """Let the consumer's stream wait for what ours holds now; the host never waits."""
        if self._runtime.device.kind == "cpu":
            if stream is not None and stream != -1:
                raise ExportError(
                    f"stream must be None for host memory, got {stream!r}", op="__dlpack__", argument="stream"
                )
            return
        if stream == -1:
            return
        if stream == 0 or (stream is not None and (not isinstance(stream, int) or stream < -1)):
            raise ExportError(
                f"stream must be None, -1, 1, 2 or a stream's address, got {stream!r}",
                op="__dlpack__",
                argument="stream",
            )
        consumer = 1 if stream is None else stream
        if consumer != self.stream_handle and not (consumer == 1 and self.stream_handle == 0):
            runtime = self._runtime
            event = runtime.take_event()
            runtime.device.record(event, self.stream_handle)
            runtime.device.wait(consumer, event)
            runtime.give_event(event)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """CUDA array interface, version 3 (https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html)."""
        if self._runtime.device.kind == "cpu":
            raise AttributeError("__cuda_array_interface__ is for GPU memory")
        return {
            "shape": self.shape,
            "typestr": _typestr(self._dtype),
            "data": (self._address, False),
            "version": 3,
            "strides": None,
            "stream": self.stream_handle or 1,
        }

    def __repr__(self) -> str:
        """Return shape, type and device."""
        return f"<DeviceTensor {self._dtype}{list(self.shape)} on {self.device}>"


_TYPESTR = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


def _typestr(dtype: DType) -> str:
    kind = _TYPESTR.get(dtype.code)
    if kind is None:
        raise AttributeError(f"__cuda_array_interface__ has no type for {dtype}")
    return f"{'|' if dtype.itemsize == 1 else '<'}{kind}{dtype.itemsize}"


def from_array_interface(obj: Any) -> tuple[object, int | None]:
    """Return (versioned capsule, stream to wait for) of an object that speaks `__cuda_array_interface__` only."""
    interface = obj.__cuda_array_interface__
    address, read_only = interface["data"]
    kinds = {kind: code for code, kind in _TYPESTR.items()}
    typestr = interface["typestr"]
    if typestr[1] not in kinds or typestr[0] == ">":
        raise DTypeError(f"__cuda_array_interface__ typestr must be a native number, got {typestr!r}", op="tensor")
    itemsize = int(typestr[2:])
    dtype = DType(kinds[typestr[1]], 8 * itemsize)
    if interface.get("mask") is not None:
        raise ValidationError("__cuda_array_interface__ must have no mask", op="tensor", argument="mask")
    shape = tuple(interface["shape"])
    strides = _element_strides(interface.get("strides"), shape, itemsize)
    device = (_core.DL_CUDA, _ordinal_of(address))
    capsule = _core.wrap_memory(address or 0, shape, strides, dtype, device, bool(read_only), obj)
    return capsule, interface.get("stream")


def _element_strides(strides: Sequence[int] | None, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    if strides is not None:
        if any(stride % itemsize for stride in strides):
            raise LayoutError(
                f"__cuda_array_interface__ strides must be whole elements of {itemsize} bytes, got {strides} bytes",
                op="tensor",
                argument="strides",
                actual=tuple(strides),
            )
        return tuple(stride // itemsize for stride in strides)
    out: list[int] = []
    step = 1
    for extent in reversed(shape):
        out.append(step)
        step *= max(extent, 1)
    return tuple(reversed(out))


def _ordinal_of(address: int | None) -> int:
    from ._devices.cuda_driver import call, driver  # only GPU memory speaks this interface

    if not address:
        return 0
    bindings = driver()
    attribute = bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(call("tensor", bindings.cuPointerGetAttribute(attribute, address)))
