/* The CPU engine's entry points: run a compiled kernel module's blocks over OS threads.
 *
 * Plain C11, because a bare machine has gcc without g++.  The structures are shared with the modules (tfi_abi.h).
 */
#ifndef TFI_CPU_RUNTIME_H
#define TFI_CPU_RUNTIME_H
#include "../src/tenferro_interop/_include/cpu/tfi_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TFI_CPU_OK = 0,
  TFI_CPU_FAULT = 1,     /* illegal memory access, integer division by zero, stack overflow */
  TFI_CPU_DEADLOCK = 2,  /* no thread of a block can run */
  TFI_CPU_DIVERGENT = 3, /* threads of a block at different __syncthreads */
  TFI_CPU_WARP = 4,      /* a warp operation against its own mask */
  TFI_CPU_MEMORY = 5,    /* no memory for stacks or shared memory */
  TFI_CPU_ASSERT = 6,    /* device assert or __trap */
  TFI_CPU_TIMEOUT = 7,   /* TENFERRO_CPU_TIMEOUT passed */
  TFI_CPU_INVALID = 8,   /* the launch itself is outside the device's limits */
  TFI_CPU_CHECK = 9      /* found by check mode: out of bounds, data race */
};

/* Runs the whole grid and returns when it is done: 0, or one of the kinds above with `message` filled.
 * Call it without the GIL; any OS thread may, several at once too. */
int tfi_cpu_launch(void* blocks_fn, const tfi_cpu_launch_t* launch, char* message, size_t message_nbytes);

/* The function table that each module's tfi_module_init takes. */
const void* tfi_cpu_runtime_table(void);

#ifdef __cplusplus
}
#endif
#endif
