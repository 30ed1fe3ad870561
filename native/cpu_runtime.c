/* The CPU engine's public functions: checks the launch, and hands modules their function table. */
#include "cpu_runtime.h"

#include <stdio.h>

#include "cpu_check.h"
#include "cpu_worker.h"

static void fail_from_kernel(tfi_worker* w, const char* text, const char* file, int line) {
  if (file) tfi_cpu_fail(w, TFI_CPU_ASSERT, "%s at %s:%d", text, file, line);
  tfi_cpu_fail(w, TFI_CPU_ASSERT, "%s in block %llu", text, (unsigned long long)w->block);
}

static void* dynamic_shared(tfi_worker* w) { return w->shared; }

static const tfi_runtime table = {
    .begin_block = tfi_cpu_begin_block,
    .first_wait = tfi_cpu_first_wait,
    .barrier = tfi_cpu_barrier,
    .warp = tfi_cpu_warp,
    .yield = tfi_cpu_yield,
    .thread_done = tfi_cpu_thread_done,
    .finish_block = tfi_cpu_finish_block,
    .dynamic_shared = dynamic_shared,
    .fail = fail_from_kernel,
    .access = tfi_cpu_access,
};

const void* tfi_cpu_runtime_table(void) { return &table; }

static const char* invalid_launch(const tfi_cpu_launch_t* launch) {
  uint64_t threads = 1;
  for (int axis = 0; axis < 3; axis++) {
    if (launch->grid[axis] == 0 || launch->block[axis] == 0) return "grid and block must be positive";
    if (launch->block[axis] > TFI_CPU_MAX_THREADS) return "a block must have at most 1024 threads";
    threads *= launch->block[axis];
  }
  if (threads > TFI_CPU_MAX_THREADS) return "a block must have at most 1024 threads";
  if (launch->grid[0] > 0x7fffffffu || launch->grid[1] > 65535 || launch->grid[2] > 65535)
    return "a grid must have at most 2147483647 x 65535 x 65535 blocks";
  if (launch->shared_bytes > TFI_CPU_MAX_SHARED) return "dynamic shared memory must be at most 232448 bytes";
  return NULL;
}

int tfi_cpu_launch(void* blocks_fn, const tfi_cpu_launch_t* launch, char* message, size_t message_nbytes) {
  const char* reason = invalid_launch(launch);
  if (reason) {
    snprintf(message, message_nbytes, "%s", reason);
    return TFI_CPU_INVALID;
  }
  return tfi_cpu_run((tfi_cpu_blocks_fn)blocks_fn, launch, message, message_nbytes);
}
