# One argument at a time: check it against its parameter and put its bytes where the driver will read them.

cdef struct Packing:
    uint64_t* slots
    void** pointers
    Span* spans
    int span_count
    bint tracked  # something written whose producer must be told


cdef Parameter ANYTHING = Parameter(ANY, ACCESS_UNKNOWN, 0, CODE_STRUCT, 0, 0)


cdef inline void add_span(Packing* packing, char* low, char* high, int index, bint written) noexcept nogil:
    packing.spans[packing.span_count] = Span(low, high, index, written, NULL)
    packing.span_count += 1


cdef inline void note_write(obj, TypeEntry entry, Packing* packing) noexcept:
    """Remember to bump the version counter once the launch is enqueued; directly where it was found."""
    cdef uint32_t* version = version_of(obj, entry)
    if version == NULL:
        packing.tracked = True
    else:
        packing.spans[packing.span_count - 1].version = version


cdef Refusal pack_typed(TypedArgument argument, const Parameter* p, Packing* packing, int index) except RAISED:
    """A scalar must have the declared type, a struct the declared size; only null is a pointer."""
    if p.kind == SCALAR and argument.dtype != p.dtype:
        return SCALAR_TYPE
    if p.kind == POINTER and argument.dtype != (CODE_POINTER | 64 << 8 | 1 << 16):
        return KIND
    if argument.size != p.size and p.size != 0:
        return STRUCT_SIZE
    packing.pointers[index] = <void*>argument.raw
    return OK


cdef Refusal pack_value(obj, const Parameter* p, Packing* packing, int index, SessionCore session) except RAISED:
    """A scalar or struct parameter."""
    cdef Refusal refusal = KIND
    if isinstance(obj, TypedArgument):
        return pack_typed(<TypedArgument>obj, p, packing, index)
    if p.kind == SCALAR:
        refusal = store_number(obj, p.dtype, &packing.slots[index])
        packing.pointers[index] = &packing.slots[index]
        if refusal != KIND or isinstance(obj, bool):
            return refusal
    typed = typed_scalar(obj)
    if typed is None:
        return refusal
    session.hold(typed)
    return pack_typed(<TypedArgument>typed, p, packing, index)


cdef Refusal pack_untyped(obj, const Parameter* p, Packing* packing, int index, SessionCore session) except RAISED:
    """A parameter of unknown type: only what says its own type is taken."""
    if isinstance(obj, MemoryRef):
        if p.size not in (0, sizeof(void*)):
            return STRUCT_SIZE
        return pack_pointer(obj, p, packing, index, session)
    if isinstance(obj, TypedArgument):
        return pack_typed(<TypedArgument>obj, p, packing, index)
    typed = None if isinstance(obj, (bool, int, float, complex)) and type(obj) in (bool, int, float, complex) else typed_scalar(obj)
    if typed is None:
        return UNTYPED
    session.hold(typed)
    return pack_typed(<TypedArgument>typed, p, packing, index)


cdef Refusal pack_ref(MemoryRef memory, const Parameter* p, Packing* packing, int index, SessionCore session) except RAISED:
    """A `TensorRef`, `TensorMut` or `DeviceBytes` of this session."""
    cdef TensorRef tensor
    cdef View view
    cdef Refusal refusal
    cdef bint writes = p.access == WRITES
    if memory.session is not session:
        return FOREIGN_REF
    packing.slots[index] = memory.address_
    packing.pointers[index] = &packing.slots[index]
    if not isinstance(memory, TensorRef):
        if writes and memory.read_only:
            return READ_ONLY
        writes = writes or (p.access == ACCESS_UNKNOWN and not memory.read_only)
        add_span(packing, <char*>memory.address_, <char*>memory.address_ + memory.nbytes, index, writes)
        session.hold(memory.owner)
        return OK
    tensor = <TensorRef>memory
    if tensor.managed is not None:
        session.hold(tensor.managed)
    elif session.device_type != TFI_DL_CPU and tensor.entry.direct:
        meet_producer(session, tensor.owner, tensor.entry)
    else:
        session.hold(tensor.owner)
    if writes and not tensor.writable:
        return WRITE_THROUGH_REF
    view.dtype, view.nbytes, view.data, view.numel = tensor.dtype_, tensor.nbytes, <char*>tensor.address_, tensor.nbytes
    if p.kind == POINTER:
        refusal = fit_tensor(p, &view, True)
        if refusal != OK:
            return refusal
    writes = writes or (p.access == ACCESS_UNKNOWN and tensor.writable)
    add_span(packing, tensor.low, tensor.high, index, writes)
    if writes and tensor.entry.wrote is not None:
        note_write(tensor.owner, tensor.entry, packing)
    return OK


cdef Refusal place_view(View* view, const Parameter* p, Packing* packing, int index, SessionCore session) except RAISED:
    """Check a tensor given as it is, and record its pointer and span."""
    cdef Refusal refusal
    if CHECK_DEVICE and not on_device(view, session):
        return DEVICE
    if CHECK_ACCESS and p.access == WRITES and view.read_only:
        return READ_ONLY
    refusal = fit_tensor(p, view, False) if CHECK_ELEMENT else OK
    if refusal != OK:
        return refusal
    if not view.compact:
        return LAYOUT
    packing.slots[index] = <uint64_t><uintptr_t>view.data
    packing.pointers[index] = &packing.slots[index]
    if CHECK_OVERLAP or COUNT_WRITES:
        add_span(packing, view.low, view.high, index, p.access == WRITES)
    return OK


cdef Refusal pack_tensor(obj, TypeEntry entry, const Parameter* p, Packing* packing, int index,
                         SessionCore session) except RAISED:
    """A tensor of any framework: by the exchange API where the type has it, else through its capsule."""
    cdef tfi_dl_tensor borrowed
    cdef View view
    cdef Refusal refusal
    cdef Managed managed
    cdef bint ordered = True
    cdef int slot
    slot = vet(obj, entry, p.access == WRITES)
    if entry.direct:
        view_direct(obj, entry, slot, &borrowed)
        refusal = view_tensor(&borrowed, &view)
        view.read_only = entry.read_only
        if CHECK_STREAM and session.device_type != TFI_DL_CPU:
            meet_producer(session, obj, entry)
    else:
        managed = import_object(obj, entry, session, &ordered)
        session.hold(managed)
        refusal = view_tensor(managed.tensor(), &view)
        view.read_only = entry.read_only or managed.is_read_only()
        if not ordered:
            wait_legacy_stream(session)
    if refusal == OK:
        refusal = place_view(&view, p, packing, index, session)
    if COUNT_WRITES and refusal == OK and p.access == WRITES and entry.wrote is not None:
        note_write(obj, entry, packing)
    return refusal


cdef Refusal pack_pointer(obj, const Parameter* p, Packing* packing, int index, SessionCore session) except RAISED:
    """A pointer parameter."""
    cdef TypeEntry entry
    if isinstance(obj, MemoryRef):
        return pack_ref(<MemoryRef>obj, p, packing, index, session)
    if isinstance(obj, TypedArgument):
        return pack_typed(<TypedArgument>obj, p, packing, index)
    if isinstance(obj, DeviceArray):
        return pack_device_array(<DeviceArray>obj, p, packing, index, session)
    if obj is None:
        return NULL_ARGUMENT
    entry = entry_of(obj)
    if not entry.is_tensor and not speaks_protocol(obj):
        return KIND
    return pack_tensor(obj, entry, p, packing, index, session)


cdef Refusal pack_device_array(DeviceArray array, const Parameter* p, Packing* packing, int index,
                               SessionCore session) except RAISED:
    """One of our own tensors: no protocol in between, ordered against the stream that used it last."""
    cdef View view
    cdef Refusal refusal = view_tensor(&array.tensor, &view)
    view.read_only = False
    if refusal == OK:
        refusal = place_view(&view, p, packing, index, session)
    if refusal == OK and session.device_type != TFI_DL_CPU:
        if array.stream_handle != session.stream_handle:
            follow_array(session, array)
        session.hold(array.owner)
    return refusal


cdef inline bint is_plain(obj, const Parameter* p) noexcept:
    """Whether an argument is what most are: a number for a scalar, or a tensor of the type looked up last."""
    if p.kind == POINTER:
        return Py_TYPE(obj) == hot_type and (<TypeEntry>hot_entry).direct
    return p.kind == SCALAR and (PyFloat_CheckExact(obj) or PyLong_CheckExact(obj))


cdef inline Refusal pack_plain(obj, const Parameter* p, Packing* packing, int index, SessionCore session) except RAISED:
    """Pack what `is_plain` says is so."""
    if p.kind == POINTER:
        return pack_tensor(obj, <TypeEntry>hot_entry, p, packing, index, session)
    packing.pointers[index] = &packing.slots[index]
    return store_number(obj, p.dtype, &packing.slots[index])


cdef inline bint runs_python(obj):
    """Whether importing an argument runs code that is not ours: a producer's `__dlpack__`."""
    if PyFloat_CheckExact(obj) or PyLong_CheckExact(obj) or obj is None or isinstance(obj, (bool, TypedArgument)):
        return False
    if isinstance(obj, (MemoryRef, DeviceArray)):
        return False
    return not entry_of(obj).direct


cdef Refusal pack_one(obj, const Parameter* p, Packing* packing, int index, SessionCore session) except RAISED:
    if p.kind == POINTER:
        return pack_pointer(obj, p, packing, index, session)
    if p.kind == ANY:
        return pack_untyped(obj, p, packing, index, session)
    return pack_value(obj, p, packing, index, session)
