// Warp operations: shuffles, votes, matches and reductions over 32 consecutive threads of a block.
#pragma once
namespace tfi_cpu {
__attribute__((noinline, unused)) TFI_UNCHECKED static void warp(const tfi_warp_call& call) {
  uint3 self = threadIdx;
  runtime->warp(worker, enter_runtime(), &call);
  threadIdx = self;
}
// A source outside the segment gives the lane its own value back.
template <class T> static inline T shuffle(unsigned mask, T value, unsigned source, bool is_inside, int line) {
  static_assert(sizeof(T) <= TFI_LANE_BYTES, "a shuffle moves at most 16 bytes");
  T result = value;
  warp({mask, line, TFI_WARP_SHUFFLE, &value, sizeof(T), is_inside ? source : lane(), &result});
  return result;
}
static inline unsigned ballot(unsigned mask, bool predicate, int line) {
  int value = predicate;
  unsigned votes = 0;
  warp({mask, line, TFI_WARP_BALLOT, &value, sizeof value, 0, &votes});
  return votes;
}
template <class T> static inline void gather(unsigned mask, const T& value, int line, tfi_gathered& all) {
  static_assert(sizeof(T) <= TFI_LANE_BYTES, "a warp operation moves at most 16 bytes");
  warp({mask, line, TFI_WARP_GATHER, &value, sizeof(T), 0, &all});
  all.lanes &= mask;
}
template <class T> static inline unsigned match(unsigned mask, const T& value, int line, unsigned& lanes) {
  tfi_gathered all;
  unsigned equal = 0;
  gather(mask, value, line, all);
  for (int i = 0; i < 32; i++)
    if ((all.lanes >> i & 1) && __builtin_memcmp(all.value[i], &value, sizeof(T)) == 0) equal |= 1u << i;
  lanes = all.lanes;
  return equal;
}
template <class T, class Op> static inline T reduce(unsigned mask, T value, Op op, int line) {
  tfi_gathered all;
  gather(mask, value, line, all);
  unsigned self = lane();
  bool is_first = true;
  T result = value;
  for (unsigned i = 0; i < 32; i++) {
    if (!(all.lanes >> i & 1)) continue;
    T other;
    __builtin_memcpy(&other, i == self ? (const char*)&value : all.value[i], sizeof(T));
    result = is_first ? other : op(result, other);
    is_first = false;
  }
  return result;
}
}  // namespace tfi_cpu

TFI_INLINE void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  tfi_cpu::warp({mask, line, TFI_WARP_SYNC, nullptr, 0, 0, nullptr});
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
  unsigned segment = tfi_cpu::lane() & ~(width - 1u);
  return tfi_cpu::shuffle(mask, value, segment + (source & (width - 1)), true, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  unsigned lane = tfi_cpu::lane();
  return tfi_cpu::shuffle(mask, value, lane - delta, (lane & (width - 1)) >= delta, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  unsigned lane = tfi_cpu::lane();
  return tfi_cpu::shuffle(mask, value, lane + delta, (lane & (width - 1)) + delta < (unsigned)width, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, int line = __builtin_LINE()) {
  unsigned lane = tfi_cpu::lane(), source = lane ^ (unsigned)lanes, segment = ~(width - 1u);
  return tfi_cpu::shuffle(mask, value, source, source < 32 && (source & segment) <= (lane & segment), line);
}

TFI_INLINE unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return tfi_cpu::ballot(mask, predicate != 0, line);
}
TFI_INLINE int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return tfi_cpu::ballot(mask, predicate != 0, line) != 0;
}
TFI_INLINE int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return tfi_cpu::ballot(mask, predicate == 0, line) == 0;
}
// Only the own lane is known to be active; the others may run later, which CUDA allows.
TFI_INLINE unsigned __activemask() { return 1u << tfi_cpu::lane(); }

template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  unsigned lanes;
  return tfi_cpu::match(mask, value, line, lanes);
}
template <class T>
static inline unsigned __match_all_sync(unsigned mask, T value, int* is_same, int line = __builtin_LINE()) {
  unsigned lanes, equal = tfi_cpu::match(mask, value, line, lanes);
  *is_same = equal == lanes;
  return *is_same ? mask : 0;
}

#define TFI_REDUCE(NAME, EXPRESSION)                                                                  \
  template <class T> static inline T NAME(unsigned mask, T value, int line = __builtin_LINE()) {      \
    return tfi_cpu::reduce(mask, value, [](T a, T b) { return (T)(EXPRESSION); }, line);              \
  }
TFI_REDUCE(__reduce_add_sync, a + b)
TFI_REDUCE(__reduce_min_sync, a < b ? a : b)
TFI_REDUCE(__reduce_max_sync, a > b ? a : b)
TFI_REDUCE(__reduce_and_sync, a & b)
TFI_REDUCE(__reduce_or_sync, a | b)
TFI_REDUCE(__reduce_xor_sync, a ^ b)
#undef TFI_REDUCE
