# Tensors out: our own memory as DLPack capsules, versioned and legacy, and tensors made by a framework's allocator.

cdef extern from *:
    """
    typedef struct {
      union { tfi_dl_managed legacy; tfi_dl_managed_versioned versioned; } managed;
      PyObject* owner;
      int64_t extents[1];  // shape, then strides
    } tfi_export;
    #include <dlfcn.h>
    // The consumer may let go from a thread without the GIL, or after Python has gone: then there is nothing to give back.
    static void tfi_export_release(tfi_export* self) {
      if (!Py_IsInitialized()) return;
      PyGILState_STATE state = PyGILState_Ensure();
      Py_XDECREF(self->owner);
      free(self);
      PyGILState_Release(state);
    }
    static void tfi_delete_legacy(tfi_dl_managed* m) { tfi_export_release((tfi_export*)m->manager_ctx); }
    static void tfi_delete_versioned(tfi_dl_managed_versioned* m) { tfi_export_release((tfi_export*)m->manager_ctx); }
    static void tfi_capsule_gone(PyObject* capsule) {
      if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        tfi_dl_managed_versioned* m = (tfi_dl_managed_versioned*)PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (m->deleter) m->deleter(m);
      } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        tfi_dl_managed* m = (tfi_dl_managed*)PyCapsule_GetPointer(capsule, "dltensor");
        if (m->deleter) m->deleter(m);
      }
    }
    static tfi_export* tfi_export_new(const tfi_dl_tensor* t, PyObject* owner, int versioned, uint64_t flags) {
      tfi_export* self = (tfi_export*)calloc(1, sizeof *self + 2 * (size_t)t->ndim * sizeof(int64_t));
      if (!self) return NULL;
      tfi_dl_tensor* out = versioned ? &self->managed.versioned.tensor : &self->managed.legacy.tensor;
      *out = *t;
      out->shape = self->extents;
      out->strides = self->extents + t->ndim;
      memcpy(out->shape, t->shape, (size_t)t->ndim * sizeof(int64_t));
      memcpy(out->strides, t->strides, (size_t)t->ndim * sizeof(int64_t));
      if (versioned) {
        self->managed.versioned.version.major = 1;
        self->managed.versioned.version.minor = 3;
        self->managed.versioned.flags = flags;
        self->managed.versioned.manager_ctx = self;
        self->managed.versioned.deleter = tfi_delete_versioned;
      } else {
        self->managed.legacy.manager_ctx = self;
        self->managed.legacy.deleter = tfi_delete_legacy;
      }
      Py_INCREF(owner);
      self->owner = owner;
      return self;
    }
    static void tfi_allocator_error(void* ctx, const char* kind, const char* message) {
      (void)ctx;
      PyErr_SetString(PyExc_MemoryError, message ? message : kind);
    }
    """
    ctypedef struct tfi_export:
        pass
    tfi_export* tfi_export_new(const tfi_dl_tensor*, PyObject*, int, uint64_t)
    void tfi_capsule_gone(object) noexcept
    void tfi_allocator_error(void*, const char*, const char*) noexcept


cdef class DeviceArray:
    """Memory of ours with shape and element type; the Python class on top speaks the protocols."""

    cdef tfi_dl_tensor tensor
    cdef readonly object owner
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef public uintptr_t stream_handle
    cdef public object stream_owner

    def _describe(self, uintptr_t address, shape, code, bits, lanes, device_type, device_id, owner, stream):
        """Point at compact row-major memory; `stream` is the one that used it last (a `StreamRef`)."""
        cdef Py_ssize_t axis
        self.owner, self.shape = owner, tuple(shape)
        self.strides = row_major(self.shape)
        self.stream_owner, self.stream_handle = stream, stream.handle
        self.tensor.data = <void*>address
        self.tensor.device = tfi_dl_device(device_type, device_id)
        self.tensor.dtype = tfi_dl_dtype(code, bits, lanes)
        self.tensor.ndim = <int32_t>len(self.shape)
        self.tensor.shape = <int64_t*>PyMem_Malloc((2 * self.tensor.ndim + 1) * sizeof(int64_t))
        if self.tensor.shape == NULL:
            raise MemoryError
        self.tensor.strides = self.tensor.shape + self.tensor.ndim
        for axis in range(self.tensor.ndim):
            self.tensor.shape[axis], self.tensor.strides[axis] = self.shape[axis], self.strides[axis]

    def __dealloc__(self):
        PyMem_Free(self.tensor.shape)

    @property
    def _address(self):
        return <uintptr_t>self.tensor.data

    def _capsule(self, bint versioned, bint copied):
        """Export; the capsule keeps the memory alive until its consumer lets go."""
        cdef tfi_export* export = tfi_export_new(
            &self.tensor, <PyObject*>self.owner, versioned, TFI_DL_FLAG_IS_COPIED if copied else 0)
        if export == NULL:
            raise MemoryError
        return PyCapsule_New(export, b"dltensor_versioned" if versioned else b"dltensor", tfi_capsule_gone)


def wrap_memory(uintptr_t address, shape, strides, dtype, device, bint read_only, owner):
    """Return a versioned capsule over memory described in Python, as `__cuda_array_interface__` does."""
    cdef tfi_dl_tensor tensor
    cdef Py_ssize_t axis, ndim = len(shape)
    cdef int64_t* extents = <int64_t*>PyMem_Malloc((2 * ndim + 1) * sizeof(int64_t))
    if extents == NULL:
        raise MemoryError
    try:
        for axis in range(ndim):
            extents[axis], extents[ndim + axis] = shape[axis], strides[axis]
        tensor.data, tensor.byte_offset, tensor.ndim = <void*>address, 0, <int32_t>ndim
        tensor.shape, tensor.strides = extents, extents + ndim
        tensor.dtype = tfi_dl_dtype(dtype[0], dtype[1], dtype[2])
        tensor.device = tfi_dl_device(device[0], device[1])
        export = tfi_export_new(&tensor, <PyObject*>owner, True, TFI_DL_FLAG_READ_ONLY if read_only else 0)
    finally:
        PyMem_Free(extents)
    if export == NULL:
        raise MemoryError
    return PyCapsule_New(export, b"dltensor_versioned", tfi_capsule_gone)


def allocate_like(tp, shape, dtype, device):
    """Allocate through the exchange API of type `tp`; returns the framework's own tensor, or None without that API."""
    cdef TypeEntry entry = type_table.get(tp)
    cdef const tfi_dl_exchange* api = entry.api if entry is not None else exchange_api_of(tp)
    cdef tfi_dl_tensor prototype
    cdef tfi_dl_managed_versioned* managed = NULL
    cdef void* made = NULL
    cdef int64_t extents[64]
    cdef Py_ssize_t axis
    if api == NULL:
        return None
    memset(&prototype, 0, sizeof(prototype))
    for axis in range(len(shape)):
        extents[axis] = shape[axis]
    prototype.ndim, prototype.shape = <int32_t>len(shape), extents
    prototype.dtype = tfi_dl_dtype(dtype[0], dtype[1], dtype[2])
    prototype.device = tfi_dl_device(device[0], device[1])
    api.allocate(&prototype, &managed, NULL, tfi_allocator_error)
    api.object_from_managed(managed, &made)
    result = <object>made
    Py_XDECREF_ptr(<PyObject*>made)  # the call gave us a reference; the assignment above took its own
    return result


def current_stream_of(tp, int device_type, int device_id):
    """Return the current stream of the framework that owns type `tp`, or None without the exchange API."""
    cdef const tfi_dl_exchange* api = exchange_api_of(tp)
    cdef void* stream = NULL
    if api == NULL:
        return None
    api.current_stream(device_type, device_id, &stream)
    return <uintptr_t>stream


def is_capturing(uintptr_t stream):
    """Return (driver status, whether the stream is recording a CUDA graph)."""
    cdef int state = 0
    cdef int status = tfi_driver.stream_is_capturing(<void*>stream, &state)
    return status, state != 0


def device_of(obj):
    """Return DLPack's (device type, device id) of a tensor without importing it."""
    cdef TypeEntry entry = entry_of(obj)
    cdef tfi_dl_tensor view
    if entry.direct:
        entry.api.view_from_object(<void*>obj, &view)
        return view.device.device_type, view.device.device_id
    if hasattr(obj, "__dlpack_device__"):
        return declared_device(obj)
    if hasattr(obj, "__cuda_array_interface__"):
        return TFI_DL_CUDA, 0
    raise refuse_import("producer", obj, None)
