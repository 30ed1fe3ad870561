# The session's compiled half: one captured device and stream, and the one launch path.

cdef enum:
    STACK_ARGUMENTS = 40
    RECENT_LAUNCHES = 8
    PENDING_LIMIT = 256
    FOREIGN_STREAMS = 4
    MESSAGE_BYTES = 1024


cdef inline void set_innermost(PyObject* session) noexcept:
    """Make `session` the thread's innermost; the thread owns a reference to it."""
    global tfi_innermost
    Py_XINCREF_ptr(session)
    tfi_innermost = session


def innermost():
    """Return the session opened last in this thread, or None."""
    return None if tfi_innermost == NULL else <object>tfi_innermost


cdef tuple NO_ARGUMENTS = ()


def session(device=None, *, stream=None, like=None):
    """Open a session: capture a device context and an execution stream for this thread.

    Args:
        device: ``"cuda"``, ``"cuda:1"``, ``"cpu"`` or a `torch.device`; by default that of `like`, else the first GPU,
            else the CPU device.
        stream: a stream object (`__cuda_stream__`, torch, CuPy, numba, cuda.core, `StreamRef`).  By default the
            current stream of the framework that owns `like`, else a stream of our own.
        like: any tensor; says device and framework.

    Raises `ValidationError` for contradictions, bare ints, or a stream of another device; `UnsupportedError` without a
    driver.

    Example:
        >>> import numpy as np, tenferro_interop as tfi
        >>> x = np.zeros(4, "f4")
        >>> with tfi.session(like=x) as s:
        ...     fill = s.compile_nvrtc('extern "C" __global__ void fill(float* x, float v) { x[threadIdx.x] = v; }')
        ...     s.launch(fill.function("fill"), tfi.LaunchConfig(1, 4), [x, 2.0])
        >>> x.tolist()
        [2.0, 2.0, 2.0, 2.0]
    """
    if like is not None and device is None and stream is None:
        opened = open_like(like)
        if opened is not None:
            return opened
    return open_slowly(device, stream, like)


cdef object open_like(like):
    """Open a session on the current stream of the framework that owns `like`, or return None where that takes longer."""
    cdef TypeEntry entry = entry_of(like)
    cdef tfi_dl_tensor view
    cdef void* stream = NULL
    cdef PyObject* runtime
    cdef SessionCore opened
    if not entry.direct:
        return None
    view_direct(like, entry, vet(like, entry, False), &view)
    runtime = runtime_at(view.device)
    if runtime == NULL:
        return None
    if view.device.device_type != TFI_DL_CPU:
        entry.api.current_stream(view.device.device_type, view.device.device_id, &stream)
        if <uintptr_t>stream == 2:
            return None
    opened = <SessionCore>tfi_new(<PyTypeObject*>session_type, NO_ARGUMENTS)
    return opened if opened.begin(<RuntimeCore>runtime, <uintptr_t>stream) == 0 else None


cdef class SessionCore:
    """What one thread holds while it launches: device, context, stream; `Session` adds the verbs."""

    cdef unsigned long thread
    cdef unsigned fork_generation
    cdef readonly int process
    cdef public bint open
    cdef readonly RuntimeCore runtime
    cdef readonly int device_type, device_id
    cdef readonly uintptr_t stream_handle
    cdef void* context
    cdef readonly uintptr_t edge_event   # 0 until two streams have to be ordered
    cdef readonly bint own_stream
    cdef bint legacy_stream, pushed
    cdef object outer              # the session opened before this one in the same thread
    cdef public object stream_ref  # the StreamRef of the captured stream, once somebody has asked for it
    cdef list pending              # owners in use since the last event, or None
    cdef list held                 # owners of the launch being packed, or None
    cdef PyObject* recent[RECENT_LAUNCHES]
    cdef readonly int64_t launch_count
    cdef readonly int driver_status
    cdef readonly str message
    cdef void* foreign[FOREIGN_STREAMS]
    cdef int foreign_count
    cdef const tfi_dl_exchange* met   # the producer whose current stream this launch has already asked for

    def __init__(self, *args, **kwargs):
        raise refuse_import("construct", self, None)

    def _begin(self, RuntimeCore runtime, uintptr_t stream, stream_ref, bint own_stream):
        """Capture; returns the driver's status of making the context current."""
        self.stream_ref, self.own_stream = stream_ref, own_stream
        return self.begin(runtime, stream)

    cdef int begin(self, RuntimeCore runtime, uintptr_t stream) except -1:
        cdef void* current = NULL
        cdef int status = 0
        self.thread, self.fork_generation = PyThread_get_thread_ident(), tfi_fork_generation
        self.process, self.runtime = tfi_process_id, runtime
        self.device_type, self.device_id = runtime.device_type, runtime.device_id
        self.stream_handle, self.context = stream, <void*>runtime.context
        self.legacy_stream = stream <= 2
        self.pending, self.held = None, None
        if runtime.failed:
            raise explain(FAILED_RUNTIME, -1, self, "session", None, ())
        if self.device_type != TFI_DL_CPU:
            status = tfi_driver.context_get_current(&current)
            if status == 0 and current != self.context:
                status = tfi_driver.context_push(self.context)
                self.pushed = status == 0
        if status == 0:
            self.open = True
            self.outer = None if tfi_innermost == NULL else <object>tfi_innermost
            Py_XDECREF_ptr(tfi_innermost)  # `outer` holds it now
            set_innermost(<PyObject*>self)
        return status

    def close(self):
        """Close: what is in flight stays alive until the stream has passed it, the previous context is restored.

        More calls do nothing.  Raises `RuntimeStateError` out of last-in first-out order or from another thread.
        """
        self.finish()

    cdef int finish(self) except -1:
        if not self.open:
            return 0
        if self.fork_generation != tfi_fork_generation:
            self.open = False
            return 0
        if tfi_innermost != <PyObject*>self:
            raise explain(CLOSE_ORDER, -1, self, "close", None, ())
        if self.pending is None and not self.own_stream and self.edge_event == 0:
            self.leave()
            return 0
        try:
            self._let_go()
        finally:
            self.leave()
        return 0

    cdef int leave(self) except -1:
        """Leave the thread's stack of sessions and give the previous context back."""
        cdef void* popped = NULL
        cdef int status = 0
        self.open = False
        outer, self.outer = self.outer, None
        set_innermost(NULL if outer is None else <PyObject*>outer)
        if self.pushed:
            self.pushed = False
            status = tfi_driver.context_pop(&popped)
        Py_XDECREF_ptr(<PyObject*>self)  # the thread's reference; the caller holds another
        if status == 0 and popped != NULL and popped != self.context:
            raise explain(CONTEXT_LOST, -1, self, "close", None, ())
        return 0

    def __enter__(self):
        """Return the open session."""
        if self.ready() != OK:
            self._require_ready("session")
        return self

    def __exit__(self, kind, error, trace):
        """Close; a failure to close never replaces the error of the block."""
        if error is None:
            self.finish()
            return
        try:
            self.finish()
        except Exception as closing:
            error.add_note(f"closing the session failed too: {closing}")

    cdef Refusal ready(self) noexcept:
        if not CHECK_SESSION:
            return OK
        if not self.open:
            return CLOSED
        if self.fork_generation != tfi_fork_generation:
            return FORKED
        if self.thread != PyThread_get_thread_ident():
            return WRONG_THREAD
        return FAILED_RUNTIME if self.runtime.failed else OK

    def _require_ready(self, op):
        """Raise unless this session may be used here and now."""
        cdef Refusal refusal = self.ready()
        if refusal != OK:
            raise explain(refusal, -1, self, op, None, ())

    @property
    def recent_kernels(self):
        """The last kernels launched, oldest first."""
        cdef int64_t i
        return [
            <object>self.recent[i % RECENT_LAUNCHES]
            for i in range(max(0, self.launch_count - RECENT_LAUNCHES), self.launch_count)
        ]

    def launch(self, function, config, args):
        """Check everything, then enqueue one launch of `function` on the captured stream.

        `config` is a `LaunchConfig`; `args` is a list or tuple with one entry for each kernel parameter, in order.
        A `const T*` parameter takes any tensor whose element type is T and reads it; a `T*` parameter takes one that
        may be written.  Python numbers are converted to the declared width.  Returns once the work is enqueued; on
        the CPU device, once it is done.

        Raises `SignatureError`, `DTypeError`, `LayoutError`, `AliasError`, `ValidationError` or `RuntimeStateError`
        before anything is enqueued, and `BackendError` where the driver refuses or (CPU device) the kernel faults.
        """
        cdef int index = -1
        cdef Refusal refusal
        # The GIL is released while the CPU device runs: another thread may change a list then.
        if type(args) is not tuple and (type(args) is not list or self.device_type == TFI_DL_CPU):
            args = tuple(args)
        refusal = self.ready()
        if refusal == OK and not self.admitted_before(<PyObject*>function, <PyObject*>config, args):
            refusal = self.admit(function, config, args)
        if refusal == OK:
            try:
                refusal = self.run(<Kernel>function, <LaunchShape>config, args, &index)
            except Exception as error:
                self.held = None
                raise place(error, index, self, function, args)
        if refusal != OK:
            self.held = None
            raise explain(refusal, index, self, function, config, args)

    cdef inline bint admitted_before(self, PyObject* function, PyObject* config, args) noexcept:
        """Whether this is the last launch's kernel with a geometry that it has passed with."""
        cdef Kernel kernel
        if not CHECK_KERNEL:
            return True
        if self.launch_count == 0 or self.recent[(self.launch_count - 1) % RECENT_LAUNCHES] != function:
            return False
        kernel = <Kernel>function
        return <PyObject*>kernel.checked == config and not kernel.closed and kernel.parameter_count == Py_SIZE(args)

    cdef Refusal admit(self, function, config, args) except RAISED:
        cdef Kernel kernel
        if not isinstance(function, Kernel):
            return NOT_A_FUNCTION
        if not isinstance(config, LaunchShape):
            return GEOMETRY
        kernel = <Kernel>function
        if kernel.runtime is not self.runtime:
            return FOREIGN_FUNCTION
        if kernel.closed:
            return CLOSED_MODULE
        if kernel.parameter_count >= 0 and kernel.parameter_count != Py_SIZE(args):
            return COUNT
        return OK if kernel.checked is config else check_shape(kernel, <LaunchShape>config)

    cdef Refusal run(self, Kernel kernel, LaunchShape shape, args, int* index) except RAISED:
        cdef uint64_t slots[STACK_ARGUMENTS]
        cdef void* pointers[STACK_ARGUMENTS]
        cdef Span spans[STACK_ARGUMENTS]
        cdef Packing packing
        if Py_SIZE(args) > STACK_ARGUMENTS:
            return self.run_large(kernel, shape, args, index)
        packing.slots, packing.pointers, packing.spans = slots, pointers, spans
        packing.span_count, packing.tracked = 0, False
        return self.pack_and_enqueue(kernel, shape, args, &packing, index)

    cdef Refusal run_large(self, Kernel kernel, LaunchShape shape, args, int* index) except RAISED:
        """Do as `run`, with room on the heap."""
        cdef Packing packing
        cdef Py_ssize_t count = Py_SIZE(args)
        cdef void* heap = PyMem_Malloc(count * (sizeof(uint64_t) + sizeof(void*) + sizeof(Span)))
        if heap == NULL:
            raise MemoryError
        packing.spans = <Span*>heap
        packing.slots = <uint64_t*>(packing.spans + count)
        packing.pointers = <void**>(packing.slots + count)
        packing.span_count, packing.tracked = 0, False
        try:
            return self.pack_and_enqueue(kernel, shape, args, &packing, index)
        finally:
            PyMem_Free(heap)

    cdef Refusal pack_and_enqueue(self, Kernel kernel, LaunchShape shape, args, Packing* packing, int* index) except RAISED:
        cdef Refusal refusal = self.pack_all(kernel, shape, args, packing, index)
        if refusal != OK or shape.is_empty:
            return refusal
        refusal = enqueue(self, kernel, shape, packing)
        if refusal == OK:
            self.settle(kernel, args, packing)
        return refusal

    cdef Refusal pack_all(self, Kernel kernel, LaunchShape shape, args, Packing* packing, int* index) except RAISED:
        """Check and pack every argument, then look for overlap."""
        cdef Py_ssize_t i, count = Py_SIZE(args)
        cdef Refusal refusal
        cdef const Parameter* p
        cdef bint is_list = type(args) is list
        self.held = None  # what a refused launch may have left
        self.foreign_count, self.met = 0, NULL
        for i in range(count):
            p = &ANYTHING if kernel.parameter_count < 0 else &kernel.parameters[i]
            obj = <object>(PyList_GET_ITEM_ptr(args, i) if is_list else PyTuple_GET_ITEM_ptr(args, i))
            index[0] = <int>i
            if is_plain(obj, p):
                refusal = pack_plain(obj, p, packing, <int>i, self)
            elif runs_python(obj):
                if is_list:  # the code may change it
                    args, is_list = tuple(args), False
                    self.hold(args)
                refusal = self.pack_slowly(obj, p, packing, <int>i)
            else:
                refusal = pack_one(obj, p, packing, <int>i, self)
            if refusal != OK:
                return refusal
        index[0] = -1
        if CHECK_OVERLAP and kernel.writes_any and not kernel.may_alias:
            index[0] = find_alias(packing.spans, packing.span_count)
            if index[0] >= 0:
                return ALIAS
        return OK

    cdef Refusal pack_slowly(self, obj, const Parameter* p, Packing* packing, int index) except RAISED:
        """Pack an argument whose import runs Python code, which may launch on this very session meanwhile."""
        cdef list held = self.held
        cdef const tfi_dl_exchange* met = self.met
        cdef int foreign_count = self.foreign_count
        cdef void* foreign[FOREIGN_STREAMS]
        cdef Refusal refusal
        memcpy(foreign, self.foreign, sizeof(foreign))
        self.held = None
        refusal = pack_one(obj, p, packing, index, self)
        memcpy(self.foreign, foreign, sizeof(foreign))
        self.foreign_count, self.met = foreign_count, met
        if held is not None:
            held.extend(self.held or ())
            self.held = held
        return refusal

    cdef int settle(self, Kernel kernel, args, Packing* packing) except -1:
        """After the enqueue: count versions, close stream edges, keep what is in use."""
        cdef int i
        self.note_launch(kernel)
        for i in range(packing.span_count):
            if packing.spans[i].version != NULL:
                increment(packing.spans[i].version)
        if packing.tracked:
            self.count_writes(kernel, args)
        if self.device_type == TFI_DL_CPU:
            self.held = None
            return 0
        if self.foreign_count:
            return_to_producers(self)
        if not kernel.has_run or kernel.last_stream != self.stream_handle:
            kernel.last_stream, kernel.has_run = self.stream_handle, True
            kernel.streams[self.stream_handle] = self.stream_ref
        if not self.legacy_stream and self.capturing():
            kernel.in_graph = True  # a graph may replay it for as long as the process lives
            self._keep_for_graph(self.held)
            self.held = None
        elif self.held is not None:
            self.keep(self.held)
            self.held = None
        return 0

    cdef inline void note_launch(self, Kernel kernel) noexcept:
        cdef PyObject** slot = &self.recent[self.launch_count % RECENT_LAUNCHES]
        cdef PyObject* former = slot[0]
        slot[0] = <PyObject*>kernel
        Py_INCREF_ptr(slot[0])
        self.launch_count += 1
        Py_XDECREF_ptr(former)

    cdef inline int hold(self, owner) except -1:
        """Keep `owner` until the stream has passed the launch that is being packed."""
        if self.held is None:
            self.held = []
        self.held.append(owner)
        return 0

    cdef int keep(self, list owners) except -1:
        if self.pending is None:
            self.pending = owners
        else:
            self.pending.extend(owners)
        if len(self.pending) > PENDING_LIMIT:
            self._retire_pending()
        return 0

    def _keep(self, owners):
        """Keep `owners` until the stream has passed what it holds now."""
        if self.device_type != TFI_DL_CPU:
            self.keep(list(owners))

    def _take_pending(self):
        """Return what is kept, and keep it no longer."""
        owners, self.pending = self.pending, None
        return owners or []

    @property
    def pending_count(self):
        """Number of owners kept since the last event."""
        return 0 if self.pending is None else len(self.pending)

    def __dealloc__(self):
        cdef int i
        for i in range(RECENT_LAUNCHES):
            Py_XDECREF_ptr(self.recent[i])

    cdef bint capturing(self) noexcept:
        cdef int state = 0
        return tfi_driver.stream_is_capturing(<void*>self.stream_handle, &state) == 0 and state != 0

    cdef int count_writes(self, Kernel kernel, args) except -1:
        cdef Py_ssize_t i
        cdef TypeEntry entry
        for i in range(Py_SIZE(args)):
            access = ACCESS_UNKNOWN if kernel.parameter_count < 0 else kernel.parameters[i].access
            obj = args[i]
            if access == READS or isinstance(obj, (TypedArgument, DeviceArray)):
                continue
            if isinstance(obj, TensorRef):
                entry = (<TensorRef>obj).entry
                if entry.wrote is not None and (<TensorRef>obj).writable:
                    tell_producer((<TensorRef>obj).owner, entry)
            elif not isinstance(obj, MemoryRef) and access == WRITES:
                entry = entry_of(obj)
                if entry.wrote is not None:
                    tell_producer(obj, entry)
        return 0

    def _wait_stream(self, uintptr_t stream):
        """Let the captured stream wait for what another stream holds now."""
        if stream != self.stream_handle:
            wait_for(self, <void*>stream)


cdef inline int tell_producer(obj, TypeEntry entry) except -1:
    """Report a write, unless the version counter was bumped directly."""
    if version_of(obj, entry) == NULL:
        entry.wrote(obj)
    return 0
