"""The CPU device: CUDA C++ compiled for the host, run by the embedded engine; streams are ordered no-ops."""

from __future__ import annotations

import ctypes
from typing import NoReturn

from .. import _core
from .._errors import BackendError, UnsupportedError
from .._image_cache import directory as cache_directory
from .._nvrtc_options import NvrtcOptions
from .._signature import Signature, from_words
from . import Limits, LoadedKernel
from .cpu_compiler import HostImage, compile_image

ALIGNMENT = 256  # as cudaMalloc gives
MAX_SHARED = 227 * 1024
_UINT_MAX = 2**32 - 1

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class CpuImage:
    """One host image and the names by which its kernels are known."""

    def __init__(self, image: HostImage, limits: Limits) -> None:
        self._image = image
        self._limits = limits
        self.check = image.check

    def names(self) -> list[str]:
        """Return the kernels' names."""
        return list(self._image.kernels)

    def kernel(self, name: str, declared: Signature | None) -> LoadedKernel:
        """Return one kernel; raises `KeyError` for an unknown name."""
        host = self._image.kernels[name]
        limits = self._limits
        if host.max_threads != limits.max_threads:
            limits = Limits(
                limits.max_grid, limits.max_block, host.max_threads, limits.shared_default, limits.shared_limit
            )
        return LoadedKernel(name, host.address, from_words(host.words), limits)

    def close(self) -> None:
        """Unload the image."""
        self._image.close()


class CpuDevice:
    """The host's processors behind the device seam."""

    kind = "cpu"
    dl_type = _core.DL_CPU
    ordinal = 0
    context = 0

    def __init__(self) -> None:
        self.limits = Limits(
            max_grid=(2**31 - 1, 65535, 65535),
            max_block=(1024, 1024, 64),
            max_threads=1024,
            shared_default=MAX_SHARED,
            shared_limit=MAX_SHARED,
        )

    def compile(self, source: str, options: NvrtcOptions) -> CpuImage:
        """Compile for the host and load; `CompileError` holds the compiler's text."""
        image = compile_image(
            source,
            std=options.std,
            include_paths=options.include_paths,
            defines={name: None if value is None else str(value) for name, value in dict(options.defines).items()},
            extra=options.extra,
            name_expressions=options.name_expressions,
            check=options.check,
            runtime_table=_core.cpu_runtime_table(),
            cache_dir=cache_directory() / "cpu",
        )
        return CpuImage(image, self.limits)

    def load_ptx(self, ptx: bytes) -> NoReturn:
        """Refuse: PTX is machine code for a GPU."""
        raise _only_source("load_ptx", "PTX")

    def load_cubin(self, cubin: bytes) -> NoReturn:
        """Refuse: a CUBIN is machine code for a GPU."""
        raise _only_source("load_cubin", "a CUBIN")

    def grant_shared(self, handle: int, nbytes: int) -> None:
        """Do nothing: the whole limit is always granted."""

    def new_stream(self) -> int:
        """Return the one host stream."""
        return 0

    def check_stream(self, handle: int) -> None:
        """Accept: the CPU device has one stream, and everything on it is done at once."""

    def allocate(self, nbytes: int, stream: int) -> int:
        """Allocate host memory aligned to 256 bytes."""
        if nbytes == 0:
            return 0
        address = _libc.aligned_alloc(ALIGNMENT, (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
        if not address:
            raise BackendError(f"allocation of {nbytes} bytes failed", op="alloc", name="ENOMEM", nbytes=nbytes)
        return int(address)

    def free(self, address: int, stream: int) -> None:
        """Free host memory."""
        _libc.free(address)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy now."""
        ctypes.memmove(target, source, nbytes)

    def upload(self, target: int, data: bytes, stream: int) -> None:
        """Copy now."""
        ctypes.memmove(target, data, len(data))

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy now."""
        ctypes.memmove(target, source, nbytes)

    def synchronize(self, stream: int) -> None:
        """Do nothing: a launch returns when it is done."""

    def is_capturing(self, stream: int) -> bool:
        """Return False: there are no graphs."""
        return False

    def new_event(self) -> int:
        """Return a placeholder."""
        return 0

    def record(self, event: int, stream: int) -> None:
        """Do nothing."""

    def is_done(self, event: int) -> bool:
        """Return True."""
        return True

    def wait(self, stream: int, event: int) -> None:
        """Do nothing."""

    def destroy_event(self, event: int) -> None:
        """Do nothing."""


def _only_source(op: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"the CPU device must be given CUDA C++ source, got {what}. Call `s.compile_nvrtc(source)`, or open a session "
        "on a GPU",
        op=op,
    )
