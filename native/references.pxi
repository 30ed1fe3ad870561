# `TensorRef` and `TensorMut`: one tensor, imported and measured once for many launches of one session.

def reference(SessionCore session, obj, bint writable, bint strided, cls):
    """Build a `TensorRef` or `TensorMut`; returns (refusal name, reference or measured facts)."""
    cdef TensorRef ref = cls.__new__(cls)
    cdef TypeEntry entry = entry_of(obj)
    cdef tfi_dl_tensor borrowed
    cdef const tfi_dl_tensor* tensor
    cdef Managed managed = None
    cdef View view
    cdef bint ordered = True
    cdef Refusal refusal
    cdef int slot
    session._require_ready("tensor_mut" if writable else "tensor")
    if isinstance(obj, DeviceArray):
        tensor = &(<DeviceArray>obj).tensor
        if (<DeviceArray>obj).stream_handle != session.stream_handle:
            follow_array(session, <DeviceArray>obj)
    elif not entry.is_tensor and not speaks_protocol(obj):
        raise refuse_import("producer", obj, None)
    else:
        slot = vet(obj, entry, writable)
        if entry.direct:
            view_direct(obj, entry, slot, &borrowed)
            tensor = &borrowed
            if session.device_type != TFI_DL_CPU:
                session.foreign_count, session.met, session.held = 0, NULL, None
                meet_producer(session, obj, entry)
                session.held = None  # the reference holds `obj`, and the launch that uses it asks again
        else:
            managed = import_object(obj, entry, session, &ordered)
            tensor = managed.tensor()
            if not ordered:
                wait_legacy_stream(session)
    refusal = view_tensor(tensor, &view)
    view.read_only = entry.read_only or (managed is not None and managed.is_read_only())
    fill_reference(ref, session, obj, entry, managed, tensor, &view, writable)
    if refusal == OK:
        refusal = fit_reference(&view, session, writable, strided)
    return REFUSALS[refusal], ref


cdef inline Refusal fit_reference(const View* view, SessionCore session, bint writable, bint strided) noexcept:
    """What a reference asks of a tensor before it knows the kernel."""
    if not on_device(view, session):
        return DEVICE
    if writable and view.read_only:
        return READ_ONLY
    return OK if view.compact or strided else LAYOUT


cdef int fill_reference(TensorRef ref, SessionCore session, obj, TypeEntry entry, managed, const tfi_dl_tensor* t,
                        const View* view, bint writable) except -1:
    cdef int axis, ndim = 0 if t.shape == NULL else t.ndim  # a refused tensor may have no shape
    ref._point(session, <uintptr_t>view.data, view.nbytes, obj, view.read_only)
    ref.dtype_, ref.is_contiguous = view.dtype, view.compact
    ref.device_type, ref.device_id = view.device_type, view.device_id
    ref.low, ref.high, ref.writable = view.low, view.high, writable
    ref.entry, ref.managed = entry, managed
    ref.shape = tuple([t.shape[axis] for axis in range(ndim)])
    if t.strides != NULL:
        ref.strides = tuple([t.strides[axis] for axis in range(ndim)])
    else:
        ref.strides = row_major(ref.shape)
    return 0


cdef tuple row_major(tuple shape):
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
