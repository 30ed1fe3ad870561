// Where the running thread is: the built-in variables, and the loop state shared with the trampolines.
//
// A block never leaves its OS thread, so all of this is thread-local; a waiting thread gets its threadIdx back from its
// own stack.
#pragma once
static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

namespace tfi_cpu {
static const tfi_runtime* runtime;
static thread_local tfi_worker* worker;
static thread_local void* const* args;
static thread_local tfi_threads_fn run_threads;
static thread_local bool is_cooperative;  // a thread of this block has waited
static thread_local uint3 next;           // the first thread that has not started
static thread_local unsigned rows_left;   // rows of threads after next's
#ifdef TFI_CHECK
static thread_local int unknown_pointers;  // TFI_MAY_BE_ELSEWHERE or 0
#endif

TFI_INLINE TFI_UNCHECKED unsigned linear_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
TFI_INLINE unsigned lane() { return linear_thread() & 31; }

// Called before anything that may wait: the first time in a block, the runtime starts to keep a state per thread.
TFI_INLINE TFI_UNCHECKED unsigned enter_runtime() {
  unsigned thread = linear_thread();
  if (!is_cooperative) {
    is_cooperative = true;
    runtime->first_wait(worker, thread, run_threads);
  }
  return thread;
}

#ifdef TFI_SHARED_AT_NAMESPACE_SCOPE
// `extern __shared__ T x[]` outside a function has no moment to ask the runtime, so it names this array instead.
static thread_local __attribute__((used, aligned(128))) char shared_bytes[227 * 1024] __asm__("tfi_dynamic_shared");
TFI_INLINE void* dynamic_shared() { return shared_bytes; }
#else
__attribute__((noinline, unused)) TFI_UNCHECKED static void* dynamic_shared() {
  return runtime->dynamic_shared(worker);
}
#endif
}  // namespace tfi_cpu
