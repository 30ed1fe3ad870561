// XLA's way to a launch: one handler for every kernel, on the stream that XLA runs on.
#ifndef TFI_XLA_HANDLER_H
#define TFI_XLA_HANDLER_H
#include "xla_ffi.h"

enum { TFI_XLA_ON_CPU = 0, TFI_XLA_ON_CUDA = 1 };
enum { TFI_XLA_READS = 0, TFI_XLA_MAKES = 1, TFI_XLA_UPDATES = 2, TFI_XLA_NUMBER = 3 };
enum { TFI_XLA_MAX_PARAMETERS = 256, TFI_XLA_MAX_NUMBERS = 4096 };

// One kernel parameter of the attribute `plan`; `_xla.py` packs them as "<BBBxHHQ".
typedef struct {
  uint8_t role;
  uint8_t code, bits;  // DLPack's element type, of a buffer
  uint8_t unused;
  uint16_t argument;  // index among XLA's arguments, where the kernel reads or updates
  uint16_t result;    // index among XLA's results, where the kernel makes or updates
  uint64_t size;      // bytes of a buffer; offset of a number in the attribute `numbers`
} tfi_xla_parameter;

tfi_xla_error* tfi_xla_cpu(tfi_xla_frame* frame);
tfi_xla_error* tfi_xla_cuda(tfi_xla_frame* frame);

// Makes a kernel known for the rest of the process; -1 without memory.  `names` holds the kernel's name and those of its
// parameters, each ended by a NUL.  A key that is known keeps its kernel.  Call it with the GIL, which orders the writers.
int tfi_xla_register(uint64_t key, int platform, void* entry, int check, const char* names, size_t names_nbytes);
#endif
