// Check mode: the hooks that `-fsanitize=thread` makes the compiler call at each load, store and atomic.
//
// Only the instrumentation is used, not libtsan: each hook reports to the runtime, then does what was asked.
#pragma once
#define TFI_HOOK extern "C" __attribute__((visibility("hidden"), noinline, used)) TFI_UNCHECKED
namespace tfi_cpu {
template <class T> TFI_INLINE TFI_UNCHECKED bool is_within(const void* address, const T& object) {
  return address >= (const void*)&object && address < (const void*)(&object + 1);
}
TFI_INLINE TFI_UNCHECKED void report(const volatile void* address, size_t nbytes, int kind, const void* pc) {
  const void* at = (const void*)address;
  if (is_within(at, threadIdx) || is_within(at, blockIdx) || is_within(at, blockDim) || is_within(at, gridDim)) return;
  if (worker) runtime->access(worker, at, nbytes, kind | unknown_pointers, pc, linear_thread());
}
}  // namespace tfi_cpu
#define TFI_REPORT(ADDRESS, NBYTES, KIND) tfi_cpu::report(ADDRESS, NBYTES, KIND, __builtin_return_address(0))

#define TFI_ACCESS_HOOK(NAME, NBYTES, KIND) TFI_HOOK void NAME(void* p) { TFI_REPORT(p, NBYTES, KIND); }
#define TFI_ACCESS_HOOKS(N)                                    \
  TFI_ACCESS_HOOK(__tsan_read##N, N, TFI_READ)                 \
  TFI_ACCESS_HOOK(__tsan_write##N, N, TFI_WRITE)               \
  TFI_ACCESS_HOOK(__tsan_read_write##N, N, TFI_WRITE)          \
  TFI_ACCESS_HOOK(__tsan_unaligned_read##N, N, TFI_READ)       \
  TFI_ACCESS_HOOK(__tsan_unaligned_write##N, N, TFI_WRITE)     \
  TFI_ACCESS_HOOK(__tsan_unaligned_read_write##N, N, TFI_WRITE) \
  TFI_ACCESS_HOOK(__tsan_volatile_read##N, N, TFI_ATOMIC)      \
  TFI_ACCESS_HOOK(__tsan_volatile_write##N, N, TFI_ATOMIC)     \
  TFI_ACCESS_HOOK(__tsan_unaligned_volatile_read##N, N, TFI_ATOMIC) \
  TFI_ACCESS_HOOK(__tsan_unaligned_volatile_write##N, N, TFI_ATOMIC)
TFI_ACCESS_HOOKS(1) TFI_ACCESS_HOOKS(2) TFI_ACCESS_HOOKS(4) TFI_ACCESS_HOOKS(8) TFI_ACCESS_HOOKS(16)
TFI_HOOK void __tsan_read_range(void* p, unsigned long n) { TFI_REPORT(p, n, TFI_READ); }
TFI_HOOK void __tsan_write_range(void* p, unsigned long n) { TFI_REPORT(p, n, TFI_WRITE); }
TFI_HOOK void __tsan_vptr_update(void**, void*) {}
TFI_HOOK void __tsan_vptr_read(void**) {}
TFI_HOOK void __tsan_func_entry(void*) {}
TFI_HOOK void __tsan_func_exit() {}
TFI_HOOK void __tsan_init() {}
TFI_HOOK void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
  TFI_REPORT(from, n, TFI_READ);
  TFI_REPORT(to, n, TFI_WRITE);
  return __builtin_memcpy(to, from, n);
}
TFI_HOOK void* __tsan_memmove(void* to, const void* from, unsigned long n) {
  TFI_REPORT(from, n, TFI_READ);
  TFI_REPORT(to, n, TFI_WRITE);
  return __builtin_memmove(to, from, n);
}
TFI_HOOK void* __tsan_memset(void* to, int value, unsigned long n) {
  TFI_REPORT(to, n, TFI_WRITE);
  return __builtin_memset(to, value, n);
}

#define TFI_UPDATE_HOOK(BITS, T, NAME)                                        \
  TFI_HOOK T __tsan_atomic##BITS##_##NAME(volatile T* p, T value, int) {      \
    TFI_REPORT(p, sizeof(T), TFI_ATOMIC);                                     \
    return __atomic_##NAME(p, value, __ATOMIC_SEQ_CST);                       \
  }
#define TFI_EXCHANGE_HOOK(BITS, T, NAME)                                                          \
  TFI_HOOK bool __tsan_atomic##BITS##_##NAME(volatile T* p, T* expected, T value, int, int) {     \
    TFI_REPORT(p, sizeof(T), TFI_ATOMIC);                                                         \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define TFI_ATOMIC_HOOKS(BITS, T)                                             \
  TFI_UPDATE_HOOK(BITS, T, fetch_add) TFI_UPDATE_HOOK(BITS, T, fetch_sub)     \
  TFI_UPDATE_HOOK(BITS, T, fetch_and) TFI_UPDATE_HOOK(BITS, T, fetch_or)      \
  TFI_UPDATE_HOOK(BITS, T, fetch_xor) TFI_UPDATE_HOOK(BITS, T, fetch_nand)    \
  TFI_EXCHANGE_HOOK(BITS, T, compare_exchange_strong)                         \
  TFI_EXCHANGE_HOOK(BITS, T, compare_exchange_weak)                           \
  TFI_HOOK T __tsan_atomic##BITS##_load(const volatile T* p, int) {           \
    TFI_REPORT(p, sizeof(T), TFI_ATOMIC);                                     \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                              \
  }                                                                           \
  TFI_HOOK void __tsan_atomic##BITS##_store(volatile T* p, T value, int) {    \
    TFI_REPORT(p, sizeof(T), TFI_ATOMIC);                                     \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                             \
  }                                                                           \
  TFI_HOOK T __tsan_atomic##BITS##_exchange(volatile T* p, T value, int) {    \
    TFI_REPORT(p, sizeof(T), TFI_ATOMIC);                                     \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                   \
  }                                                                           \
  TFI_HOOK T __tsan_atomic##BITS##_compare_exchange_val(volatile T* p, T expected, T value, int, int) { \
    TFI_REPORT(p, sizeof(T), TFI_ATOMIC);                                     \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                          \
  }
TFI_ATOMIC_HOOKS(8, unsigned char) TFI_ATOMIC_HOOKS(16, unsigned short)
TFI_ATOMIC_HOOKS(32, unsigned) TFI_ATOMIC_HOOKS(64, unsigned long)
TFI_HOOK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
TFI_HOOK void __tsan_atomic_signal_fence(int) {}
