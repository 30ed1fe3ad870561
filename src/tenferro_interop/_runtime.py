"""One device's runtime: identity, memory in flight, modules and resources; shared by all its sessions."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import ClassVar

from . import _core
from ._devices import Device, Image, LoadedKernel
from ._errors import BackendError, ValidationError
from ._resources import ResourceCache
from ._signature import Signature

_log = logging.getLogger(__name__)


class RuntimeIdentity:
    """Which runtime something belongs to: equal only to itself, grants nothing.

    Two sessions on one device share a runtime and therefore an identity.
    """

    __slots__ = ("__weakref__", "device")

    device: str

    def __init__(self, device: str) -> None:
        self.device = device

    def __repr__(self) -> str:
        """Return a text that names the device."""
        return f"<RuntimeIdentity {self.device}>"


class Allocation:
    """Memory of ours; given back, in stream order, when the last reference goes."""

    __slots__ = ("__weakref__", "address", "leaked", "nbytes", "runtime", "stream", "stream_owner")

    def __init__(self, runtime: Runtime, nbytes: int, stream: int, stream_owner: object) -> None:
        self.leaked = True  # until there is something to free
        self.runtime = runtime
        self.nbytes = nbytes
        self.stream = stream
        self.stream_owner = stream_owner
        self.address = runtime.device.allocate(nbytes, stream)
        self.leaked = self.address == 0

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self.leaked and not is_exiting():  # a default, for the module's globals go first; so does the memory
            self.runtime.release(self)


class Runtime(_core.RuntimeCore):
    """What all sessions of one device share; made by `runtime_of`."""

    _all: ClassVar[dict[tuple[str, int], Runtime]] = {}
    _guard: ClassVar[threading.RLock] = threading.RLock()

    def __new__(cls, device: Device) -> Runtime:
        self: Runtime = super().__new__(cls, device.dl_type, device.ordinal, device.context)
        return self

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = "cpu" if device.kind == "cpu" else f"cuda:{device.ordinal}"
        self.identity = RuntimeIdentity(self.name)
        self.resources = ResourceCache()
        self.images = ImageCache()
        self.lock = threading.RLock()
        self.process = os.getpid()
        self._in_flight: list[tuple[int, list[object]]] = []
        self._idle_events: list[int] = []
        self._leaked: list[object] = []
        self._streams: list[int] = []
        _core.register_runtime(self)

    def take_stream(self) -> int:
        """Return a stream of our own that no open session uses."""
        with self.lock:
            return self._streams.pop() if self._streams else self.device.new_stream()

    def give_stream(self, handle: int) -> None:
        """Take a stream back; what it holds stays ordered before whatever its next user enqueues."""
        with self.lock:
            self._streams.append(handle)

    def take_event(self) -> int:
        """Return an event that is not in use."""
        with self.lock:
            return self._idle_events.pop() if self._idle_events else self.device.new_event()

    def give_event(self, event: int) -> None:
        """Take an event back."""
        with self.lock:
            self._idle_events.append(event)

    def retire(self, stream: int, owners: list[object]) -> None:
        """Keep `owners` alive until `stream` has passed what it holds now.

        While the stream records a graph no event tells when the graph is done with them: they are kept for good.
        """
        if not owners or self.device.kind == "cpu":
            return
        if self.failed or self.device.is_capturing(stream):
            self.leak(owners)
            return
        event = self.take_event()
        try:
            self.device.record(event, stream)
        except BackendError:
            self.fail()
            self.leak(owners)
            raise
        with self.lock:
            self._in_flight.append((event, owners))
        self.drain()

    def drain(self) -> None:
        """Let go of everything whose work has finished; never waits."""
        with self.lock:
            waiting, self._in_flight = self._in_flight, []
            finished: list[list[object]] = []
            for event, owners in waiting:
                if self._is_done(event):
                    self._idle_events.append(event)
                    finished.append(owners)
                else:
                    self._in_flight.append((event, owners))
            if self.failed:
                self._leaked.append(self._in_flight)
                self._in_flight = []
        finished.clear()  # outside the lock: an owner's deleter may come back here

    def _is_done(self, event: int) -> bool:
        """Ask the driver; where it answers with an earlier fault, the context is lost and the fault is logged."""
        if self.failed:
            return False
        try:
            return self.device.is_done(event)
        except BackendError as error:
            self.failed = True
            _log.error("the context of %s is lost: %s", self.name, error)
            return False

    @property
    def in_flight(self) -> int:
        """Number of batches whose work has not been seen to finish."""
        return len(self._in_flight)

    def leak(self, owners: list[object]) -> None:
        """Keep for ever what may still be in use by a device that no longer answers."""
        with self.lock:
            self._leaked.append(owners)

    def fail(self) -> None:
        """Mark the context as lost: memory in flight is kept on purpose, sessions refuse further work."""
        with self.lock:
            self.failed = True
            self._leaked.append(self._in_flight)
            self._in_flight = []

    def release(self, allocation: Allocation) -> None:
        """Free an allocation from any thread; errors at this point can only be logged."""
        if self.failed or os.getpid() != self.process:
            return
        try:
            self.device.free(allocation.address, allocation.stream)
        except BackendError as error:
            _log.warning("device memory of %d bytes was not freed: %s", allocation.nbytes, error)


class LoadedImage:
    """A loaded image; unloaded when nobody refers to it and the streams that ran it have passed.

    One that a graph recorded is never unloaded: the graph may be replayed at any time.
    """

    def __init__(self, runtime: Runtime, image: Image, parameter_names: Mapping[str, tuple[str, ...]]) -> None:
        self.runtime = runtime
        self.image = image
        self.parameter_names = parameter_names
        self.streams: dict[int, object] = {}
        self.in_graph = False
        self._kernels: dict[str, LoadedKernel] = {}
        self._shared_granted: dict[int, int] = {}

    def kernel(self, name: str, declared: Signature | None) -> LoadedKernel:
        """Look a kernel up, once for each name; raises `KeyError` for an unknown one."""
        if declared is not None:
            return self.image.kernel(name, declared)
        if name not in self._kernels:
            self._kernels[name] = self.image.kernel(name, None)
        return self._kernels[name]

    def grant_shared(self, handle: int, nbytes: int) -> int:
        """Let a kernel use at least `nbytes` of dynamic shared memory; returns what it may use.

        The driver keeps one limit for each kernel, which all its `Function`s share: it only grows.
        """
        with self.runtime.lock:
            granted = self._shared_granted.get(handle, 0)
            if nbytes > granted:
                self.runtime.device.grant_shared(handle, nbytes)
                granted = self._shared_granted[handle] = nbytes
            return granted

    def __del__(self) -> None:
        runtime = self.runtime
        if self.in_graph or runtime.failed or os.getpid() != runtime.process:
            return
        closer = _Closer(self.image)
        with contextlib.suppress(BackendError):
            for handle in self.streams:
                runtime.retire(handle, [closer, self.streams[handle]])


class _Closer:
    """Closes an image when the last batch that mentions it has finished."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def __del__(self) -> None:
        with contextlib.suppress(BackendError):
            self._image.close()


class ImageCache:
    """The images compiled last, by source and options; the oldest leaves when the cache is full."""

    CAPACITY = 512

    def __init__(self) -> None:
        self._images: OrderedDict[Hashable, LoadedImage] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Hashable) -> LoadedImage | None:
        """Return the image and make it the youngest."""
        with self._guard:
            loaded = self._images.get(key)
            if loaded is not None:
                self._images.move_to_end(key)
            return loaded

    def put(self, key: Hashable, loaded: LoadedImage) -> None:
        """Keep an image."""
        with self._guard:
            self._images[key] = loaded
            oldest = self._images.popitem(last=False)[1] if len(self._images) > self.CAPACITY else None
        del oldest  # outside the lock: unloading may come back here


def runtime_of(kind: str, ordinal: int) -> Runtime:
    """Return the runtime of a device, made on first use.

    Raises `ValidationError` for an unknown device, `UnsupportedError` where there is no driver.
    """
    runtime = Runtime._all.get((kind, ordinal))
    if runtime is not None:
        return runtime
    with Runtime._guard:
        if (kind, ordinal) not in Runtime._all:
            Runtime._all[kind, ordinal] = Runtime(_open_device(kind, ordinal))
        return Runtime._all[kind, ordinal]


def _open_device(kind: str, ordinal: int) -> Device:
    # Loaded when first asked for: who uses one device needs neither the other's compiler nor cuda-python.
    if kind == "cpu":
        from ._devices.cpu import CpuDevice

        return CpuDevice()
    if kind != "cuda":
        raise ValidationError(
            f"device must be 'cpu', 'cuda' or 'cuda:N', got {kind!r}", op="session", argument="device", actual=kind
        )
    from ._devices.cuda import CudaDevice

    return CudaDevice(ordinal)
