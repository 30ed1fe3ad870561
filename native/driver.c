// Resolves the driver table through cuGetProcAddress, once per process.
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

tfi_driver_table tfi_driver;
unsigned tfi_fork_generation;
int tfi_process_id;

typedef int (*get_proc_address)(const char*, void**, int, uint64_t, int*);

// cuLaunchKernelEx came with 11.8; cuda-bindings 12 and 13 both resolve newer tables, so asking for 12.0 is safe.
enum { API_VERSION = 12000 };

static const struct { const char* name; size_t offset; } ENTRIES[] = {
    {"cuLaunchKernel", offsetof(tfi_driver_table, launch_kernel)},
    {"cuLaunchKernelEx", offsetof(tfi_driver_table, launch_kernel_ex)},
    {"cuStreamIsCapturing", offsetof(tfi_driver_table, stream_is_capturing)},
    {"cuStreamGetCtx", offsetof(tfi_driver_table, stream_get_context)},
    {"cuCtxGetCurrent", offsetof(tfi_driver_table, context_get_current)},
    {"cuCtxPushCurrent", offsetof(tfi_driver_table, context_push)},
    {"cuCtxPopCurrent", offsetof(tfi_driver_table, context_pop)},
    {"cuEventRecord", offsetof(tfi_driver_table, event_record)},
    {"cuStreamWaitEvent", offsetof(tfi_driver_table, stream_wait_event)},
    {"cuMemFree", offsetof(tfi_driver_table, memory_free)},
};

int tfi_driver_load(const char** what) {
  *what = "libcuda.so.1";
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return 1;
  *what = "cuGetProcAddress_v2";
  get_proc_address resolve = (get_proc_address)dlsym(library, *what);
  if (!resolve) return 2;
  tfi_driver_table table;
  for (size_t i = 0; i < sizeof ENTRIES / sizeof *ENTRIES; ++i) {
    void* entry = NULL;
    int status = 0;
    *what = ENTRIES[i].name;
    if (resolve(*what, &entry, API_VERSION, 0, &status) || !entry) return 2;
    *(void**)((char*)&table + ENTRIES[i].offset) = entry;
  }
  tfi_driver = table;
  return 0;
}

static void child_after_fork(void) {
  ++tfi_fork_generation;
  tfi_process_id = getpid();
}

void tfi_fork_watch(void) {
  tfi_process_id = getpid();
  pthread_atfork(NULL, NULL, child_after_fork);
}
