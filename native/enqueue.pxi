# The one driver call of a launch.

cdef Refusal enqueue(SessionCore session, Kernel kernel, LaunchShape shape, Packing* packing) except RAISED:
    if session.device_type == TFI_DL_CPU:
        return enqueue_cpu(session, kernel, shape, packing)
    return enqueue_cuda(session, kernel, shape, packing.pointers)


cdef Refusal enqueue_cuda(SessionCore session, Kernel kernel, LaunchShape shape, void** pointers) noexcept:
    cdef void* current = session.context
    cdef void* popped
    cdef int status
    if session.legacy_stream:  # the default stream belongs to whichever context is current
        tfi_driver.context_get_current(&current)
        if current != session.context:
            tfi_driver.context_push(session.context)
    if shape.plain:
        status = tfi_driver.launch_kernel(
            kernel.handle, shape.grid_[0], shape.grid_[1], shape.grid_[2], shape.block_[0], shape.block_[1],
            shape.block_[2], shape.shared_bytes, <void*>session.stream_handle, pointers, NULL)
    else:
        status = launch_extended(kernel, shape, <void*>session.stream_handle, pointers)
    if current != session.context:
        tfi_driver.context_pop(&popped)
    session.driver_status = status
    return OK if status == 0 else DRIVER


cdef Refusal enqueue_cpu(SessionCore session, Kernel kernel, LaunchShape shape, Packing* packing) except RAISED:
    cdef tfi_cpu_launch_t launch
    cdef char message[MESSAGE_BYTES]
    cdef int i, status
    cdef void* entry = kernel.handle
    for i in range(3):
        launch.grid[i], launch.block[i] = shape.grid_[i], shape.block_[i]
    launch.shared_bytes, launch.args = shape.shared_bytes, packing.pointers
    launch.check, launch.nspans, launch.spans = kernel.check, 0, NULL
    if kernel.check:
        launch.spans = <tfi_cpu_span*>PyMem_Malloc(sizeof(tfi_cpu_span) * (packing.span_count + 1))
        if launch.spans == NULL:
            raise MemoryError
        launch.nspans = packing.span_count
        for i in range(packing.span_count):
            (<tfi_cpu_span*>launch.spans)[i] = tfi_cpu_span(
                packing.spans[i].low, packing.spans[i].high - packing.spans[i].low, packing.spans[i].argument)
    with nogil:
        status = tfi_cpu_launch(entry, &launch, message, MESSAGE_BYTES)
    PyMem_Free(<void*>launch.spans)
    if status == 0:
        return OK
    session.driver_status, session.message = status, message.decode("utf-8", "replace")
    return KERNEL_FAULT


cdef int launch_extended(Kernel kernel, LaunchShape shape, void* stream, void** pointers) noexcept nogil:
    """Launch with attributes: clusters, cooperative, programmatic dependence."""
    cdef tfi_cu_attribute attributes[3]
    cdef tfi_cu_launch_config config
    cdef int i
    memset(attributes, 0, sizeof(attributes))
    config.attribute_count = 0
    for i in range(3):
        config.grid[i], config.block[i] = shape.grid_[i], shape.block_[i]
    config.shared_bytes, config.stream, config.attributes = shape.shared_bytes, stream, attributes
    if shape.has_cluster:
        attributes[config.attribute_count].id = TFI_CU_ATTR_CLUSTER
        for i in range(3):
            attributes[config.attribute_count].value.dim[i] = shape.cluster_[i]
        config.attribute_count += 1
    if shape.is_cooperative:
        attributes[config.attribute_count].id = TFI_CU_ATTR_COOPERATIVE
        attributes[config.attribute_count].value.flag = 1
        config.attribute_count += 1
    if shape.is_programmatic:
        attributes[config.attribute_count].id = TFI_CU_ATTR_PROGRAMMATIC
        attributes[config.attribute_count].value.flag = 1
        config.attribute_count += 1
    return tfi_driver.launch_kernel_ex(&config, kernel.handle, pointers, NULL)
