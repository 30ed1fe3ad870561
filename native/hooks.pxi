# The Python functions that the core calls on its slow paths, set once by the package.

cdef object explain = None        # (code, index, session, function, config, args) -> exception
cdef object place = None          # (error, index, session, function, args) -> exception
cdef object resolve_type = None   # (type) -> producer | None
cdef object refuse_import = None  # (code, object, facts) -> exception
cdef object typed_scalar = None   # (object) -> KernelArg | None
cdef object open_slowly = None    # (device, stream, like) -> Session
cdef object session_type = None   # Session

# Why a launch was refused.  `_explain.py` has the same names.
cdef enum Refusal:
    RAISED = -1  # a Python exception is set
    OK = 0
    CLOSED, WRONG_THREAD, FORKED, FAILED_RUNTIME, FOREIGN_FUNCTION, CLOSED_MODULE
    COUNT, KIND, SCALAR_RANGE, SCALAR_TYPE, STRUCT_SIZE, UNTYPED, NULL_ARGUMENT
    DEVICE, DTYPE, LAYOUT, ALIGNMENT, READ_ONLY, WRITE_THROUGH_REF, NULL_DATA, EXPLICIT, FOREIGN_REF, EXTENT
    ALIAS, GEOMETRY, SHARED_MEMORY, CLUSTER, COOPERATIVE, DRIVER, KERNEL_FAULT, ELEMENT_MULTIPLE, NOT_A_FUNCTION
    LAUNCH_MODE, BAD_DTYPE, CLOSE_ORDER, CONTEXT_LOST

REFUSALS = (
    "OK", "CLOSED", "WRONG_THREAD", "FORKED", "FAILED_RUNTIME", "FOREIGN_FUNCTION", "CLOSED_MODULE", "COUNT", "KIND",
    "SCALAR_RANGE", "SCALAR_TYPE", "STRUCT_SIZE", "UNTYPED", "NULL_ARGUMENT", "DEVICE", "DTYPE", "LAYOUT",
    "ALIGNMENT", "READ_ONLY", "WRITE_THROUGH_REF", "NULL_DATA", "EXPLICIT", "FOREIGN_REF", "EXTENT", "ALIAS",
    "GEOMETRY", "SHARED_MEMORY", "CLUSTER", "COOPERATIVE", "DRIVER", "KERNEL_FAULT", "ELEMENT_MULTIPLE",
    "NOT_A_FUNCTION", "LAUNCH_MODE", "BAD_DTYPE", "CLOSE_ORDER", "CONTEXT_LOST",
)


def install_hooks(*, explain_launch, place_error, producer_of, explain_import, scalar_of):
    """Set the Python side of the slow paths."""
    global explain, place, resolve_type, refuse_import, typed_scalar
    explain, place, resolve_type = explain_launch, place_error, producer_of
    refuse_import, typed_scalar = explain_import, scalar_of


def install_open(opener, cls):
    """Set how sessions are opened where it takes Python, and their class."""
    global open_slowly, session_type
    open_slowly, session_type = opener, cls


def load_driver():
    """Resolve the driver table; return what is missing, or None."""
    cdef const char* what = NULL
    cdef int status
    with nogil:
        status = tfi_driver_load(&what)
    return None if status == 0 else what.decode()


def cpu_runtime_table():
    """Return the address of the table that CPU images are initialised with."""
    return <uintptr_t>tfi_cpu_runtime_table()


DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED = TFI_DL_CPU, TFI_DL_CUDA, TFI_DL_CUDA_HOST, TFI_DL_CUDA_MANAGED
