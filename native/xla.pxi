# XLA's handler as Python sees it: its capsules, and the kernels it may launch.

cdef extern from "xla_handler.h" nogil:
    enum:
        TFI_XLA_ON_CPU
        TFI_XLA_ON_CUDA
        TFI_XLA_READS
        TFI_XLA_MAKES
        TFI_XLA_UPDATES
        TFI_XLA_NUMBER
        TFI_XLA_MAX_PARAMETERS
        TFI_XLA_MAX_NUMBERS
    void* tfi_xla_cpu(void*)
    void* tfi_xla_cuda(void*)
    int tfi_xla_register(uint64_t, int, void*, int, const char*, size_t)

cdef dict xla_kernels = {}  # (key, platform) -> Kernel, kept loaded: programs that XLA compiled hold the keys

XLA_READS, XLA_MAKES, XLA_UPDATES, XLA_NUMBER = TFI_XLA_READS, TFI_XLA_MAKES, TFI_XLA_UPDATES, TFI_XLA_NUMBER
XLA_MAX_PARAMETERS, XLA_MAX_NUMBERS = TFI_XLA_MAX_PARAMETERS, TFI_XLA_MAX_NUMBERS


def xla_capsule(bint cuda):
    """Return a capsule of the handler, as XLA registers it."""
    return PyCapsule_New(<void*>tfi_xla_cuda if cuda else <void*>tfi_xla_cpu, NULL, NULL)


def xla_register(uint64_t key, PreparedCore prepared, bytes names):
    """Let the handler find the kernel of a checked launch by `key`, in this process, for good."""
    cdef Kernel kernel = prepared.kernel
    cdef int platform = TFI_XLA_ON_CPU if kernel.runtime.device_type == TFI_DL_CPU else TFI_XLA_ON_CUDA
    if tfi_xla_register(key, platform, kernel.handle, kernel.check, names, len(names)):
        raise MemoryError
    xla_kernels.setdefault((key, platform), kernel)


def xla_number(PreparedCore prepared, Py_ssize_t index):
    """Return the bytes of a number among the arguments of a checked launch, or None where their count is not known."""
    cdef Kernel kernel = prepared.kernel
    argument = prepared.args[index]
    if isinstance(argument, TypedArgument):
        return (<TypedArgument>argument).data
    if kernel.parameters == NULL or kernel.parameters[index].size == 0:
        return None
    return (<const char*>prepared.packing.pointers[index])[:kernel.parameters[index].size]
