"""Images on a GPU: what is checked before the driver sees them, how they are loaded, and what their kernels tell."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

from .._errors import BackendError, ValidationError
from .._nvrtc import CompiledSource
from .._signature import Signature, from_driver, from_mangled, from_ptx, merge
from . import Limits, LoadedKernel
from .cuda_driver import call, current, driver, failure, relaxed

if TYPE_CHECKING:
    from .cuda import CudaDevice

LOG_BYTES = 16384
PROBE_PREFIX = "_ZN13tfi_signature"  # entries that only carry signatures, in images we compiled ourselves
ELF_HEADER_BYTES = 64
FATBIN_MAGIC = 0xBA55ED50
EM_CUDA = 190
_OLD_ABI = 7  # EI_ABIVERSION up to CUDA 12: the architecture is the low byte of e_flags; from 13 the second byte


def check_cubin(image: bytes) -> None:
    """Refuse what is not a whole CUBIN or fatbin: the driver takes no length and would read past the end.

    ELF64 layout: https://refspecs.linuxfoundation.org/elf/elf.pdf; machine 190 is EM_CUDA.
    """
    if len(image) >= 16 and struct.unpack_from("<I", image)[0] == FATBIN_MAGIC:
        header, body = struct.unpack_from("<HQ", image, 6)
        _require_whole(len(image), header + body)
        return
    if len(image) < ELF_HEADER_BYTES or image[:5] != b"\x7fELF\x02":
        raise ValidationError(
            f"cubin must be a whole ELF64 or fatbin image, got {len(image)} bytes starting {image[:4]!r}. Pass the "
            "file's bytes as `nvcc -cubin` or `-fatbin` wrote them",
            op="load_cubin",
            argument="cubin",
        )
    (machine,) = struct.unpack_from("<H", image, 18)
    if machine != EM_CUDA:
        raise ValidationError(
            f"cubin must be for machine {EM_CUDA} (CUDA), got ELF machine {machine}", op="load_cubin", argument="cubin"
        )
    _require_whole(len(image), _elf_extent(image))


def _elf_extent(image: bytes) -> int:
    program, sections = struct.unpack_from("<QQ", image, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", image, 54)
    extent: int = max(program + program_size * program_count, sections + section_size * section_count)
    for index in range(section_count):
        at = sections + index * section_size
        if at + section_size > len(image):
            return extent
        (kind,) = struct.unpack_from("<I", image, at + 4)
        offset, size = struct.unpack_from("<QQ", image, at + 24)
        if kind != 8:  # SHT_NOBITS takes no room in the file
            extent = max(extent, offset + size)
    return extent


def _require_whole(have: int, need: int) -> None:
    if have < need:
        raise ValidationError(
            f"cubin must be whole, got {have} of {need} bytes. The file was cut short",
            op="load_cubin",
            argument="cubin",
            expected=need,
            actual=have,
        )


def image_arch(image: bytes) -> str | None:
    """Return a CUBIN's architecture, such as ``sm_75``, or None for fatbins and PTX."""
    if image[:4] != b"\x7fELF":
        return None
    (flags,) = struct.unpack_from("<I", image, 48)
    number = flags & 0xFF if image[8] <= _OLD_ABI else (flags >> 8) & 0xFF
    return f"sm_{number}" if number else None


def uses_grid_sync(source: str) -> bool:
    """Return whether the source waits for its whole grid, which only a cooperative launch allows."""
    if re.search(r"this_grid\s*\(\s*\)\s*\.\s*sync\s*\(", source):
        return True
    names = re.findall(r"(\w+)\s*(?:=\s*|\(\s*|\{\s*)[\w:]*\bthis_grid\s*\(", source)
    return any(re.search(rf"\b{name}\s*\.\s*sync\s*\(|\bsync\s*\(\s*{name}\s*\)", source) for name in names)


def load_image(
    device: CudaDevice, image: bytes, op: str, compiled: CompiledSource | None = None, *, grid_sync: bool = False
) -> CudaImage:
    """Load into the device's primary context now, so that nothing is loaded lazily inside a graph capture."""
    bindings = driver()
    info, errors = bytearray(LOG_BYTES), bytearray(LOG_BYTES)
    option = bindings.CUjit_option
    options = [
        option.CU_JIT_INFO_LOG_BUFFER, option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ]  # fmt: skip
    with current(device.context):
        status, library = bindings.cuLibraryLoadData(
            image, options, [info, LOG_BYTES, errors, LOG_BYTES], len(options), [], [], 0
        )
        if int(status) == 0:
            status, _ = bindings.cuLibraryGetModule(library)
    if int(status) != 0:
        raise _load_failure(device, image, op, status, errors)
    return CudaImage(device, library, image, compiled, grid_sync)


def _load_failure(device: CudaDevice, image: bytes, op: str, status: Any, errors: bytearray) -> BackendError:
    log = bytes(errors).split(b"\0", 1)[0].decode("utf-8", "replace")
    arch = image_arch(image)
    if arch is not None and arch != device.arch:
        log = f"the image is for {arch}, the device is {device.arch}. {log}"
    if op == "load_ptx" and b".version" not in image:
        log = f"the text is not PTX, it has no `.version` directive. {log}"
    return failure(op, status, log=log, image_arch=arch, device_arch=device.arch)


class CudaImage:
    """One loaded library and what is known about its kernels."""

    check = False

    def __init__(
        self, device: CudaDevice, library: Any, image: bytes, compiled: CompiledSource | None, grid_sync: bool
    ) -> None:
        self._device = device
        self._library = library
        self._compiled = compiled
        is_ptx = compiled is None and image[:4] != b"\x7fELF" and b".version" in image
        self._ptx = from_ptx(image.rstrip(b"\0").decode()) if is_ptx else {}
        self._grid_sync = grid_sync
        self._open = True

    def names(self) -> list[str]:
        """Return the names by which the kernels can be asked for."""
        if self._compiled is not None:
            return list(self._compiled.lowered)
        bindings = driver()
        count = int(call("function", bindings.cuLibraryGetKernelCount(self._library)))
        kernels = call("function", bindings.cuLibraryEnumerateKernels(count, self._library)) if count else []
        names = [call("function", bindings.cuKernelGetName(kernel)).decode() for kernel in kernels]
        return [name for name in names if not name.startswith(PROBE_PREFIX)]

    def kernel(self, name: str, declared: Signature | None) -> LoadedKernel:
        """Return one kernel with its limits and the best signature known; raises `KeyError` for an unknown name."""
        bindings = driver()
        found = None if self._compiled is None else self._compiled.find(name)
        symbol, compiled = found or (name, None)
        status, kernel = bindings.cuLibraryGetKernel(self._library, symbol.encode())
        if int(status) != 0:
            raise KeyError(name)
        handle = int(kernel)
        signature = self._signature(symbol, kernel, declared or compiled)
        return LoadedKernel(name, handle, signature, self._limits(handle), self._grid_sync)

    def _signature(self, symbol: str, kernel: Any, told: Signature | None) -> Signature | None:
        """Merge what the caller or the compiler says with the entry's own text or name, and the driver's sizes."""
        best = told or self._ptx.get(symbol) or from_mangled(symbol)
        reported = _parameters(kernel)
        if reported is None:
            return best
        return from_driver(reported) if best is None else merge(best, reported)

    def _limits(self, handle: int) -> Limits:
        device = self._device
        static = device.kernel_attribute(handle, "SHARED_SIZE_BYTES")
        return Limits(
            max_grid=device.limits.max_grid,
            max_block=device.limits.max_block,
            max_threads=device.kernel_attribute(handle, "MAX_THREADS_PER_BLOCK"),
            shared_default=max(device.limits.shared_default - static, 0),
            shared_limit=max(device.limits.shared_limit - static, 0),
            static_shared=static,
            cluster=self._required_cluster(handle),
            cluster_limit=device.limits.cluster_limit,
            cooperative=device.limits.cooperative,
            programmatic=device.limits.programmatic,
        )

    def _required_cluster(self, handle: int) -> tuple[int, int, int] | None:
        if self._device.limits.cluster_limit == 1:
            return None
        x, y, z = (
            self._device.kernel_attribute(handle, f"REQUIRED_CLUSTER_{part}") for part in ("WIDTH", "HEIGHT", "DEPTH")
        )
        return (x, y, z) if x else None

    def close(self) -> None:
        """Unload the library."""
        if self._open:
            self._open = False
            with relaxed():
                call("unload", driver().cuLibraryUnload(self._library))


def _parameters(kernel: Any) -> list[tuple[int, int]] | None:
    """Return (offset, size) of each parameter as the driver tells, or None where it cannot (before 12.4, some PTX)."""
    bindings = driver()
    if not hasattr(bindings, "cuKernelGetParamInfo"):
        return None
    found: list[tuple[int, int]] = []
    while True:
        status, *info = bindings.cuKernelGetParamInfo(kernel, len(found))
        if int(status) != 0:
            return found or None
        found.append((int(info[0]), int(info[1])))
