// Atomic functions, each with its _block and _system form: one OS process has a single scope.
#pragma once
namespace tfi_cpu {
template <class T, class Op> TFI_INLINE T atomic_update(T* address, Op op) {
  typedef typename bits<T>::type word;
  word* target = (word*)address;
  word seen = __atomic_load_n(target, __ATOMIC_RELAXED);
  for (;;) {
    T old = bit_cast<T>(seen);
    word wanted = bit_cast<word>((T)op(old));
    if (__atomic_compare_exchange_n(target, &seen, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
  }
}
}  // namespace tfi_cpu

#define TFI_ATOMIC(NAME, BODY)                                                                                   \
  template <class T> TFI_INLINE T NAME(T* address, typename tfi_cpu::identity<T>::type value) { BODY }            \
  template <class T> TFI_INLINE T NAME##_block(T* address, typename tfi_cpu::identity<T>::type value) { BODY }    \
  template <class T> TFI_INLINE T NAME##_system(T* address, typename tfi_cpu::identity<T>::type value) { BODY }
TFI_ATOMIC(atomicAdd, {
  if constexpr (tfi_cpu::is_integer<T>::value) return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  else return tfi_cpu::atomic_update(address, [=](T old) { return old + value; });
})
TFI_ATOMIC(atomicSub, {
  if constexpr (tfi_cpu::is_integer<T>::value) return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
  else return tfi_cpu::atomic_update(address, [=](T old) { return old - value; });
})
TFI_ATOMIC(atomicAnd, return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);)
TFI_ATOMIC(atomicOr, return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);)
TFI_ATOMIC(atomicXor, return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);)
TFI_ATOMIC(atomicMin, return tfi_cpu::atomic_update(address, [=](T old) { return value < old ? value : old; });)
TFI_ATOMIC(atomicMax, return tfi_cpu::atomic_update(address, [=](T old) { return old < value ? value : old; });)
TFI_ATOMIC(atomicInc, return tfi_cpu::atomic_update(address, [=](T old) { return old >= value ? T(0) : old + 1; });)
TFI_ATOMIC(atomicDec, {
  return tfi_cpu::atomic_update(address, [=](T old) { return old == 0 || old > value ? value : old - 1; });
})
// Locks are made of these two, so the compiler must not move other accesses across them.
TFI_ATOMIC(atomicExch, {
  typedef typename tfi_cpu::bits<T>::type word;
  return tfi_cpu::bit_cast<T>(__atomic_exchange_n((word*)address, tfi_cpu::bit_cast<word>(value), __ATOMIC_SEQ_CST));
})
#undef TFI_ATOMIC

#define TFI_ATOMIC_CAS(NAME)                                                                                      \
  template <class T>                                                                                              \
  TFI_INLINE T NAME(T* address, typename tfi_cpu::identity<T>::type compare,                                      \
                    typename tfi_cpu::identity<T>::type value) {                                                  \
    typedef typename tfi_cpu::bits<T>::type word;                                                                 \
    word seen = tfi_cpu::bit_cast<word>(compare);                                                                 \
    __atomic_compare_exchange_n((word*)address, &seen, tfi_cpu::bit_cast<word>(value), false, __ATOMIC_SEQ_CST,   \
                                __ATOMIC_SEQ_CST);                                                                \
    return tfi_cpu::bit_cast<T>(seen);                                                                            \
  }
TFI_ATOMIC_CAS(atomicCAS)
TFI_ATOMIC_CAS(atomicCAS_block)
TFI_ATOMIC_CAS(atomicCAS_system)
#undef TFI_ATOMIC_CAS
