// The few driver functions of the hot path, resolved at run time so that the package builds and imports without CUDA.
#ifndef TFI_DRIVER_H
#define TFI_DRIVER_H
#include <stdint.h>

// CUlaunchAttribute of cuda.h (12.x and 13.x): an id, padding to 8, a 64-byte value.
typedef struct { int id; char pad[4]; union { unsigned dim[3]; int flag; char raw[64]; } value; } tfi_cu_attribute;
typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  tfi_cu_attribute* attributes;
  unsigned attribute_count;
} tfi_cu_launch_config;
enum { TFI_CU_ATTR_COOPERATIVE = 2, TFI_CU_ATTR_CLUSTER = 4, TFI_CU_ATTR_PROGRAMMATIC = 6 };

typedef struct {
  int (*launch_kernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*launch_kernel_ex)(const tfi_cu_launch_config*, void*, void**, void**);
  int (*stream_is_capturing)(void*, int*);
  int (*stream_get_context)(void*, void**);
  int (*context_get_current)(void**);
  int (*context_push)(void*);
  int (*context_pop)(void**);
  int (*event_record)(void*, void*);
  int (*stream_wait_event)(void*, void*, unsigned);
  int (*memory_free)(uint64_t);
} tfi_driver_table;
extern tfi_driver_table tfi_driver;

// Fills the table from libcuda.so.1; 0 on success, else 1 (library), 2 (entry point).  `what` names what was missing.
int tfi_driver_load(const char** what);

// Counts fork()s seen by this process image: a session made before a fork is not usable in the child.
void tfi_fork_watch(void);
extern unsigned tfi_fork_generation;
extern int tfi_process_id;  // of this process image
#endif
