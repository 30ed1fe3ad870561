# The order between the captured stream and the streams of those whose memory it uses.

cdef int meet_producer(SessionCore session, obj, TypeEntry entry) except -1:
    """Order this stream after the producer's current one, once a launch; nothing to do where they are the same."""
    cdef void* stream = NULL
    cdef int i
    if entry.api == session.met:
        if session.foreign_count:
            session.hold(obj)
        return 0
    entry.api.current_stream(session.device_type, session.device_id, &stream)
    session.met = entry.api
    if <uintptr_t>stream == session.stream_handle:
        if not entry.stream_ordered:
            session.hold(obj)
        return 0
    session.hold(obj)
    for i in range(session.foreign_count):
        if session.foreign[i] == stream:
            return 0
    assert session.foreign_count < FOREIGN_STREAMS, "more frameworks with streams of their own than there are"
    wait_for(session, stream)
    session.foreign[session.foreign_count] = stream
    session.foreign_count += 1
    return 0


cdef int wait_for(SessionCore session, void* stream) except -1:
    """Let the captured stream wait for what `stream` holds now."""
    cdef int status
    if session.edge_event == 0:
        session.edge_event = session._take_event()
    status = tfi_driver.event_record(<void*>session.edge_event, stream)
    if status == 0:
        status = tfi_driver.stream_wait_event(<void*>session.stream_handle, <void*>session.edge_event, 0)
    if status != 0:
        session.driver_status = status
        raise explain(DRIVER, -1, session, "wait_event", None, ())
    return 0


cdef int return_to_producers(SessionCore session) except -1:
    """Let each producer's stream wait for the launch, so that what it does next with the memory is ordered."""
    cdef int i, status = tfi_driver.event_record(<void*>session.edge_event, <void*>session.stream_handle)
    for i in range(session.foreign_count):
        if status == 0:
            status = tfi_driver.stream_wait_event(session.foreign[i], <void*>session.edge_event, 0)
    session.foreign_count = 0
    if status != 0:
        session.driver_status = status
        raise explain(DRIVER, -1, session, "wait_event", None, ())
    return 0


cdef int wait_legacy_stream(SessionCore session) except -1:
    if session.device_type != TFI_DL_CPU and not session.legacy_stream:
        wait_for(session, <void*>1)
    return 0


cdef int follow_array(SessionCore session, DeviceArray array) except -1:
    """Order after the stream that used the array last, and make this one its stream."""
    wait_for(session, <void*>array.stream_handle)
    array.stream_handle, array.stream_owner = session.stream_handle, session.stream
    return 0
