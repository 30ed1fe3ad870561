# C declarations: DLPack's structs, the driver table, the CPU runtime, and the few CPython calls used directly.

from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.pycapsule cimport (
    PyCapsule_GetName, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName,
)
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

cdef extern from "dlpack_abi.h" nogil:
    enum:
        TFI_DL_CPU
        TFI_DL_CUDA
        TFI_DL_CUDA_HOST
        TFI_DL_CUDA_MANAGED
        TFI_DL_FLAG_READ_ONLY
        TFI_DL_FLAG_IS_COPIED
        TFI_LAYOUT_BAD
        TFI_LAYOUT_STRIDED
        TFI_LAYOUT_COMPACT
    ctypedef struct tfi_dl_device:
        int32_t device_type
        int32_t device_id
    ctypedef struct tfi_dl_dtype:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    ctypedef struct tfi_dl_tensor:
        void* data
        tfi_dl_device device
        int32_t ndim
        tfi_dl_dtype dtype
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset
    ctypedef struct tfi_dl_managed:
        tfi_dl_tensor tensor
        void* manager_ctx
        void (*deleter)(tfi_dl_managed*) noexcept
    ctypedef struct tfi_dl_version:
        uint32_t major
        uint32_t minor
    ctypedef struct tfi_dl_managed_versioned:
        tfi_dl_version version
        void* manager_ctx
        void (*deleter)(tfi_dl_managed_versioned*) noexcept
        uint64_t flags
        tfi_dl_tensor tensor
    ctypedef struct tfi_dl_exchange_header:
        tfi_dl_version version
        tfi_dl_exchange_header* prev_api
    ctypedef struct tfi_dl_exchange:
        tfi_dl_exchange_header header
        int (*allocate)(tfi_dl_tensor*, tfi_dl_managed_versioned**, void*,
                        void (*)(void*, const char*, const char*) noexcept) except -1
        int (*managed_from_object)(void*, tfi_dl_managed_versioned**) except -1
        int (*object_from_managed)(tfi_dl_managed_versioned*, void**) except -1
        int (*view_from_object)(void*, tfi_dl_tensor*) except -1
        int (*current_stream)(int32_t, int32_t, void**) except -1
    ctypedef struct tfi_layout_offsets:
        int32_t impl
        int32_t state
        int32_t dtype
        int32_t grad
        int32_t version
        int32_t count
        int32_t storage
        int32_t data
        int32_t guard
        int32_t offset
        int32_t ndim
        int32_t device
    int tfi_read_layout(const char*, const tfi_layout_offsets*, tfi_dl_dtype, int32_t, tfi_dl_tensor*)
    uint32_t tfi_dtype_word(tfi_dl_dtype)
    bint tfi_dtype_is_plain(tfi_dl_dtype)
    int tfi_layout(const tfi_dl_tensor*, int64_t*)
    int tfi_extent(const tfi_dl_tensor*, int64_t, int64_t*, int64_t*)

cdef extern from "checks.h" nogil:
    enum:
        CHECK_SESSION
        CHECK_KERNEL
        CHECK_STATE
        CHECK_LAYOUT
        CHECK_DEVICE
        CHECK_ELEMENT
        CHECK_ACCESS
        CHECK_STREAM
        CHECK_OVERLAP
        COUNT_WRITES

cdef extern from "driver.h" nogil:
    ctypedef union tfi_cu_value:
        unsigned dim[3]
        int flag
    ctypedef struct tfi_cu_attribute:
        int id
        tfi_cu_value value
    ctypedef struct tfi_cu_launch_config:
        unsigned grid[3]
        unsigned block[3]
        unsigned shared_bytes
        void* stream
        tfi_cu_attribute* attributes
        unsigned attribute_count
    enum:
        TFI_CU_ATTR_COOPERATIVE
        TFI_CU_ATTR_CLUSTER
        TFI_CU_ATTR_PROGRAMMATIC
    ctypedef struct tfi_driver_table:
        int (*launch_kernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                             void**, void**) noexcept nogil
        int (*launch_kernel_ex)(const tfi_cu_launch_config*, void*, void**, void**) noexcept nogil
        int (*stream_is_capturing)(void*, int*) noexcept nogil
        int (*stream_get_context)(void*, void**) noexcept nogil
        int (*context_get_current)(void**) noexcept nogil
        int (*context_push)(void*) noexcept nogil
        int (*context_pop)(void**) noexcept nogil
        int (*event_record)(void*, void*) noexcept nogil
        int (*stream_wait_event)(void*, void*, unsigned) noexcept nogil
        int (*memory_free)(uint64_t) noexcept nogil
    tfi_driver_table tfi_driver
    int tfi_driver_load(const char**)
    void tfi_fork_watch()
    unsigned tfi_fork_generation
    int tfi_process_id

cdef extern from "cpu_runtime.h" nogil:
    ctypedef struct tfi_cpu_span:
        const void* base
        size_t nbytes
        int argument
    ctypedef struct tfi_cpu_launch_t:
        unsigned grid[3]
        unsigned block[3]
        size_t shared_bytes
        void** args
        const tfi_cpu_span* spans
        int nspans
        int check
    int tfi_cpu_launch(void*, const tfi_cpu_launch_t*, char*, size_t)
    const void* tfi_cpu_runtime_table()

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    double PyFloat_AS_DOUBLE(object)
    bint PyFloat_CheckExact(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object) except? 0xFFFFFFFFFFFFFFFF
    int PyFloat_Pack2(double, char*, int) except -1
    PyTypeObject* Py_TYPE(object)
    Py_ssize_t Py_SIZE(object)  # of a list or tuple
    PyTypeObject* type_of "Py_TYPE"(PyObject*)
    PyObject* PyTuple_GET_ITEM_ptr "PyTuple_GET_ITEM"(object, Py_ssize_t)
    PyObject* PyList_GET_ITEM_ptr "PyList_GET_ITEM"(object, Py_ssize_t)
    int Py_IsInitialized() nogil
    object PyObject_VectorcallMethod(object, PyObject**, size_t, object)
    ctypedef int PyGILState_STATE
    PyGILState_STATE PyGILState_Ensure() nogil
    void PyGILState_Release(PyGILState_STATE) nogil
    void Py_XDECREF_ptr "Py_XDECREF"(PyObject*)
    void Py_INCREF_ptr "Py_INCREF"(PyObject*)
    void Py_XINCREF_ptr "Py_XINCREF"(PyObject*)

cdef extern from *:
    """
    static inline PyObject* tfi_new(PyTypeObject* type, PyObject* args) { return type->tp_new(type, args, NULL); }
    static inline void tfi_increment(uint32_t* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST); }
    // The session opened last in each OS thread; it owns a reference.
    static __thread PyObject* tfi_innermost;
    // Mixes the words that decide a tensor's state into one.
    static inline uint64_t tfi_state(const char* state, const char* dtype) {
      uint64_t word;
      uint16_t number;
      memcpy(&word, state, sizeof word);
      memcpy(&number, dtype, sizeof number);
      return (word ^ ((uint64_t)number + 1) * 0x9E3779B97F4A7C15u);
    }
    """
    object tfi_new(PyTypeObject*, object)
    PyObject* tfi_innermost
    uint64_t tfi_state(const char*, const char*) nogil
    void increment "tfi_increment"(uint32_t*) nogil
