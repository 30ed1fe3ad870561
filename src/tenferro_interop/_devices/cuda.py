"""A CUDA device behind the device seam: its primary context, memory, streams and events."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._errors import RuntimeStateError, ValidationError
from .._nvrtc import compile_cached
from .._nvrtc_options import NvrtcOptions
from . import Limits
from .cuda_driver import call, current, device_count, driver, failure, relaxed
from .cuda_image import CudaImage, check_cubin, load_image, uses_grid_sync

NOT_READY = 600


class CudaDevice:
    """One GPU; retains its primary context for the life of the process."""

    kind = "cuda"
    dl_type = _core.DL_CUDA

    def __init__(self, ordinal: int) -> None:
        bindings = driver()
        if not 0 <= ordinal < device_count():
            raise ValidationError(
                f"device must be below the {device_count()} visible GPUs, got cuda:{ordinal}",
                op="session",
                argument="device",
                actual=ordinal,
            )
        self.ordinal = ordinal
        self.handle = call("session", bindings.cuDeviceGet(ordinal))
        self.context = int(call("session", bindings.cuDevicePrimaryCtxRetain(self.handle)))
        self.limits = self._read_limits()
        major, minor = (self.attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        self.arch = f"sm_{major}{minor}"
        self._pools = bool(self.attribute("MEMORY_POOLS_SUPPORTED"))

    def attribute(self, name: str) -> int:
        """Return `CU_DEVICE_ATTRIBUTE_<name>`."""
        bindings = driver()
        attribute = getattr(bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call("session", bindings.cuDeviceGetAttribute(attribute, self.handle)))

    def _read_limits(self) -> Limits:
        def each(name: str) -> tuple[int, int, int]:
            x, y, z = (self.attribute(f"MAX_{name}_DIM_{axis}") for axis in "XYZ")
            return (x, y, z)

        return Limits(
            max_grid=each("GRID"),
            max_block=each("BLOCK"),
            max_threads=self.attribute("MAX_THREADS_PER_BLOCK"),
            shared_default=self.attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
            shared_limit=self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            cluster_limit=8 if self.attribute("CLUSTER_LAUNCH") else 1,
            cooperative=bool(self.attribute("COOPERATIVE_LAUNCH")),
            programmatic=self.attribute("COMPUTE_CAPABILITY_MAJOR") >= 9,
        )

    def compile(self, source: str, options: NvrtcOptions) -> CudaImage:
        """Compile with NVRTC for this GPU's architecture, from the disk cache where possible, and load."""
        compiled = compile_cached(source, options, arch=options.arch or self.arch)
        return load_image(self, compiled.image, "compile_nvrtc", compiled, grid_sync=uses_grid_sync(source))

    def load_ptx(self, ptx: bytes) -> CudaImage:
        """Load PTX text; the driver's assembler log is in the error."""
        return load_image(self, ptx, "load_ptx")

    def load_cubin(self, cubin: bytes) -> CudaImage:
        """Load a CUBIN or fatbin that is whole; the driver would read past a shorter one."""
        check_cubin(cubin)
        return load_image(self, cubin, "load_cubin")

    def grant_shared(self, handle: int, nbytes: int) -> None:
        """Raise the kernel's dynamic shared memory limit on this device."""
        bindings = driver()
        name = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("launch", bindings.cuKernelSetAttribute(name, nbytes, bindings.CUkernel(handle), self.handle))

    def new_stream(self) -> int:
        """Create a non-blocking stream."""
        bindings = driver()
        with current(self.context), relaxed():
            flags = bindings.CUstream_flags.CU_STREAM_NON_BLOCKING
            return int(call("stream", bindings.cuStreamCreate(flags.value)))

    def check_stream(self, handle: int) -> None:
        """Raise `ValidationError` unless the stream belongs to this GPU's primary context."""
        if handle <= 1:
            return
        bindings = driver()
        context = int(call("session", bindings.cuStreamGetCtx(bindings.CUstream(handle))))
        if context != self.context:
            raise ValidationError(
                f"stream must belong to the primary context of cuda:{self.ordinal}, got a stream of another context. "
                "Create the stream on that device",
                op="session",
                argument="stream",
            )

    def allocate(self, nbytes: int, stream: int) -> int:
        """Allocate in the order of `stream`; refuses while the stream records a graph."""
        if nbytes == 0:
            return 0
        if self.is_capturing(stream):
            raise RuntimeStateError(
                "memory must be allocated outside CUDA-graph capture, got a capturing stream. Allocate before the "
                "capture, or through the framework with `like=`",
                op="alloc",
            )
        bindings = driver()
        with current(self.context), relaxed():
            if self._pools:
                return int(call("alloc", bindings.cuMemAllocAsync(nbytes, bindings.CUstream(stream))))
            return int(call("alloc", bindings.cuMemAlloc(nbytes)))

    def free(self, address: int, stream: int) -> None:
        """Free after what `stream` holds now."""
        bindings = driver()
        with current(self.context), relaxed():
            if self._pools and not self.is_capturing(stream):
                call("free", bindings.cuMemFreeAsync(address, bindings.CUstream(stream)))
            else:
                call("free", bindings.cuMemFree(address))

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a device-to-device copy."""
        bindings = driver()
        with current(self.context):
            call("copy_bytes", bindings.cuMemcpyDtoDAsync(target, source, nbytes, bindings.CUstream(stream)))

    def upload(self, target: int, data: bytes, stream: int) -> None:
        """Copy from pageable host memory: the driver stages it before it returns, so `data` may go."""
        bindings = driver()
        with current(self.context):
            call("upload_bytes", bindings.cuMemcpyHtoDAsync(target, data, len(data), bindings.CUstream(stream)))

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the host and wait."""
        bindings = driver()
        with current(self.context):
            call("download_tensor", bindings.cuMemcpyDtoHAsync(target, source, nbytes, bindings.CUstream(stream)))
            call("download_tensor", bindings.cuStreamSynchronize(bindings.CUstream(stream)))

    def synchronize(self, stream: int) -> None:
        """Wait for the stream; an earlier asynchronous fault surfaces here."""
        bindings = driver()
        with current(self.context):
            call("synchronize", bindings.cuStreamSynchronize(bindings.CUstream(stream)))

    def is_capturing(self, stream: int) -> bool:
        """Ask the driver; the legacy default stream cannot capture, and asking it during a capture is an error."""
        status, capturing = _core.is_capturing(stream)
        return status == 0 and bool(capturing)

    def new_event(self) -> int:
        """Create an event without timing."""
        bindings = driver()
        with current(self.context), relaxed():
            return int(call("event", bindings.cuEventCreate(bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)))

    def record(self, event: int, stream: int) -> None:
        """Record the event."""
        bindings = driver()
        with current(self.context):
            call("event", bindings.cuEventRecord(bindings.CUevent(event), bindings.CUstream(stream)))

    def is_done(self, event: int) -> bool:
        """Query the event."""
        bindings = driver()
        with relaxed():
            (status,) = bindings.cuEventQuery(bindings.CUevent(event))
        if int(status) not in (0, NOT_READY):
            raise failure("event", status)
        return int(status) == 0

    def wait(self, stream: int, event: int) -> None:
        """Let the stream wait for the event."""
        bindings = driver()
        with current(self.context):
            call("wait_event", bindings.cuStreamWaitEvent(bindings.CUstream(stream), bindings.CUevent(event), 0))

    def destroy_event(self, event: int) -> None:
        """Destroy the event."""
        bindings = driver()
        with relaxed():
            call("event", bindings.cuEventDestroy(bindings.CUevent(event)))

    def kernel_attribute(self, handle: int, name: str) -> int:
        """Return `CU_FUNC_ATTRIBUTE_<name>` of a kernel on this device."""
        bindings = driver()
        attribute: Any = getattr(bindings.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(call("function", bindings.cuKernelGetAttribute(attribute, bindings.CUkernel(handle), self.handle)))
