// Mathematical functions with CUDA's overloads; the work is done by the C library.
#pragma once
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VAL (__builtin_huge_val())
#define HUGE_VALF (__builtin_huge_valf())

#define TFI_INTEGRAL(T) typename tfi_cpu::enable<tfi_cpu::is_integer<T>::value, double>::type
#define TFI_MIXED(A, B)                                                                                      \
  typename tfi_cpu::enable<tfi_cpu::is_arithmetic<A>::value && tfi_cpu::is_arithmetic<B>::value &&           \
                           !tfi_cpu::same<A, B>::value, double>::type
#define TFI_MATH1(NAME)                                                                                      \
  extern "C" double NAME(double) noexcept;                                                                   \
  extern "C" float NAME##f(float) noexcept;                                                                  \
  TFI_INLINE float NAME(float x) { return NAME##f(x); }                                                      \
  template <class T> TFI_INLINE TFI_INTEGRAL(T) NAME(T x) { return NAME((double)x); }
TFI_MATH1(sin) TFI_MATH1(cos) TFI_MATH1(tan) TFI_MATH1(asin) TFI_MATH1(acos) TFI_MATH1(atan)
TFI_MATH1(sinh) TFI_MATH1(cosh) TFI_MATH1(tanh) TFI_MATH1(asinh) TFI_MATH1(acosh) TFI_MATH1(atanh)
TFI_MATH1(exp) TFI_MATH1(exp2) TFI_MATH1(exp10) TFI_MATH1(expm1)
TFI_MATH1(log) TFI_MATH1(log2) TFI_MATH1(log10) TFI_MATH1(log1p) TFI_MATH1(logb)
TFI_MATH1(sqrt) TFI_MATH1(cbrt) TFI_MATH1(erf) TFI_MATH1(erfc) TFI_MATH1(lgamma) TFI_MATH1(tgamma)
TFI_MATH1(floor) TFI_MATH1(ceil) TFI_MATH1(trunc) TFI_MATH1(round) TFI_MATH1(rint) TFI_MATH1(nearbyint)
TFI_MATH1(fabs)
#undef TFI_MATH1
#define TFI_MATH2(NAME)                                                                                      \
  extern "C" double NAME(double, double) noexcept;                                                           \
  extern "C" float NAME##f(float, float) noexcept;                                                           \
  TFI_INLINE float NAME(float x, float y) { return NAME##f(x, y); }                                          \
  template <class A, class B> TFI_INLINE TFI_MIXED(A, B) NAME(A x, B y) { return NAME((double)x, (double)y); }
TFI_MATH2(pow) TFI_MATH2(atan2) TFI_MATH2(fmod) TFI_MATH2(hypot) TFI_MATH2(copysign) TFI_MATH2(fdim)
TFI_MATH2(remainder) TFI_MATH2(nextafter)
#undef TFI_MATH2
TFI_INLINE float pow(float x, int n) { return powf(x, (float)n); }
TFI_INLINE double pow(double x, int n) { return pow(x, (double)n); }
template <class T> TFI_INLINE TFI_INTEGRAL(T) pow(T x, T y) { return pow((double)x, (double)y); }

extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
TFI_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
#define TFI_MATH_OTHER(RESULT, NAME, SECOND)                                       \
  extern "C" RESULT(double) NAME(double SECOND) noexcept;                          \
  extern "C" RESULT(float) NAME##f(float SECOND) noexcept;
#define TFI_AS_IS(T) T
#define TFI_AS_INT(T) int
#define TFI_AS_LONG(T) long
#define TFI_AS_LONG_LONG(T) long long
#define TFI_COMMA ,
TFI_MATH_OTHER(TFI_AS_IS, ldexp, TFI_COMMA int)
TFI_MATH_OTHER(TFI_AS_IS, scalbn, TFI_COMMA int)
TFI_MATH_OTHER(TFI_AS_IS, frexp, TFI_COMMA int*)
TFI_MATH_OTHER(TFI_AS_INT, ilogb, )
TFI_MATH_OTHER(TFI_AS_LONG, lround, )
TFI_MATH_OTHER(TFI_AS_LONG, lrint, )
TFI_MATH_OTHER(TFI_AS_LONG_LONG, llround, )
TFI_MATH_OTHER(TFI_AS_LONG_LONG, llrint, )
extern "C" double modf(double, double*) noexcept;
extern "C" float modff(float, float*) noexcept;
extern "C" int abs(int) noexcept;
extern "C" long labs(long) noexcept;
extern "C" long long llabs(long long) noexcept;
TFI_INLINE float ldexp(float x, int n) { return ldexpf(x, n); }
TFI_INLINE float scalbn(float x, int n) { return scalbnf(x, n); }
TFI_INLINE float frexp(float x, int* n) { return frexpf(x, n); }
TFI_INLINE float modf(float x, float* whole) { return modff(x, whole); }
// A template, since <cstdlib> brings functions of these types that would clash with functions of ours.
template <class T> TFI_INLINE typename tfi_cpu::enable<tfi_cpu::same<T, long>::value, T>::type abs(T x) {
  return x < 0 ? -x : x;
}
template <class T> TFI_INLINE typename tfi_cpu::enable<tfi_cpu::same<T, long long>::value, T>::type abs(T x) {
  return x < 0 ? -x : x;
}
template <class T> TFI_INLINE typename tfi_cpu::enable<tfi_cpu::same<T, float>::value, T>::type abs(T x) {
  return __builtin_fabsf(x);
}
template <class T> TFI_INLINE typename tfi_cpu::enable<tfi_cpu::same<T, double>::value, T>::type abs(T x) {
  return __builtin_fabs(x);
}

// Compare and select instead of libm's fmin: it becomes vector code, and a NaN loses as CUDA has it.
TFI_INLINE float fminf(float a, float b) { return b < a || a != a ? b : a; }
TFI_INLINE float fmaxf(float a, float b) { return a < b || a != a ? b : a; }
TFI_INLINE double fmin(double a, double b) { return b < a || a != a ? b : a; }
TFI_INLINE double fmax(double a, double b) { return a < b || a != a ? b : a; }
TFI_INLINE float fmin(float a, float b) { return fminf(a, b); }
TFI_INLINE float fmax(float a, float b) { return fmaxf(a, b); }
template <class A, class B> TFI_INLINE TFI_MIXED(A, B) fmin(A a, B b) { return fmin((double)a, (double)b); }
template <class A, class B> TFI_INLINE TFI_MIXED(A, B) fmax(A a, B b) { return fmax((double)a, (double)b); }

namespace tfi_cpu {
template <class A, class B, bool = is_arithmetic<A>::value && is_arithmetic<B>::value> struct common {};
template <class A, class B> struct common<A, B, true> { typedef decltype(true ? A() : B()) type; };
}  // namespace tfi_cpu
template <class A, class B> TFI_INLINE constexpr typename tfi_cpu::common<A, B>::type min(A a, B b) {
  typedef typename tfi_cpu::common<A, B>::type C;
  return (C)b < (C)a || (C)a != (C)a ? (C)b : (C)a;
}
template <class A, class B> TFI_INLINE constexpr typename tfi_cpu::common<A, B>::type max(A a, B b) {
  typedef typename tfi_cpu::common<A, B>::type C;
  return (C)a < (C)b || (C)a != (C)a ? (C)b : (C)a;
}
TFI_INLINE unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
TFI_INLINE unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }

#define TFI_CLASSIFY(NAME)                                            \
  TFI_INLINE bool NAME(float x) { return __builtin_##NAME(x); }       \
  TFI_INLINE bool NAME(double x) { return __builtin_##NAME(x); }
TFI_CLASSIFY(isnan) TFI_CLASSIFY(isinf) TFI_CLASSIFY(isfinite) TFI_CLASSIFY(signbit)
#undef TFI_CLASSIFY

// What CUDA adds to the C library.
TFI_INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
TFI_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
TFI_INLINE float rsqrt(float x) { return rsqrtf(x); }
TFI_INLINE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
TFI_INLINE double rcbrt(double x) { return 1.0 / cbrt(x); }
TFI_INLINE void sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
TFI_INLINE void sincos(double x, double* s, double* c) { *s = sin(x), *c = cos(x); }
TFI_INLINE void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
namespace tfi_cpu {
// Reduced exactly first: sin(pi x) must be 0 at integers.
template <class T> TFI_INLINE T sin_pi(T x) {
  T r = x - 2 * (T)__builtin_rint((double)x / 2);
  if (r > (T)0.5) r = 1 - r;
  if (r < (T)-0.5) r = -1 - r;
  return (T)sin(3.14159265358979323846 * (double)r);
}
}  // namespace tfi_cpu
TFI_INLINE float sinpif(float x) { return tfi_cpu::sin_pi(x); }
TFI_INLINE double sinpi(double x) { return tfi_cpu::sin_pi(x); }
TFI_INLINE double cospi(double x) {
  double positive = __builtin_fabs(x);
  return tfi_cpu::sin_pi(positive - 2 * __builtin_floor(positive / 2) + 0.5);
}
TFI_INLINE float cospif(float x) { return (float)cospi((double)x); }
TFI_INLINE void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
TFI_INLINE void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
TFI_INLINE double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
TFI_INLINE float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
TFI_INLINE float norm3df(float x, float y, float z) { return __builtin_sqrtf(x * x + y * y + z * z); }
TFI_INLINE double norm3d(double x, double y, double z) { return __builtin_sqrt(x * x + y * y + z * z); }
TFI_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

TFI_INLINE float __expf(float x) { return expf(x); }
TFI_INLINE float __exp10f(float x) { return exp10f(x); }
TFI_INLINE float __logf(float x) { return logf(x); }
TFI_INLINE float __log2f(float x) { return log2f(x); }
TFI_INLINE float __log10f(float x) { return log10f(x); }
TFI_INLINE float __sinf(float x) { return sinf(x); }
TFI_INLINE float __cosf(float x) { return cosf(x); }
TFI_INLINE float __tanf(float x) { return tanf(x); }
TFI_INLINE float __tanhf(float x) { return tanhf(x); }
TFI_INLINE float __powf(float x, float y) { return powf(x, y); }
TFI_INLINE float __fdividef(float x, float y) { return x / y; }
TFI_INLINE void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }

#define TFI_ROUNDED_OPERATION(NAME, T, PARAMETERS, EXPRESSION) \
  TFI_INLINE T NAME PARAMETERS {                               \
    T result = EXPRESSION;                                     \
    TFI_ROUNDED(result);                                       \
    return result;                                             \
  }
TFI_ROUNDED_OPERATION(__fadd_rn, float, (float x, float y), x + y)
TFI_ROUNDED_OPERATION(__fsub_rn, float, (float x, float y), x - y)
TFI_ROUNDED_OPERATION(__fmul_rn, float, (float x, float y), x * y)
TFI_ROUNDED_OPERATION(__fdiv_rn, float, (float x, float y), x / y)
TFI_ROUNDED_OPERATION(__frcp_rn, float, (float x), 1.0f / x)
TFI_ROUNDED_OPERATION(__fsqrt_rn, float, (float x), __builtin_sqrtf(x))
TFI_ROUNDED_OPERATION(__frsqrt_rn, float, (float x), (float)(1.0 / __builtin_sqrt((double)x)))
TFI_ROUNDED_OPERATION(__fmaf_rn, float, (float x, float y, float z), fmaf(x, y, z))
TFI_ROUNDED_OPERATION(__dadd_rn, double, (double x, double y), x + y)
TFI_ROUNDED_OPERATION(__dsub_rn, double, (double x, double y), x - y)
TFI_ROUNDED_OPERATION(__dmul_rn, double, (double x, double y), x * y)
TFI_ROUNDED_OPERATION(__ddiv_rn, double, (double x, double y), x / y)
TFI_ROUNDED_OPERATION(__drcp_rn, double, (double x), 1.0 / x)
TFI_ROUNDED_OPERATION(__dsqrt_rn, double, (double x), __builtin_sqrt(x))
TFI_ROUNDED_OPERATION(__fma_rn, double, (double x, double y, double z), fma(x, y, z))
#undef TFI_ROUNDED_OPERATION
#undef TFI_MATH_OTHER
#undef TFI_AS_IS
#undef TFI_AS_INT
#undef TFI_AS_LONG
#undef TFI_AS_LONG_LONG
#undef TFI_COMMA
