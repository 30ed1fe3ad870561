# The objects a launch is made of: geometry, typed arguments, kernels, device memory, tensor references.

cdef class LaunchShape:
    """Geometry of one launch; the Python class on top validates it once."""

    cdef unsigned grid_[3]
    cdef unsigned block_[3]
    cdef unsigned cluster_[3]
    cdef unsigned shared_bytes
    cdef bint has_cluster, is_cooperative, is_programmatic, is_empty, plain

    def _fill(self, grid, block, shared_bytes, cluster, cooperative, programmatic, empty):
        cdef int i
        for i in range(3):
            self.grid_[i], self.block_[i] = grid[i], block[i]
            self.cluster_[i] = cluster[i] if cluster is not None else 1
        self.shared_bytes = shared_bytes
        self.has_cluster, self.is_cooperative = cluster is not None, cooperative
        self.is_programmatic, self.is_empty = programmatic, empty
        self.plain = not (self.has_cluster or self.is_cooperative or self.is_programmatic)

    @property
    def grid(self):
        """Blocks along x, y, z."""
        return (self.grid_[0], self.grid_[1], self.grid_[2])

    @property
    def block(self):
        """Threads of one block along x, y, z."""
        return (self.block_[0], self.block_[1], self.block_[2])

    @property
    def shared_mem_bytes(self):
        """Dynamic shared memory of one block, in bytes."""
        return self.shared_bytes

    @property
    def cluster(self):
        """Blocks of one cluster along x, y, z, or None."""
        return (self.cluster_[0], self.cluster_[1], self.cluster_[2]) if self.has_cluster else None

    @property
    def cooperative(self):
        """Whether all blocks must be resident together."""
        return self.is_cooperative

    @property
    def programmatic(self):
        """Whether the kernel may start before its predecessor has finished (programmatic dependent launch)."""
        return self.is_programmatic

    @property
    def empty(self):
        """Whether there is no element to work on: everything is checked and nothing is enqueued."""
        return self.is_empty


cdef class TypedArgument:
    """A kernel argument with its exact bytes and type."""

    cdef readonly bytes data
    cdef const char* raw
    cdef uint32_t dtype
    cdef uint32_t size
    cdef readonly object keep

    def __cinit__(self, bytes data=b"", code=CODE_STRUCT, bits=0, lanes=1, keep=None):
        self.data, self.keep = data, keep
        self.raw = <const char*>data
        self.size = <uint32_t>len(data)
        self.dtype = <uint32_t>code | <uint32_t>bits << 8 | <uint32_t>lanes << 16

    @property
    def dtype_word(self):
        """(code, bits, lanes), packed."""
        return self.dtype


cdef enum ParameterKind:
    SCALAR = 0
    POINTER = 1
    STRUCT = 2
    ANY = 3  # the image tells a size, or nothing

cdef enum:
    READS = 0
    WRITES = 1
    ACCESS_UNKNOWN = 2

cdef struct Parameter:
    uint8_t kind
    uint8_t access
    uint32_t size
    uint32_t dtype
    uint32_t element_size
    uint32_t element_align


cdef class RuntimeCore:
    """The part of a runtime that every launch looks at."""

    cdef readonly int device_type, device_id
    cdef uintptr_t context
    cdef public bint failed

    def __cinit__(self, device_type=TFI_DL_CPU, device_id=0, context=0, *args, **kwargs):
        self.device_type, self.device_id, self.context = device_type, device_id, context


cdef enum:
    DEVICES = 64

cdef PyObject* cuda_runtimes[DEVICES]  # a runtime lives as long as the process
cdef PyObject* cpu_runtime = NULL


def register_runtime(RuntimeCore runtime):
    """Let `open_like` find the runtime."""
    global cpu_runtime
    Py_XINCREF_ptr(<PyObject*>runtime)
    if runtime.device_type == TFI_DL_CPU:
        cpu_runtime = <PyObject*>runtime
    elif runtime.device_id < DEVICES:
        cuda_runtimes[runtime.device_id] = <PyObject*>runtime


cdef inline PyObject* runtime_at(tfi_dl_device device) noexcept:
    """Return the runtime of a device, or NULL before the first session there."""
    if device.device_type == TFI_DL_CPU:
        return cpu_runtime
    if device.device_type == TFI_DL_CUDA and 0 <= device.device_id < DEVICES:
        return cuda_runtimes[device.device_id]
    return NULL


cdef class Kernel:
    """A loaded kernel: its handle, parameters and limits."""

    cdef void* handle
    cdef readonly object runtime
    cdef Parameter* parameters
    cdef readonly Py_ssize_t parameter_count  # -1: not known
    cdef bint writes_known, writes_any, may_alias, check
    cdef public bint closed
    cdef unsigned max_grid[3]
    cdef unsigned max_block[3]
    cdef readonly unsigned max_threads, shared_granted, shared_limit
    cdef readonly bint needs_cluster, needs_cooperative
    cdef object checked  # the last geometry found good
    cdef uintptr_t last_stream
    cdef bint has_run
    cdef readonly dict streams   # every stream it ran on: handle -> StreamRef
    cdef readonly bint in_graph  # launched while a graph was recorded

    def _configure(self, runtime, uintptr_t handle, parameters, bint may_alias, bint check):
        """`parameters`: (kind, access, size, dtype word, element size, element alignment) each, or None."""
        cdef Py_ssize_t i
        self.runtime, self.handle, self.streams = runtime, <void*>handle, {}
        self.may_alias, self.check = may_alias, check
        self.parameter_count = -1 if parameters is None else len(parameters)
        self.writes_any = parameters is None
        if not parameters:
            return
        self.parameters = <Parameter*>PyMem_Malloc(len(parameters) * sizeof(Parameter))
        if self.parameters == NULL:
            raise MemoryError
        for i in range(len(parameters)):
            p = parameters[i]
            self.parameters[i] = Parameter(p[0], p[1], p[2], p[3], p[4], p[5])
            self.writes_any = self.writes_any or p[1] != READS

    def _limit(self, max_grid, max_block, max_threads, shared_granted, shared_limit, needs_cluster, needs_cooperative):
        cdef int i
        for i in range(3):
            self.max_grid[i], self.max_block[i] = max_grid[i], max_block[i]
        self.max_threads, self.shared_granted, self.shared_limit = max_threads, shared_granted, shared_limit
        self.needs_cluster, self.needs_cooperative = needs_cluster, needs_cooperative

    def _granted(self, unsigned nbytes):
        """Note that the driver now allows this much dynamic shared memory."""
        self.shared_granted = nbytes

    @property
    def handle_value(self):
        """The driver's kernel handle as an integer."""
        return <uintptr_t>self.handle

    def __dealloc__(self):
        PyMem_Free(self.parameters)


cdef class MemoryRef:
    """A span of device memory that belongs to one session."""

    cdef readonly object session
    cdef uintptr_t address_
    cdef readonly int64_t nbytes
    cdef readonly object owner
    cdef readonly bint read_only

    def _point(self, session, uintptr_t address, int64_t nbytes, owner, bint read_only):
        self.session, self.address_, self.nbytes, self.owner = session, address, nbytes, owner
        self.read_only = read_only

    @property
    def _address(self):
        return self.address_

    @property
    def is_valid(self):
        """Whether the session that made it is still open."""
        return self.session is not None and (<SessionCore>self.session).open


cdef class TensorRef(MemoryRef):
    """The measured part of `TensorRef` and `TensorMut`."""

    cdef uint32_t dtype_
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly bint is_contiguous
    cdef readonly int device_type, device_id
    cdef char* low
    cdef char* high
    cdef bint writable
    cdef TypeEntry entry
    cdef object managed

    def __init__(self, *args, **kwargs):
        raise refuse_import("construct", self, None)

    @property
    def ndim(self):
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype_code(self):
        """DLPack's (code, bits, lanes)."""
        return (self.dtype_ & 0xff, (self.dtype_ >> 8) & 0xff, self.dtype_ >> 16)
