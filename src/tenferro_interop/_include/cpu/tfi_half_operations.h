// The operators and functions that CUDA gives both 16-bit floating point types and their pairs.
//
// Each works in float and rounds once; a type brings its own conversions (cuda_fp16.h, cuda_bf16.h).
#pragma once
#define TFI_HALF_BINARY(H, OPERATOR, NAME)                                                          \
  TFI_INLINE H operator OPERATOR(H a, H b) { return H((float)a OPERATOR (float)b); }                \
  TFI_INLINE H& operator OPERATOR##=(H& a, H b) { return a = a OPERATOR b; }                        \
  TFI_INLINE H NAME(H a, H b) { return a OPERATOR b; }                                              \
  TFI_INLINE H NAME##_rn(H a, H b) { return a OPERATOR b; }
#define TFI_HALF_COMPARE(H, OPERATOR, NAME)                                                         \
  TFI_INLINE bool operator OPERATOR(H a, H b) { return (float)a OPERATOR (float)b; }                \
  TFI_INLINE bool NAME(H a, H b) { return (float)a OPERATOR (float)b; }
#define TFI_HALF_MATH(H, H2, NAME, EXPRESSION)                                                      \
  TFI_INLINE H h##NAME(H h) { float x = (float)h; return H((float)(EXPRESSION)); }                  \
  TFI_INLINE H2 h2##NAME(H2 h) { return {h##NAME(h.x), h##NAME(h.y)}; }
#define TFI_HALF_PAIRWISE(H2, NAME, NAME2)                                                          \
  TFI_INLINE H2 NAME2(H2 a, H2 b) { return {NAME(a.x, b.x), NAME(a.y, b.y)}; }
#define TFI_HALF_PAIR_OPERATOR(H2, OPERATOR)                                                        \
  TFI_INLINE H2 operator OPERATOR(H2 a, H2 b) { return {a.x OPERATOR b.x, a.y OPERATOR b.y}; }      \
  TFI_INLINE H2& operator OPERATOR##=(H2& a, H2 b) { return a = a OPERATOR b; }

#define TFI_HALF_OPERATIONS(H, H2)                                                                  \
  TFI_HALF_BINARY(H, +, __hadd) TFI_HALF_BINARY(H, -, __hsub) TFI_HALF_BINARY(H, *, __hmul)         \
  TFI_HALF_BINARY(H, /, __hdiv)                                                                     \
  TFI_HALF_COMPARE(H, ==, __heq) TFI_HALF_COMPARE(H, !=, __hne) TFI_HALF_COMPARE(H, <, __hlt)       \
  TFI_HALF_COMPARE(H, <=, __hle) TFI_HALF_COMPARE(H, >, __hgt) TFI_HALF_COMPARE(H, >=, __hge)       \
  TFI_INLINE H operator-(H a) { return H(-(float)a); }                                              \
  TFI_INLINE H operator+(H a) { return a; }                                                         \
  TFI_INLINE H& operator++(H& a) { return a = H((float)a + 1.0f); }                                 \
  TFI_INLINE H& operator--(H& a) { return a = H((float)a - 1.0f); }                                 \
  TFI_INLINE H __hneg(H a) { return -a; }                                                           \
  TFI_INLINE H __habs(H a) { return H(__builtin_fabsf((float)a)); }                                 \
  TFI_INLINE H __hfma(H a, H b, H c) { return H((float)((double)(float)a * (float)b + (float)c)); } \
  TFI_INLINE H __hfma_relu(H a, H b, H c) { return H(fmaxf((float)__hfma(a, b, c), 0.0f)); }        \
  TFI_INLINE H __hmin(H a, H b) { return H(fminf((float)a, (float)b)); }                            \
  TFI_INLINE H __hmax(H a, H b) { return H(fmaxf((float)a, (float)b)); }                            \
  TFI_INLINE H __hadd_sat(H a, H b) { return H(__saturatef((float)a + (float)b)); }                 \
  TFI_INLINE H __hmul_sat(H a, H b) { return H(__saturatef((float)a * (float)b)); }                 \
  TFI_INLINE bool __hisnan(H a) { return isnan((float)a); }                                         \
  TFI_INLINE int __hisinf(H a) { return isinf((float)a) ? ((float)a < 0 ? -1 : 1) : 0; }            \
  TFI_HALF_MATH(H, H2, exp, expf(x)) TFI_HALF_MATH(H, H2, exp2, exp2f(x))                           \
  TFI_HALF_MATH(H, H2, exp10, exp10f(x)) TFI_HALF_MATH(H, H2, log, logf(x))                         \
  TFI_HALF_MATH(H, H2, log2, log2f(x)) TFI_HALF_MATH(H, H2, log10, log10f(x))                       \
  TFI_HALF_MATH(H, H2, sin, sinf(x)) TFI_HALF_MATH(H, H2, cos, cosf(x))                             \
  TFI_HALF_MATH(H, H2, tanh, tanhf(x)) TFI_HALF_MATH(H, H2, sqrt, __builtin_sqrtf(x))               \
  TFI_HALF_MATH(H, H2, rsqrt, rsqrtf(x)) TFI_HALF_MATH(H, H2, rcp, 1.0f / x)                        \
  TFI_HALF_MATH(H, H2, floor, floorf(x)) TFI_HALF_MATH(H, H2, ceil, ceilf(x))                       \
  TFI_HALF_MATH(H, H2, trunc, truncf(x)) TFI_HALF_MATH(H, H2, rint, rintf(x))                       \
  TFI_HALF_PAIRWISE(H2, __hadd, __hadd2) TFI_HALF_PAIRWISE(H2, __hsub, __hsub2)                     \
  TFI_HALF_PAIRWISE(H2, __hmul, __hmul2) TFI_HALF_PAIRWISE(H2, __hdiv, __h2div)                     \
  TFI_HALF_PAIRWISE(H2, __hmin, __hmin2) TFI_HALF_PAIRWISE(H2, __hmax, __hmax2)                     \
  TFI_HALF_PAIR_OPERATOR(H2, +) TFI_HALF_PAIR_OPERATOR(H2, -) TFI_HALF_PAIR_OPERATOR(H2, *)         \
  TFI_HALF_PAIR_OPERATOR(H2, /)                                                                     \
  TFI_INLINE H2 operator-(H2 a) { return {-a.x, -a.y}; }                                            \
  TFI_INLINE bool operator==(H2 a, H2 b) { return a.x == b.x && a.y == b.y; }                       \
  TFI_INLINE bool operator!=(H2 a, H2 b) { return !(a == b); }                                      \
  TFI_INLINE H2 __hneg2(H2 a) { return -a; }                                                        \
  TFI_INLINE H2 __habs2(H2 a) { return {__habs(a.x), __habs(a.y)}; }                                \
  TFI_INLINE H2 __hfma2(H2 a, H2 b, H2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  TFI_INLINE float __low2float(H2 a) { return (float)a.x; }                                         \
  TFI_INLINE float __high2float(H2 a) { return (float)a.y; }

// The conversions, whose names hold the type's: NAME is half in __half2float, NAME2 is half2 in __floats2half2_rn.
#define TFI_HALF_CONVERSIONS(H, H2, NAME, NAME2)                                                    \
  TFI_INLINE float __##NAME##2float(H h) { return (float)h; }                                       \
  TFI_INLINE H __float2##NAME(float x) { return H(x); }                                             \
  TFI_INLINE H __float2##NAME##_rn(float x) { return H(x); }                                        \
  TFI_INLINE H __double2##NAME(double x) { return H(x); }                                           \
  TFI_INLINE H __int2##NAME##_rn(int x) { return H((float)x); }                                     \
  TFI_INLINE H __uint2##NAME##_rn(unsigned x) { return H((float)x); }                               \
  TFI_INLINE int __##NAME##2int_rn(H h) { return __float2int_rn((float)h); }                        \
  TFI_INLINE int __##NAME##2int_rz(H h) { return __float2int_rz((float)h); }                        \
  TFI_INLINE unsigned __##NAME##2uint_rn(H h) { return __float2uint_rn((float)h); }                 \
  TFI_INLINE short __##NAME##_as_short(H h) { return tfi_cpu::bit_cast<short>(h); }                 \
  TFI_INLINE unsigned short __##NAME##_as_ushort(H h) { return tfi_cpu::bit_cast<unsigned short>(h); } \
  TFI_INLINE H __short_as_##NAME(short x) { return tfi_cpu::bit_cast<H>(x); }                       \
  TFI_INLINE H __ushort_as_##NAME(unsigned short x) { return tfi_cpu::bit_cast<H>(x); }             \
  TFI_INLINE H2 __##NAME##2##NAME##2(H h) { return {h, h}; }                                        \
  TFI_INLINE H2 __float2##NAME2##_rn(float x) { return {H(x), H(x)}; }                              \
  TFI_INLINE H2 __floats2##NAME2##_rn(float x, float y) { return {H(x), H(y)}; }                    \
  TFI_INLINE H2 __float22##NAME2##_rn(float2 v) { return {H(v.x), H(v.y)}; }                        \
  TFI_INLINE H __low2##NAME(H2 h) { return h.x; }                                                   \
  TFI_INLINE H __high2##NAME(H2 h) { return h.y; }                                                  \
  TFI_INLINE H2 __low2##NAME2(H2 h) { return {h.x, h.x}; }                                          \
  TFI_INLINE H2 __high2##NAME2(H2 h) { return {h.y, h.y}; }                                         \
  TFI_INLINE H2 __lowhigh2highlow(H2 h) { return {h.y, h.x}; }                                      \
  TFI_INLINE H2 make_##NAME2(H x, H y) { return {x, y}; }
