# What is asked of every tensor and of every geometry before anything is enqueued.

cdef struct View:
    char* data
    char* low
    char* high
    int64_t nbytes
    int64_t numel
    uint32_t dtype
    int device_type
    int device_id
    bint read_only
    bint compact

cdef struct Span:
    char* low
    char* high
    int argument
    bint written
    uint32_t* version  # the written tensor's version counter, where it is known


cdef inline Refusal view_tensor(const tfi_dl_tensor* t, View* view) noexcept nogil:
    """Measure a DLPack tensor: span, size, layout.  NULL data is legal for zero elements only."""
    cdef int64_t itemsize = (<int64_t>t.dtype.bits * t.dtype.lanes) >> 3, low = 0, high = 0
    cdef int layout
    view.numel = view.nbytes = 0
    layout = tfi_layout(t, &view.numel) if CHECK_LAYOUT else TFI_LAYOUT_COMPACT
    view.data = <char*>t.data + t.byte_offset
    view.dtype = tfi_dtype_word(t.dtype)
    view.device_type, view.device_id = t.device.device_type, t.device.device_id
    view.compact = layout == TFI_LAYOUT_COMPACT
    view.low = view.high = view.data
    if layout == TFI_LAYOUT_BAD or (view.numel >> 40 and view.numel > (<int64_t>1 << 62) // (itemsize + 1)):
        return EXTENT
    view.nbytes = view.numel * itemsize
    if not tfi_dtype_is_plain(t.dtype):
        return BAD_DTYPE
    if view.numel == 0:
        return OK
    if t.data == NULL:
        return NULL_DATA
    if view.compact:
        view.high = view.data + view.nbytes
        return OK
    if tfi_extent(t, itemsize, &low, &high) < 0:
        return EXTENT
    view.low, view.high = view.data + low, view.data + high
    return OK


cdef inline bint on_device(const View* view, SessionCore session) noexcept nogil:
    """Host memory has no ordinal that matters; pinned host memory is host memory; managed memory is the GPU's."""
    if session.device_type == TFI_DL_CPU:
        return view.device_type == TFI_DL_CPU or view.device_type == TFI_DL_CUDA_HOST
    return (view.device_type == TFI_DL_CUDA or view.device_type == TFI_DL_CUDA_MANAGED) and (
        view.device_id == session.device_id
    )


cdef inline Refusal match_element(const Parameter* p, const View* view, bint explicit) noexcept nogil:
    """Compare the tensor's element with the pointee: equal, or the lane of a vector, or a complex as two lanes."""
    cdef uint32_t want = p.dtype, code = want & 0xff, lanes = want >> 16
    if view.dtype == want:
        return OK
    if code == CODE_VOID:
        return OK
    if code == CODE_STRUCT or code == CODE_POINTER:
        if not explicit:
            return EXPLICIT
        return OK if p.element_size == 0 or view.nbytes % p.element_size == 0 else ELEMENT_MULTIPLE
    if lanes > 1 and (
        view.dtype == ((want & 0xffff) | 1 << 16)
        or (lanes == 2 and code == CODE_FLOAT and view.dtype == (CODE_COMPLEX | ((want >> 8) & 0xff) << 9 | 1 << 16))
    ):
        return OK if view.nbytes % p.element_size == 0 else ELEMENT_MULTIPLE
    return DTYPE


cdef inline Refusal fit_tensor(const Parameter* p, const View* view, bint explicit) noexcept nogil:
    """Everything a pointer parameter asks of a tensor but its place and its access."""
    cdef Refusal refusal = match_element(p, view, explicit)
    if refusal != OK:
        return refusal
    if p.element_align > 1 and view.numel and <uintptr_t>view.data & (p.element_align - 1):  # a power of two
        return ALIGNMENT
    return OK


cdef Refusal check_shape(Kernel kernel, LaunchShape shape) except RAISED:
    """Compare a geometry with the device's and the kernel's limits; remembers the last good one."""
    cdef int i
    cdef uint64_t threads = <uint64_t>shape.block_[0] * shape.block_[1] * shape.block_[2]
    for i in range(3):
        if shape.grid_[i] > kernel.max_grid[i] or shape.block_[i] > kernel.max_block[i]:
            return GEOMETRY
        if shape.has_cluster and shape.grid_[i] % shape.cluster_[i]:
            return CLUSTER
    if threads > kernel.max_threads:
        return GEOMETRY
    if shape.shared_bytes > kernel.shared_limit:
        return SHARED_MEMORY
    if kernel.needs_cooperative and not shape.is_cooperative:
        return COOPERATIVE
    if not shape.plain or kernel.needs_cluster:
        problem = kernel._check_mode(shape)
        if problem:
            return LAUNCH_MODE
    if shape.shared_bytes > kernel.shared_granted:
        kernel._grant_shared(shape.shared_bytes)
    kernel.checked = shape
    return OK


cdef inline int find_alias(const Span* spans, int count) noexcept nogil:
    """Return the argument that overlaps another where one of the two is written, or -1."""
    cdef int i, j
    for i in range(count):
        if not spans[i].written or spans[i].low == spans[i].high:
            continue
        for j in range(count):
            if j == i or spans[j].low == spans[j].high:
                continue
            if spans[i].low < spans[j].high and spans[j].low < spans[i].high:
                return spans[i].argument
    return -1
