# A launch checked once and repeated: its arguments are packed, its tensors kept, its stream asked for at each call.

cdef class PreparedCore:
    """The compiled half of `PreparedLaunch`."""

    cdef Kernel kernel
    cdef LaunchShape shape
    cdef readonly tuple args
    cdef list owners           # what imports of `args` hold
    cdef object bound          # the session that made references among `args`, or None
    cdef Packing packing
    cdef void* memory
    cdef bint exchanges        # some argument belongs to a framework with a current stream

    def _prepare(self, SessionCore session, Kernel kernel, LaunchShape shape, tuple args):
        """Check and pack as a launch does, but enqueue nothing; raises what a launch would."""
        cdef int index = -1
        cdef Refusal refusal = session.ready()
        if refusal == OK:
            refusal = session.admit(kernel, shape, args)
        if refusal == OK:
            refusal = self.pack(session, kernel, shape, args, &index)
        if refusal != OK:
            session.held = None
            raise explain(refusal, index, session, kernel, shape, args)
        self.kernel, self.shape, self.args = kernel, shape, args
        self.owners, session.held = session.held, None

    cdef Refusal pack(self, SessionCore session, Kernel kernel, LaunchShape shape, tuple args, int* index) except RAISED:
        cdef Py_ssize_t count = len(args)
        cdef void* memory = PyMem_Malloc(1 + count * (sizeof(uint64_t) + sizeof(void*) + sizeof(Span)))
        cdef Refusal refusal
        if memory == NULL:
            raise MemoryError
        PyMem_Free(self.memory)
        self.memory = memory
        self.packing.spans = <Span*>memory
        self.packing.slots = <uint64_t*>(self.packing.spans + count)
        self.packing.pointers = <void**>(self.packing.slots + count)
        self.packing.span_count, self.packing.tracked = 0, False
        self.bound, self.exchanges = None, False
        for obj in args:
            if isinstance(obj, MemoryRef):
                self.bound = (<MemoryRef>obj).session
            elif not isinstance(obj, (TypedArgument, DeviceArray, int, float)) and obj is not None:
                self.exchanges = self.exchanges or entry_of(obj).direct
        return session.pack_all(kernel, shape, args, &self.packing, index)

    def __dealloc__(self):
        PyMem_Free(self.memory)

    cdef Refusal admit(self, SessionCore session) except RAISED:
        cdef Refusal refusal = session.ready()
        if refusal != OK:
            return refusal
        if self.kernel.runtime is not session.runtime:
            return FOREIGN_FUNCTION
        if self.kernel.closed:
            return CLOSED_MODULE
        return FOREIGN_REF if self.bound is not None and self.bound is not session else OK

    def __call__(self, args=None):
        """Enqueue on the stream of this thread's innermost session.

        Without `args` the tensors and numbers are those of the last call; they must not have been resized since.  New
        `args` are checked as in `Session.launch`.

        Raises `RuntimeStateError` where no session of the same device is open in this thread, or where the arguments
        hold references of another session; with new `args`, whatever `Session.launch` raises.
        """
        cdef SessionCore session
        cdef Refusal refusal
        if tfi_innermost == NULL:
            raise explain(CLOSED, -1, None, "prepared launch", None, ())
        session = <SessionCore>tfi_innermost
        if args is not None:
            self._prepare(session, self.kernel, self.shape, tuple(args))
        refusal = self.admit(session)
        if refusal == OK:
            if session.device_type != TFI_DL_CPU:
                self.order(session)
            self.revisit(session)
            if not self.shape.is_empty:
                refusal = enqueue(session, self.kernel, self.shape, &self.packing)
                if refusal == OK:
                    session.settle(self.kernel, self.args, &self.packing)
        if refusal != OK:
            session.held = None
            raise explain(refusal, 0 if refusal == FOREIGN_REF else -1, session, self.kernel, self.shape, self.args)

    cdef int order(self, SessionCore session) except -1:
        """Order after the producers' current streams; the prepared launch itself owns the tensors."""
        cdef TypeEntry entry
        session.foreign_count, session.met, session.held = 0, NULL, None
        if self.exchanges:
            for obj in self.args:
                if isinstance(obj, (TypedArgument, int, float, MemoryRef, DeviceArray)):
                    continue
                entry = entry_of(obj)
                if entry.direct:
                    meet_producer(session, obj, entry)
                    break
        if self.owners is not None or session.foreign_count:
            session.hold(self)
        return 0

    cdef int revisit(self, SessionCore session) except -1:
        """Look again at what may have changed since: may the written tensors be written, where are their counters."""
        cdef int i
        cdef Span* span
        cdef TypeEntry entry
        for i in range(self.packing.span_count):
            span = &self.packing.spans[i]
            obj = self.args[span.argument]
            if isinstance(obj, DeviceArray):
                if (<DeviceArray>obj).stream_handle != session.stream_handle:
                    follow_array(session, <DeviceArray>obj)
            elif span.version != NULL and not isinstance(obj, MemoryRef):
                entry = entry_of(obj)
                vet(obj, entry, True)
                span.version = version_of(obj, entry)
        return 0
