// __nv_bfloat16 and __nv_bfloat162 for the CPU device.
#pragma once
#include "tfi_half_operations.h"
namespace tfi_cpu {
TFI_INLINE unsigned short round_to_bfloat16(float x) {
  unsigned bits = bit_cast<unsigned>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
}  // namespace tfi_cpu

struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  template <class T, class = typename tfi_cpu::enable<tfi_cpu::is_arithmetic<T>::value>::type>
  __nv_bfloat16(T x) : bits(tfi_cpu::round_to_bfloat16((float)x)) {}
  operator float() const { return tfi_cpu::bit_cast<float>((unsigned)bits << 16); }
  unsigned short bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) : x(low), y(high) {}
  __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

TFI_HALF_OPERATIONS(__nv_bfloat16, __nv_bfloat162)
TFI_HALF_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
TFI_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return {low, high}; }
TFI_INLINE float2 __bfloat1622float2(__nv_bfloat162 h) { return {(float)h.x, (float)h.y}; }
