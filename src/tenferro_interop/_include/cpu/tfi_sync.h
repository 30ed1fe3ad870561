// Block barriers, fences, clocks, and the ways to stop: __trap and assert.
#pragma once
extern "C" int printf(const char* format, ...);

namespace tfi_cpu {
enum { VOTE_COUNT, VOTE_AND, VOTE_OR };

__attribute__((noinline, unused)) TFI_UNCHECKED static int barrier(int line, bool predicate, int vote) {
  uint3 self = threadIdx;
  int votes[3];
  runtime->barrier(worker, enter_runtime(), line, predicate, votes);
  threadIdx = self;
  return votes[vote];
}
__attribute__((noinline, unused)) TFI_UNCHECKED static void yield() {
  uint3 self = threadIdx;
  runtime->yield(worker, enter_runtime());
  threadIdx = self;
}
[[noreturn]] __attribute__((noinline, unused)) TFI_UNCHECKED static void fail(const char* text, const char* file,
                                                                              int line) {
  runtime->fail(worker, text, file, line);
  __builtin_unreachable();
}
}  // namespace tfi_cpu

TFI_INLINE void __syncthreads(int line = __builtin_LINE()) { tfi_cpu::barrier(line, false, tfi_cpu::VOTE_COUNT); }
TFI_INLINE int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return tfi_cpu::barrier(line, predicate != 0, tfi_cpu::VOTE_COUNT);
}
TFI_INLINE int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return tfi_cpu::barrier(line, predicate != 0, tfi_cpu::VOTE_AND);
}
TFI_INLINE int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return tfi_cpu::barrier(line, predicate != 0, tfi_cpu::VOTE_OR);
}

TFI_INLINE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
TFI_INLINE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
TFI_INLINE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
TFI_INLINE void __nanosleep(unsigned) { tfi_cpu::yield(); }

TFI_INLINE long long clock64() {
#if defined(__x86_64__)
  return (long long)__builtin_ia32_rdtsc();
#else
  long long ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}
extern "C" long clock() noexcept;  // the C library's, which <time.h> declares: a source may include that

[[noreturn]] TFI_INLINE void __trap() { tfi_cpu::fail("__trap executed", nullptr, 0); }
TFI_INLINE void __brkpt() {}
#define assert(...) \
  ((__VA_ARGS__) ? (void)0 : tfi_cpu::fail("device-side assert failed: " #__VA_ARGS__, __FILE__, __LINE__))
