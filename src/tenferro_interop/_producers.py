"""Who exports a tensor, and what its framework adds to DLPack: tensor state, current stream, write tracking.

The core imports no framework.  A producer is found by the top-level module name of a class in the type's MRO, among
the built-in ones below and the entry points of the group ``tenferro_interop.producers``; the compiled core asks once
per type.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from . import _core
from ._errors import DTypeError, LayoutError, ValidationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tenferro_interop.producers"


class TensorLayout(NamedTuple):
    """Where a framework's tensor objects keep what a launch needs, in bytes, as an adapter measured it.

    `impl` leads from the Python object to the implementation's pointer; the others count from there:

    - `state`, a 64-bit word, and `dtype`, a 16-bit one, that together decide what `Producer.check` says about reading
    - `grad`, a pointer that is null for tensors that any kernel may write
    - `version`, a pointer to the version counter, whose 32-bit count lies `count` bytes in
    - `storage`, a pointer to the storage; in it `data`, the memory's address, and `guard`, a byte that must be 0
    - `offset`, the first element's 64-bit index in the storage
    - `ndim`, the 64-bit number of axes, followed by room for five extents and five strides (64 bits each), or by a
      pointer to all extents and strides where there are more axes
    - `device`, a byte for the kind of device, one for the signed ordinal
    """

    impl: int
    state: int
    dtype: int
    grad: int
    version: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    storage: int
    data: int
    guard: int
    offset: int
    ndim: int
    device: int


class Producer:
    """What an adapter says about the tensors of one framework; the defaults suit any DLPack exporter.

    Attributes:
        name: the framework's name, for messages.
        stream_ordered: its allocator reuses freed memory in the order of the framework's current stream, so memory
            used on that stream needs no further owner.
        tracks_writes: `wrote` must be called after a kernel has written a tensor.
    """

    name: ClassVar[str] = "unknown"
    stream_ordered: ClassVar[bool] = False
    tracks_writes: ClassVar[bool] = False

    layout: TensorLayout | None = None

    @property
    def exact_types(self) -> tuple[type, ...]:
        """Types whose exchange API may be used directly once `check` has passed; subclasses go through `__dlpack__`."""
        return ()

    def claims(self, tp: type) -> bool:
        """Return whether `tp` is a tensor type of this framework although it exports nothing itself."""
        return False

    def is_read_only(self, tp: type) -> bool:
        """Return whether tensors of type `tp` may never be written, whatever their capsule says."""
        return False

    def exportable(self, tensor: Any) -> Any:
        """Return what to call `__dlpack__` on: the same memory without state that stands in the way of exporting."""
        return tensor

    @property
    def changes_exports(self) -> bool:
        """Whether `exportable` does anything."""
        return type(self).exportable is not Producer.exportable

    def needs_check(self, tp: type) -> bool:
        """Return whether tensors of type `tp` have states that exporting does not already refuse."""
        return type(self).check is not Producer.check

    def explain(self, tensor: Any, error: Exception) -> Exception | None:
        """Return a better error for a failed export, or None."""
        return None

    def check(self, tensor: Any, write: bool) -> None:
        """Raise a named error for a state that a kernel reading raw memory would misread, or may not write."""

    def wrote(self, tensor: Any) -> None:
        """Note that a kernel was enqueued that writes `tensor`."""

    def current_stream(self, ordinal: int) -> int | None:
        """Return the handle of the framework's current stream on that GPU, or None if it has no such notion."""
        return None

    def stream_of(self, obj: Any) -> int | None:
        """Return the stream handle of a stream-like object without `__cuda_stream__`, or None."""
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        """Return an uninitialised writable tensor of this framework, or None to get a `DeviceTensor`."""
        return None


class _NumPy(Producer):
    """NumPy arrays: refuses what NumPy exports although its raw bytes mean something else."""

    name = "numpy"

    def needs_check(self, tp: type) -> bool:
        """Look at subclasses only; NumPy itself refuses the element types without a raw form."""
        return any(cls.__name__ == "MaskedArray" for cls in tp.__mro__)

    def check(self, tensor: Any, write: bool) -> None:
        """Refuse masked arrays: the mask would be lost."""
        raise ValidationError(
            "masked arrays must be resolved first, got numpy.ma.MaskedArray. Pass `x.filled(value)`",
            op="tensor",
            actual="MaskedArray",
        )

    def explain(self, tensor: Any, error: Exception) -> Exception | None:
        """Name the element type or the strides that NumPy could not export."""
        dtype = tensor.dtype
        if dtype.isnative and dtype.kind in "biufc" and dtype.char not in "gG":
            return _broken_strides(tensor)
        fix = "" if dtype.isnative else ". Pass `x.astype(x.dtype.newbyteorder('='))`"
        return DTypeError(
            f"NumPy element type must be a native bool, integer, float or complex, got {dtype}: "
            f"{str(error).rstrip('.')}{fix}",
            op="tensor",
            actual=str(dtype),
        )

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        """Return `numpy.empty` for the element types NumPy has, on the CPU."""
        numpy = sys.modules["numpy"]
        return numpy.empty(shape, dtype) if device == "cpu" and hasattr(numpy, dtype) else None


def _broken_strides(tensor: Any) -> Exception | None:
    """Return the error for strides that are no whole number of elements, as a field of a packed record has."""
    if not any(stride % tensor.itemsize for stride in tensor.strides):
        return None
    return LayoutError(
        f"NumPy strides must be whole elements of {tensor.itemsize} bytes, got {tensor.strides} bytes. Pass "
        "`np.ascontiguousarray(x)`",
        op="tensor",
        actual=tensor.strides,
    )


class _CuPy(Producer):
    """CuPy arrays and streams."""

    name = "cupy"

    def current_stream(self, ordinal: int) -> int | None:
        """Return CuPy's current stream on the GPU."""
        return int(sys.modules["cupy"].cuda.get_current_stream(ordinal).ptr)

    def stream_of(self, obj: Any) -> int | None:
        """Return the handle of a `cupy.cuda.Stream`."""
        return int(obj.ptr) if hasattr(obj, "ptr") else None


class _Numba(Producer):
    """numba-cuda device arrays and streams."""

    name = "numba"

    def current_stream(self, ordinal: int) -> int | None:
        """Return numba's default stream, the legacy one."""
        return 1

    def stream_of(self, obj: Any) -> int | None:
        """Return the handle of a numba stream."""
        handle = getattr(obj, "handle", None)
        return None if handle is None else int(getattr(handle, "value", handle) or 0)


_BUILT_IN: dict[str, Producer] = {"numpy": _NumPy(), "cupy": _CuPy(), "numba": _Numba(), "numba_cuda": _Numba()}


@functools.cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # a fifth of the time that importing this package takes

    return {point.name: point for point in entry_points(group=GROUP)}


@functools.cache
def _load(module: str) -> Producer | None:
    if module in _BUILT_IN:
        return _BUILT_IN[module]
    point = _entry_points().get(module)
    if point is None:
        return None
    try:
        producer = point.load()
    except ImportError:
        logging.getLogger(__name__).warning("the %s adapter cannot be imported", module, exc_info=True)
        return None
    assert isinstance(producer, Producer), f"{point.value} is not a Producer"
    return producer


def producer_of(tp: type) -> Producer | None:
    """Return the producer of a type, looking along its MRO, or None."""
    for cls in tp.__mro__:
        producer = _load(cls.__module__.partition(".")[0])
        if producer is not None:
            return producer
    return None


def current_stream(obj: object, ordinal: int) -> int | None:
    """Return the stream on which the framework that owns `obj` works now, or None if it has no such notion."""
    producer = producer_of(type(obj))
    handle = None if producer is None else producer.current_stream(ordinal)
    if handle is None:
        handle = _core.current_stream_of(type(obj), _core.DL_CUDA, ordinal)
    return handle
