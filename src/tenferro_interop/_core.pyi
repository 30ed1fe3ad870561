"""The contract of the compiled core (sources: `native/`)."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from ._session import Session

DL_CPU: int
DL_CUDA: int
DL_CUDA_HOST: int
DL_CUDA_MANAGED: int
REFUSALS: tuple[str, ...]
XLA_READS: int
XLA_MAKES: int
XLA_UPDATES: int
XLA_NUMBER: int
XLA_MAX_PARAMETERS: int
XLA_MAX_NUMBERS: int

def install_hooks(
    *,
    explain_launch: Callable[..., Exception],
    place_error: Callable[..., Exception],
    producer_of: Callable[[type], Any],
    explain_import: Callable[[str, Any, Any], Exception],
    scalar_of: Callable[[object], TypedArgument | None],
) -> None: ...
def load_driver() -> str | None: ...
def cpu_runtime_table() -> int: ...
def pack_number(value: object, code: int, bits: int) -> bytes | None: ...
def type_entry(obj: object) -> TypeEntry: ...
def forget_types() -> None: ...
def wrap_memory(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: tuple[int, int, int],
    device: tuple[int, int],
    read_only: bool,
    owner: object,
) -> object: ...
def allocate_like(tp: type, shape: Sequence[int], dtype: tuple[int, int, int], device: tuple[int, int]) -> Any: ...
def current_stream_of(tp: type, device_type: int, device_id: int) -> int | None: ...
def is_capturing(stream: int) -> tuple[int, bool]: ...
def register_runtime(runtime: RuntimeCore) -> None: ...
def session(device: object = None, *, stream: object = None, like: object = None) -> Session: ...
def install_open(opener: Callable[[object, object, object], Session], cls: type[Session]) -> None: ...
def innermost() -> Any: ...
def device_of(obj: object) -> tuple[int, int]: ...

class TypeEntry:
    producer: Any
    @property
    def has_exchange_api(self) -> bool: ...

class LaunchShape:
    def _fill(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        cluster: Sequence[int] | None,
        cooperative: bool,
        programmatic: bool,
        empty: bool,
    ) -> None: ...
    @property
    def grid(self) -> tuple[int, int, int]: ...
    @property
    def block(self) -> tuple[int, int, int]: ...
    @property
    def shared_mem_bytes(self) -> int: ...
    @property
    def cluster(self) -> tuple[int, int, int] | None: ...
    @property
    def cooperative(self) -> bool: ...
    @property
    def programmatic(self) -> bool: ...
    @property
    def empty(self) -> bool: ...

class TypedArgument:
    data: bytes
    keep: object
    def __new__(
        cls, data: bytes = b"", code: int = 255, bits: int = 0, lanes: int = 1, keep: object = None
    ) -> Self: ...
    @property
    def dtype_word(self) -> int: ...

class RuntimeCore:
    device_type: int
    device_id: int
    failed: bool
    def __new__(cls, *args: Any) -> Any: ...

class Kernel:
    runtime: Any
    parameter_count: int
    closed: bool
    streams: dict[int, Any]
    in_graph: bool
    max_threads: int
    shared_granted: int
    shared_limit: int
    needs_cluster: bool
    needs_cooperative: bool
    def _configure(
        self,
        runtime: RuntimeCore,
        handle: int,
        parameters: Sequence[tuple[int, int, int, int, int, int]] | None,
        may_alias: bool,
        check: bool,
    ) -> None: ...
    def _limit(
        self,
        max_grid: Sequence[int],
        max_block: Sequence[int],
        max_threads: int,
        shared_granted: int,
        shared_limit: int,
        needs_cluster: bool,
        needs_cooperative: bool,
    ) -> None: ...
    def _granted(self, nbytes: int) -> None: ...
    @property
    def handle_value(self) -> int: ...

class MemoryRef:
    session: Any
    nbytes: int
    owner: Any
    read_only: bool
    def _point(self, session: object, address: int, nbytes: int, owner: object, read_only: bool) -> None: ...
    @property
    def _address(self) -> int: ...
    @property
    def is_valid(self) -> bool: ...

class TensorRef(MemoryRef):
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_contiguous: bool
    device_type: int
    device_id: int
    @property
    def ndim(self) -> int: ...
    @property
    def dtype_code(self) -> tuple[int, int, int]: ...

class DeviceArray:
    owner: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    stream_handle: int
    stream_owner: Any
    def _describe(
        self,
        address: int,
        shape: Sequence[int],
        code: int,
        bits: int,
        lanes: int,
        device_type: int,
        device_id: int,
        owner: object,
        stream: object,
    ) -> None: ...
    @property
    def _address(self) -> int: ...
    def _capsule(self, versioned: bool, copied: bool) -> object: ...

class SessionCore:
    open: bool
    runtime: RuntimeCore
    device_type: int
    device_id: int
    stream_handle: int
    stream_ref: Any
    pending_count: int
    launch_count: int
    driver_status: int
    message: str
    process: int
    edge_event: int
    own_stream: bool
    def _begin(self, runtime: RuntimeCore, stream: int, stream_ref: object, own_stream: bool) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...
    def _keep(self, owners: Sequence[object]) -> None: ...
    def _take_pending(self) -> list[object]: ...
    def _require_ready(self, op: str) -> None: ...
    def _wait_stream(self, stream: int) -> None: ...
    def launch(self, function: Kernel, config: LaunchShape, args: Sequence[object]) -> None: ...
    @property
    def recent_kernels(self) -> list[Any]: ...

class PreparedCore:
    args: tuple[object, ...]
    def _prepare(self, session: SessionCore, kernel: Kernel, shape: LaunchShape, args: tuple[object, ...]) -> None: ...
    def __call__(self, args: Sequence[object] | None = None) -> None: ...

def reference(session: SessionCore, obj: object, writable: bool, strided: bool, cls: type[Any]) -> tuple[str, Any]: ...
def xla_capsule(cuda: bool) -> object: ...
def xla_register(key: int, prepared: PreparedCore, names: bytes) -> None: ...
def xla_number(prepared: PreparedCore, index: int) -> bytes | None: ...
