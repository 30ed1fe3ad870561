# Tensors in: the per-type table, DLPack's exchange API, capsules, and the owner of an imported tensor.

cdef enum:
    KNOWN_STATES = 16


cdef class TypeEntry:
    """What is known about one argument type: how it exports, and what its producer adds."""

    cdef object tp
    cdef const tfi_dl_exchange* api
    cdef readonly object producer
    cdef bint direct          # the exchange API may be used without asking the producer first
    cdef bint read_only       # the type's tensors may never be written
    cdef object check         # producer.check, or None
    cdef object wrote         # producer.wrote, or None
    cdef object exportable    # producer.exportable, or None where that changes nothing
    cdef bint has_dlpack      # the type has `__dlpack__`
    cdef bint vouched         # the producer vouches that the capsule tells the right device
    cdef bint stream_ordered  # its allocator reuses memory in the order of the producer's current stream
    cdef bint is_tensor
    cdef bint probed          # `at` was measured
    cdef tfi_layout_offsets at
    cdef uint64_t known[KNOWN_STATES]         # states that have passed `check`
    cdef tfi_dl_dtype known_dtype[KNOWN_STATES]  # what they are in DLPack's words, once seen
    cdef int32_t known_device[KNOWN_STATES]      # 0: not seen yet

    @property
    def has_exchange_api(self):
        """Whether the type offers DLPack's C exchange API, major version 1."""
        return self.api != NULL


cdef dict type_table = {}
cdef PyTypeObject* hot_type = NULL   # the last type looked up; its entry is kept alive by type_table
cdef PyObject* hot_entry = NULL


cdef const tfi_dl_exchange* exchange_api_of(tp):
    """Return the type's exchange API of major version 1, or NULL."""
    cdef const tfi_dl_exchange* api
    capsule = getattr(tp, "__dlpack_c_exchange_api__", None)
    if capsule is None or not PyCapsule_IsValid(capsule, b"dlpack_exchange_api"):
        return NULL
    api = <const tfi_dl_exchange*>PyCapsule_GetPointer(capsule, b"dlpack_exchange_api")
    while api != NULL and api.header.version.major > 1:
        api = <const tfi_dl_exchange*>api.header.prev_api
    if api != NULL and api.header.version.major == 1:
        return api
    return NULL


cdef bint speaks_protocol(obj):
    """Return whether an object exports itself although its type does not: the array interface may be set on an instance."""
    return hasattr(obj, "__dlpack__") or hasattr(obj, "__cuda_array_interface__")


cdef TypeEntry make_entry(tp):
    cdef TypeEntry entry = TypeEntry()
    producer = resolve_type(tp)
    entry.tp = tp
    entry.api = exchange_api_of(tp)
    entry.producer = producer
    entry.is_tensor = (
        hasattr(tp, "__dlpack__") or hasattr(tp, "__cuda_array_interface__") or (producer is not None and producer.claims(tp))
    )
    entry.vouched, entry.has_dlpack = producer is not None, hasattr(tp, "__dlpack__")
    if producer is not None:
        entry.read_only = producer.is_read_only(tp)
        entry.stream_ordered = producer.stream_ordered
        entry.check = producer.check if producer.needs_check(tp) else None
        entry.wrote = producer.wrote if producer.tracks_writes else None
        entry.exportable = producer.exportable if producer.changes_exports else None
        entry.direct = (
            entry.api != NULL and entry.api.view_from_object != NULL and tp in producer.exact_types
        )
        if entry.direct and producer.layout is not None:
            set_layout(entry, producer.layout)
    type_table[tp] = entry
    return entry


cdef int set_layout(TypeEntry entry, layout) except -1:
    cdef int i
    entry.at = tfi_layout_offsets(
        layout.impl, layout.state, layout.dtype, layout.grad, layout.version, layout.count, layout.storage, layout.data,
        layout.guard, layout.offset, layout.ndim, layout.device)
    for i in range(KNOWN_STATES):
        entry.known[i] = i + 1  # belongs in another slot, so it matches no state
        entry.known_device[i] = 0
    entry.probed = True
    return 0


cdef inline char* impl_of(obj, TypeEntry entry) noexcept:
    return (<char**>(<char*><void*>obj + entry.at.impl))[0]


cdef inline uint32_t* version_of(obj, TypeEntry entry) noexcept:
    """Return the tensor's version counter, or NULL where it has none or nobody measured where."""
    cdef char* counter = (<char**>(impl_of(obj, entry) + entry.at.version))[0] if entry.probed else NULL
    return NULL if counter == NULL else <uint32_t*>(counter + entry.at.count)


cdef inline int vet(obj, TypeEntry entry, bint write) except -2:
    """Ask the producer about a tensor's state, unless the very same state has passed before.

    Returns the state's slot in the table of known ones, or -1 where the layout was not measured.
    """
    cdef uint64_t state
    cdef char* impl
    cdef int slot
    if not entry.probed:
        if entry.check is not None:
            entry.check(obj, write)
        return -1
    impl = impl_of(obj, entry)
    state = tfi_state(impl + entry.at.state, impl + entry.at.dtype)
    slot = <int>(state % KNOWN_STATES)
    if not CHECK_STATE or entry.known[slot] == state and (not write or (<void**>(impl + entry.at.grad))[0] == NULL):
        return slot
    entry.check(obj, write)
    if entry.known[slot] != state:
        entry.known[slot], entry.known_device[slot] = state, 0
    return slot


cdef inline int view_direct(obj, TypeEntry entry, int slot, tfi_dl_tensor* out) except -1:
    """View a tensor: by its measured layout once its state has been seen through the exchange API, else through that."""
    cdef char* impl
    if slot >= 0 and entry.known_device[slot] != 0:
        impl = impl_of(obj, entry)
        if tfi_read_layout(impl, &entry.at, entry.known_dtype[slot], entry.known_device[slot], out):
            return 0
    entry.api.view_from_object(<void*>obj, out)
    if slot >= 0:
        entry.known_dtype[slot], entry.known_device[slot] = out.dtype, out.device.device_type
    return 0


cdef inline TypeEntry entry_of(obj):
    global hot_type, hot_entry
    cdef PyTypeObject* tp = Py_TYPE(obj)
    cdef TypeEntry entry
    if tp == hot_type:
        return <TypeEntry>hot_entry
    entry = type_table.get(<object>tp)
    if entry is None:
        entry = make_entry(<object>tp)
    hot_type, hot_entry = tp, <PyObject*>entry
    return entry


def type_entry(obj):
    """Return what the core knows about the type of `obj`."""
    return entry_of(obj)


def forget_types():
    """Empty the per-type table, for tests that register producers."""
    global hot_type, hot_entry
    hot_type, hot_entry = NULL, NULL
    type_table.clear()


cdef class Managed:
    """Owner of one imported DLPack tensor; its deleter runs exactly once, when this object goes."""

    cdef tfi_dl_managed* legacy
    cdef tfi_dl_managed_versioned* versioned
    cdef object keep  # what the memory belongs to when no deleter says so

    cdef tfi_dl_tensor* tensor(self):
        return &self.versioned.tensor if self.versioned != NULL else &self.legacy.tensor

    cdef bint is_read_only(self):
        return self.versioned != NULL and (self.versioned.flags & TFI_DL_FLAG_READ_ONLY) != 0

    def __dealloc__(self):
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)
        elif self.legacy != NULL and self.legacy.deleter != NULL:
            self.legacy.deleter(self.legacy)


cdef Managed consume(capsule, obj):
    """Take the tensor out of the capsule that `obj` gave.  The capsule is renamed before anything can fail, so one side owns it."""
    cdef Managed managed = Managed()
    if PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        managed.versioned = <tfi_dl_managed_versioned*>PyCapsule_GetPointer(capsule, b"dltensor_versioned")
        PyCapsule_SetName(capsule, b"used_dltensor_versioned")
        if managed.versioned.version.major != 1:
            raise refuse_import("version", obj, (managed.versioned.version.major, managed.versioned.version.minor))
        return managed
    if PyCapsule_IsValid(capsule, b"dltensor"):
        managed.legacy = <tfi_dl_managed*>PyCapsule_GetPointer(capsule, b"dltensor")
        PyCapsule_SetName(capsule, b"used_dltensor")
        return managed
    raise refuse_import("capsule", obj, capsule)


cdef tuple VERSION_KEYWORD = ("max_version",)
cdef tuple STREAM_KEYWORDS = ("stream", "max_version")
cdef tuple OUR_VERSION = (1, 3)
cdef str DLPACK = "__dlpack__"


cdef object call_dlpack(obj, stream):
    """Ask for a versioned capsule, then once more without keywords if the producer knows none of them."""
    cdef PyObject* args[3]
    args[0] = <PyObject*>obj
    try:
        if stream is None:
            args[1] = <PyObject*>OUR_VERSION
            return PyObject_VectorcallMethod(DLPACK, args, 1, VERSION_KEYWORD), True
        args[1], args[2] = <PyObject*>stream, <PyObject*>OUR_VERSION
        return PyObject_VectorcallMethod(DLPACK, args, 1, STREAM_KEYWORDS), True
    except TypeError as first:
        try:
            return obj.__dlpack__(), False
        except TypeError:
            raise first from None


cdef Managed import_object(obj, TypeEntry entry, SessionCore session, bint* ordered):
    """Import through `__dlpack__`, or `__cuda_array_interface__` where that is all there is."""
    cdef Managed managed
    ordered[0] = True
    if not entry.has_dlpack and not hasattr(obj, "__dlpack__"):
        if hasattr(obj, "__cuda_array_interface__"):
            return consume(session._import_array_interface(obj), obj)
        raise refuse_import("producer", obj, None)
    declared = None if entry.vouched else declared_device(obj)
    if declared is not None and declared[0] != session.device_type and declared[0] in (TFI_DL_CPU, TFI_DL_CUDA):
        raise refuse_import("device", obj, (session, declared))
    stream = None if session.device_type == TFI_DL_CPU else (session.stream_handle or 1)
    if entry.exportable is not None:
        obj = entry.exportable(obj)
    try:
        capsule, ordered[0] = call_dlpack(obj, stream)
    except Exception as error:
        raise refuse_import("export", obj, (session, entry.producer, error)) from error
    managed = consume(capsule, obj)
    if declared is not None and declared[0] != managed.tensor().device.device_type:
        raise refuse_import("device_mismatch", obj, (declared, managed.tensor().device.device_type))
    return managed


cdef object declared_device(obj):
    try:
        kind, ordinal = obj.__dlpack_device__()
        return int(kind), int(ordinal)
    except Exception as error:
        raise refuse_import("device_query", obj, error) from error
