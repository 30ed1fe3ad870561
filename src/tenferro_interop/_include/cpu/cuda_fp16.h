// __half and __half2 for the CPU device.
#pragma once
#include "tfi_half_operations.h"
namespace tfi_cpu {
#if defined(__aarch64__)
typedef __fp16 half_storage;  // g++ 12 has no _Float16 there in C++
#else
typedef _Float16 half_storage;
#endif
}  // namespace tfi_cpu

struct __half {
  __half() = default;
  template <class T, class = typename tfi_cpu::enable<tfi_cpu::is_arithmetic<T>::value>::type>
  __half(T x) : value((tfi_cpu::half_storage)x) {}
  operator float() const { return (float)value; }
  tfi_cpu::half_storage value;
};
struct alignas(4) __half2 {
  __half2() = default;
  __half2(__half low, __half high) : x(low), y(high) {}
  __half x, y;
};
typedef __half half;
typedef __half2 half2;

TFI_HALF_OPERATIONS(__half, __half2)
TFI_HALF_CONVERSIONS(__half, __half2, half, half2)
TFI_INLINE __half2 __halves2half2(__half low, __half high) { return {low, high}; }
TFI_INLINE float2 __half22float2(__half2 h) { return {(float)h.x, (float)h.y}; }
TFI_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
TFI_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
