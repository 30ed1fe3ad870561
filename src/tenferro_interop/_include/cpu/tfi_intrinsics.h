// Integer and conversion intrinsics, cache-hinted loads and stores.
#pragma once
// Keeps the compiler from fusing a result into a later multiply-add: CUDA's _rn forms are never contracted.
#if defined(__x86_64__)
#define TFI_ROUNDED(VALUE) __asm__("" : "+x"(VALUE))
#else
#define TFI_ROUNDED(VALUE) __asm__("" : "+w"(VALUE))
#endif

TFI_INLINE float __int_as_float(int x) { return tfi_cpu::bit_cast<float>(x); }
TFI_INLINE int __float_as_int(float x) { return tfi_cpu::bit_cast<int>(x); }
TFI_INLINE float __uint_as_float(unsigned x) { return tfi_cpu::bit_cast<float>(x); }
TFI_INLINE unsigned __float_as_uint(float x) { return tfi_cpu::bit_cast<unsigned>(x); }
TFI_INLINE double __longlong_as_double(long long x) { return tfi_cpu::bit_cast<double>(x); }
TFI_INLINE long long __double_as_longlong(double x) { return tfi_cpu::bit_cast<long long>(x); }
TFI_INLINE int __double2hiint(double x) { return (int)(tfi_cpu::bit_cast<long long>(x) >> 32); }
TFI_INLINE int __double2loint(double x) { return (int)tfi_cpu::bit_cast<long long>(x); }
TFI_INLINE double __hiloint2double(int high, int low) {
  return tfi_cpu::bit_cast<double>((long long)high << 32 | (unsigned)low);
}

TFI_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
TFI_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TFI_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
TFI_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
TFI_INLINE int __ffs(int x) { return __builtin_ffs(x); }
TFI_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
TFI_INLINE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
TFI_INLINE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
TFI_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long bytes = (unsigned long long)b << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned code = selector >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (code & 7)) & 255;
    if (code & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * i;
  }
  return result;
}
TFI_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
TFI_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
TFI_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
TFI_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
TFI_INLINE int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
TFI_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
TFI_INLINE long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
TFI_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
TFI_INLINE int __mul24(int a, int b) {
  long long low_a = (int)((unsigned)a << 8) >> 8, low_b = (int)((unsigned)b << 8) >> 8;
  return (int)(low_a * low_b);
}
TFI_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
TFI_INLINE unsigned __sad(int a, int b, unsigned c) {
  return c + (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a);
}
TFI_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
TFI_INLINE int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
TFI_INLINE int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
TFI_INLINE int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
  return c;
}
TFI_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
  return c;
}

// Conversions saturate on the GPU and give 0 for NaN; a plain cast would be undefined.
namespace tfi_cpu {
template <class To, class From> TFI_INLINE To saturate(From x) {
  constexpr bool is_signed = (To)-1 < (To)0;
  constexpr To top = is_signed ? (To)(~(To)0 ^ (To)((To)1 << (sizeof(To) * 8 - 1))) : (To)~(To)0;
  if (x != x) return 0;
  if (x >= (From)top) return top;
  if (x <= (From)(is_signed ? -top - 1 : 0)) return is_signed ? (To)(-top - 1) : (To)0;
  return (To)x;
}
}  // namespace tfi_cpu
#define TFI_CONVERT(FROM, F, TO, T, SUFFIX)                                                                         \
  TFI_INLINE T __##FROM##2##TO##_rn(F x) { return tfi_cpu::saturate<T>(__builtin_rint##SUFFIX(x)); }                \
  TFI_INLINE T __##FROM##2##TO##_rz(F x) { return tfi_cpu::saturate<T>(x); }                                        \
  TFI_INLINE T __##FROM##2##TO##_rd(F x) { return tfi_cpu::saturate<T>(__builtin_floor##SUFFIX(x)); }               \
  TFI_INLINE T __##FROM##2##TO##_ru(F x) { return tfi_cpu::saturate<T>(__builtin_ceil##SUFFIX(x)); }
TFI_CONVERT(float, float, int, int, f)
TFI_CONVERT(float, float, uint, unsigned, f)
TFI_CONVERT(float, float, ll, long long, f)
TFI_CONVERT(float, float, ull, unsigned long long, f)
TFI_CONVERT(double, double, int, int, )
TFI_CONVERT(double, double, uint, unsigned, )
TFI_CONVERT(double, double, ll, long long, )
TFI_CONVERT(double, double, ull, unsigned long long, )
#undef TFI_CONVERT
TFI_INLINE float __int2float_rn(int x) { return (float)x; }
TFI_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
TFI_INLINE float __ll2float_rn(long long x) { return (float)x; }
TFI_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
TFI_INLINE double __int2double_rn(int x) { return x; }
TFI_INLINE double __uint2double_rn(unsigned x) { return x; }
TFI_INLINE double __ll2double_rn(long long x) { return (double)x; }
TFI_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }
TFI_INLINE float __double2float_rn(double x) { return (float)x; }

#define TFI_LOAD(NAME) template <class T> TFI_INLINE T NAME(const T* address) { return *address; }
TFI_LOAD(__ldg) TFI_LOAD(__ldcg) TFI_LOAD(__ldca) TFI_LOAD(__ldcs) TFI_LOAD(__ldlu) TFI_LOAD(__ldcv)
#undef TFI_LOAD
#define TFI_STORE(NAME)                                                                           \
  template <class T> TFI_INLINE void NAME(T* address, typename tfi_cpu::identity<T>::type value) { \
    *address = value;                                                                             \
  }
TFI_STORE(__stwb) TFI_STORE(__stcg) TFI_STORE(__stcs) TFI_STORE(__stwt)
#undef TFI_STORE
