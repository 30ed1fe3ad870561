// What a compiled kernel module and the CPU runtime agree on; plain C, included by both.
//
// Modules see no C header through here: CUDA sources may declare `typedef long long int64_t` or `int index` themselves.
#ifndef TFI_ABI_H
#define TFI_ABI_H
#ifdef __cplusplus
typedef __SIZE_TYPE__ size_t;
#else
#include <stddef.h>
#endif

typedef unsigned long long tfi_u64;

typedef struct {
  const void* base;
  size_t nbytes;
  int argument;
} tfi_cpu_span;

typedef struct {
  unsigned grid[3], block[3];
  size_t shared_bytes;
  void* const* args;
  const tfi_cpu_span* spans;
  int nspans;
  int check;
} tfi_cpu_launch_t;

typedef struct tfi_worker tfi_worker;

// Runs the blocks first <= b < last of a launch on the calling OS thread; one per kernel, emitted in the module.
typedef void (*tfi_cpu_blocks_fn)(tfi_worker* worker, const tfi_cpu_launch_t* launch, tfi_u64 first, tfi_u64 last);
// Goes on with the threads of the current block that have not started yet.
typedef void (*tfi_threads_fn)(void);

enum { TFI_WARP_SYNC, TFI_WARP_SHUFFLE, TFI_WARP_BALLOT, TFI_WARP_GATHER };
enum { TFI_WARP_SIZE = 32, TFI_LANE_BYTES = 16 };

// One lane's part in a warp operation; `out` receives the result when the last lane of `mask` arrives.
typedef struct {
  unsigned mask;
  int line;
  int kind;
  const void* value;
  unsigned nbytes;
  unsigned source;
  void* out;
} tfi_warp_call;

// Result of TFI_WARP_GATHER: the values of all lanes that took part.
typedef struct {
  char value[TFI_WARP_SIZE][TFI_LANE_BYTES] __attribute__((aligned(16)));
  unsigned lanes;
} tfi_gathered;

// Kinds of access that check mode reports; the flag is set where a kernel has pointers that no span describes.
enum { TFI_READ, TFI_WRITE, TFI_ATOMIC, TFI_MAY_BE_ELSEWHERE = 8 };

typedef struct {
  void (*begin_block)(tfi_worker* worker, tfi_u64 block);
  void (*first_wait)(tfi_worker* worker, unsigned thread, tfi_threads_fn threads);
  void (*barrier)(tfi_worker* worker, unsigned thread, int line, int predicate, int votes[3]);
  void (*warp)(tfi_worker* worker, unsigned thread, const tfi_warp_call* call);
  void (*yield)(tfi_worker* worker, unsigned thread);
  void (*thread_done)(tfi_worker* worker, unsigned thread);
  void (*finish_block)(tfi_worker* worker);
  void* (*dynamic_shared)(tfi_worker* worker);
  void (*fail)(tfi_worker* worker, const char* text, const char* file, int line);
  void (*access)(tfi_worker* worker, const void* address, size_t nbytes, int kind, const void* pc, unsigned thread);
} tfi_runtime;
#endif
