/* The state of one OS thread that runs blocks, and the functions the engine's files offer each other. */
#ifndef TFI_CPU_WORKER_H
#define TFI_CPU_WORKER_H
#include <setjmp.h>
#include <stdint.h>

#include "cpu_runtime.h"

/* Frames that a fault abandons would stay marked in AddressSanitizer's map of the stack. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define TFI_CPU_FORGET_FRAMES(base, nbytes) __asan_unpoison_memory_region(base, nbytes)
#else
#define TFI_CPU_FORGET_FRAMES(base, nbytes) ((void)0)
#endif

enum { TFI_CPU_MAX_THREADS = 1024, TFI_CPU_MAX_WARPS = TFI_CPU_MAX_THREADS / TFI_WARP_SIZE };
enum { TFI_CPU_MAX_SHARED = 227 * 1024 };
enum { TFI_CPU_MESSAGE_BYTES = 512, TFI_CPU_STACK_BYTES = 256 * 1024 };

enum { TFI_UNSTARTED, TFI_READY, TFI_AT_BARRIER, TFI_IN_WARP, TFI_DONE };

typedef struct {
  void* sp;
  int line;
  short fiber; /* index of the stack it is parked on, -1 the OS thread's own */
  unsigned char state;
} tfi_thread;

typedef struct {
  char* base;
  void* sp;
} tfi_fiber;

typedef struct tfi_check tfi_check;

typedef struct {
  unsigned arrived, alive, generation;
  tfi_warp_call call[TFI_WARP_SIZE];
  _Alignas(16) char slot[TFI_WARP_SIZE][TFI_LANE_BYTES];
} tfi_warp;

struct tfi_worker {
  const tfi_cpu_launch_t* launch;
  const void* blocks_fn;
  uint64_t block;
  int64_t deadline_ns; /* 0 = none */
  volatile int in_kernel;

  unsigned nthreads, alive, arrived, started, last_done;
  unsigned generation; /* counts block barriers */
  int is_cooperative;  /* a thread of this block has waited, so threads[] and warps[] are in use */
  int count, all, any, votes[3];
  tfi_threads_fn run_threads;
  tfi_thread threads[TFI_CPU_MAX_THREADS];
  tfi_warp warps[TFI_CPU_MAX_WARPS];

  tfi_fiber* fibers;
  short* free_fibers;
  int nfibers, nfree, current_fiber;
  void* main_sp;
  int main_waits;

  char* shared;
  size_t shared_capacity;
  void* signal_stack;
  tfi_check* check; /* NULL but in check mode */
  jmp_buf escape;
  int error;
  char message[TFI_CPU_MESSAGE_BYTES];
};

/* cpu_fibers.c */
void tfi_cpu_switch(void** save_sp, void* to_sp);
int tfi_cpu_take_fiber(tfi_worker* w);
void tfi_cpu_reset_fibers(tfi_worker* w);
void tfi_cpu_free_fibers(tfi_worker* w);
const tfi_fiber* tfi_cpu_guard_hit(const tfi_worker* w, const void* address);

/* cpu_block.c */
void tfi_cpu_begin_block(tfi_worker* w, tfi_u64 block);
void tfi_cpu_first_wait(tfi_worker* w, unsigned thread, tfi_threads_fn threads);
void tfi_cpu_barrier(tfi_worker* w, unsigned thread, int line, int predicate, int votes[3]);
void tfi_cpu_yield(tfi_worker* w, unsigned thread);
void tfi_cpu_thread_done(tfi_worker* w, unsigned thread);
void tfi_cpu_finish_block(tfi_worker* w);
void tfi_cpu_note_started(tfi_worker* w, unsigned thread);
void tfi_cpu_retire_fiber(tfi_worker* w);
void tfi_cpu_wait_in_warp(tfi_worker* w, unsigned thread);

/* cpu_warp.c */
void tfi_cpu_warp(tfi_worker* w, unsigned thread, const tfi_warp_call* call);
void tfi_cpu_reset_warps(tfi_worker* w, unsigned first_alive);
void tfi_cpu_leave_warp(tfi_worker* w, unsigned thread);

/* cpu_faults.c */
void tfi_cpu_install_handlers(void);
void tfi_cpu_give_signal_stack(tfi_worker* w);
void tfi_cpu_drop_signal_stack(tfi_worker* w);

/* cpu_errors.c */
_Noreturn void tfi_cpu_fail(tfi_worker* w, int kind, const char* format, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void tfi_cpu_fail_deadlock(tfi_worker* w);
void tfi_cpu_check_divergence(tfi_worker* w);
void tfi_cpu_check_deadline(tfi_worker* w);

/* cpu_worker.c */
tfi_worker* tfi_cpu_current(void);
tfi_worker* tfi_cpu_worker(void);

/* cpu_pool.c */
int tfi_cpu_run(tfi_cpu_blocks_fn blocks, const tfi_cpu_launch_t* launch, char* message, size_t message_nbytes);
#endif
