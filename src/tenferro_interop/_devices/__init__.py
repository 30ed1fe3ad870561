"""The seam between the package and a device: everything above it is the same for a GPU and for the CPU device.

A device hands out memory, streams' ordering, loaded images and limits; `cuda.py` does so through cuda-python, `cpu.py`
through the embedded engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .._nvrtc_options import NvrtcOptions
    from .._signature import Signature


@dataclass(frozen=True, slots=True)
class Limits:
    """What one launch may ask of a device or of a kernel: extents, threads of a block, bytes of shared memory."""

    max_grid: tuple[int, int, int]
    max_block: tuple[int, int, int]
    max_threads: int
    shared_default: int
    shared_limit: int
    static_shared: int = 0
    cluster: tuple[int, int, int] | None = None
    cluster_limit: int = 1
    cooperative: bool = False
    programmatic: bool = False


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """One entry of a loaded image."""

    name: str
    handle: int
    signature: Signature | None
    limits: Limits
    needs_cooperative: bool = False


class Image(Protocol):
    """A loaded image: CUBIN, PTX or host code."""

    check: bool

    def names(self) -> list[str]:
        """Return the kernel names by which users may ask."""
        ...

    def kernel(self, name: str, declared: Signature | None) -> LoadedKernel:
        """Return one kernel; `declared` is the caller's own signature, checked against what is known."""
        ...

    def close(self) -> None:
        """Unload; the caller has made sure that nothing runs it."""
        ...


class Device(Protocol):
    """One GPU, or the CPU device."""

    kind: str
    dl_type: int
    ordinal: int
    limits: Limits
    context: int

    def compile(self, source: str, options: NvrtcOptions) -> Image:
        """Compile CUDA C++ for this device and load it."""
        ...

    def load_ptx(self, ptx: bytes) -> Image:
        """Load PTX text."""
        ...

    def load_cubin(self, cubin: bytes) -> Image:
        """Load a CUBIN or fatbin image."""
        ...

    def grant_shared(self, handle: int, nbytes: int) -> None:
        """Let a kernel use that much dynamic shared memory."""
        ...

    def new_stream(self) -> int:
        """Create a non-blocking stream."""
        ...

    def check_stream(self, handle: int) -> None:
        """Raise unless the stream belongs to this device."""
        ...

    def allocate(self, nbytes: int, stream: int) -> int:
        """Return the address of fresh memory, usable on `stream` from now on; 0 for no bytes."""
        ...

    def free(self, address: int, stream: int) -> None:
        """Give memory back once `stream` has passed what it holds now."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy within the device."""
        ...

    def upload(self, target: int, data: bytes, stream: int) -> None:
        """Copy host bytes in; they may be changed as soon as this returns."""
        ...

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the host address `target` and wait for it."""
        ...

    def synchronize(self, stream: int) -> None:
        """Block the host until the stream has done everything."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Return whether the stream records a CUDA graph."""
        ...

    def new_event(self) -> int:
        """Create an event without timing."""
        ...

    def record(self, event: int, stream: int) -> None:
        """Record the event on the stream."""
        ...

    def is_done(self, event: int) -> bool:
        """Return whether the recorded work has finished."""
        ...

    def wait(self, stream: int, event: int) -> None:
        """Let the stream wait for the event."""
        ...

    def destroy_event(self, event: int) -> None:
        """Destroy the event."""
        ...
