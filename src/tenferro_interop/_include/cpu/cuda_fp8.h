// __nv_fp8_e4m3 and __nv_fp8_e5m2 for the CPU device: storage and conversion, saturating as CUDA's constructors do.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
namespace tfi_cpu {
// A small float's layout: `Mantissa` bits below an exponent of bias `Bias`; `Largest` is the biggest finite code.
template <int Mantissa, int Bias, unsigned Largest> struct fp8_format {
  static float value_of(unsigned char code) {
    int exponent = (code & 127) >> Mantissa, mantissa = code & ((1 << Mantissa) - 1);
    float magnitude = exponent ? ldexpf((float)(mantissa | 1 << Mantissa), exponent - Bias - Mantissa)
                               : ldexpf((float)mantissa, 1 - Bias - Mantissa);
    if ((code & 127u) > Largest) magnitude = is_infinity(code) ? INFINITY : NAN;
    return code & 128 ? -magnitude : magnitude;
  }
  static unsigned char code_of(float x) {
    unsigned char sign = signbit(x) ? 128 : 0;
    if (isnan(x)) return sign | 127;
    float magnitude = fabsf(x);
    if (magnitude >= value_of(Largest)) return sign | Largest;
    if (magnitude == 0.0f) return sign;
    int exponent = max(ilogbf(magnitude), 1 - Bias);
    // Steps of one unit in the last place, rounded to even; a carry runs into the exponent, as it should.
    int steps = (int)__builtin_rintf(ldexpf(magnitude, Mantissa - exponent));
    return sign | (unsigned char)(((exponent + Bias - 1) << Mantissa) + steps);
  }

 private:
  static bool is_infinity(unsigned char code) { return Mantissa == 2 && (code & 127) == 0x7c; }
};
}  // namespace tfi_cpu

#define TFI_FP8(NAME, MANTISSA, BIAS, LARGEST)                                                              \
  struct NAME {                                                                                             \
    typedef tfi_cpu::fp8_format<MANTISSA, BIAS, LARGEST> format;                                            \
    NAME() = default;                                                                                       \
    template <class T, class = typename tfi_cpu::enable<tfi_cpu::is_arithmetic<T>::value>::type>            \
    explicit NAME(T x) : __x(format::code_of((float)x)) {}                                                  \
    explicit NAME(__half x) : __x(format::code_of((float)x)) {}                                             \
    explicit NAME(__nv_bfloat16 x) : __x(format::code_of((float)x)) {}                                      \
    explicit operator float() const { return format::value_of(__x); }                                       \
    explicit operator double() const { return format::value_of(__x); }                                      \
    explicit operator __half() const { return __half(format::value_of(__x)); }                              \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(format::value_of(__x)); }                \
    unsigned char __x;                                                                                      \
  };
TFI_FP8(__nv_fp8_e4m3, 3, 7, 0x7e)
TFI_FP8(__nv_fp8_e5m2, 2, 15, 0x7b)
#undef TFI_FP8
