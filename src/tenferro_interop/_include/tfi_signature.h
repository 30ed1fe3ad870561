// Describes a kernel's parameters in integers that survive name mangling.
//
// The text is appended to the user's source for NVRTC and for the host compiler alike, so both devices read one
// signature from one set of rules.  Each parameter becomes two 64-bit words; `_signature.py` decodes them:
//   word 0   bits 0-31 sizeof | 32-39 alignof | 40-43 kind | 44 pointee const | 45 pointee volatile | 48-55 alignof pointee
//   word 1   bits 0-7 DLPack type code | 8-15 bits of one lane | 16-31 lanes | 32-63 sizeof the element
// Kinds: 0 scalar, 1 pointer, 2 aggregate.  Codes past DLPack's: 253 pointer, 254 void, 255 opaque.
// No standard header is used: NVRTC has none by default, and the host compiler need not build any.
struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;
struct __nv_fp8_e8m0;
namespace tfi_signature {
typedef unsigned long long word;
template <word... W> struct words {};
template <class T> __global__ void probe() {}

template <class T> __device__ constexpr word size_or_zero(int (*)[sizeof(T)]) { return sizeof(T); }
template <class T> __device__ constexpr word size_or_zero(...) { return 0; }
template <class T> __device__ constexpr word align_or_zero(int (*)[sizeof(T)]) { return alignof(T); }
template <class T> __device__ constexpr word align_or_zero(...) { return 0; }

template <class T> struct element { static constexpr word code = 255, bits = 0, lanes = 0; };
template <class T> struct element<T*> { static constexpr word code = 253, bits = 64, lanes = 1; };
template <> struct element<void> { static constexpr word code = 254, bits = 0, lanes = 0; };
#define TFI_ELEMENT(T, CODE, BITS, LANES) \
  template <> struct element<T> { static constexpr word code = CODE, bits = BITS, lanes = LANES; };
#define TFI_VECTORS(T, CODE, BITS) \
  TFI_ELEMENT(T##1, CODE, BITS, 1) TFI_ELEMENT(T##2, CODE, BITS, 2) TFI_ELEMENT(T##3, CODE, BITS, 3) \
  TFI_ELEMENT(T##4, CODE, BITS, 4)
TFI_ELEMENT(bool, 6, 8, 1)
TFI_ELEMENT(char, 0, 8, 1) TFI_ELEMENT(signed char, 0, 8, 1) TFI_ELEMENT(unsigned char, 1, 8, 1)
TFI_ELEMENT(short, 0, 16, 1) TFI_ELEMENT(unsigned short, 1, 16, 1)
TFI_ELEMENT(int, 0, 32, 1) TFI_ELEMENT(unsigned int, 1, 32, 1)
TFI_ELEMENT(long, 0, 8 * sizeof(long), 1) TFI_ELEMENT(unsigned long, 1, 8 * sizeof(long), 1)
TFI_ELEMENT(long long, 0, 64, 1) TFI_ELEMENT(unsigned long long, 1, 64, 1)
TFI_ELEMENT(float, 2, 32, 1) TFI_ELEMENT(double, 2, 64, 1)
TFI_ELEMENT(__half, 2, 16, 1) TFI_ELEMENT(__half2, 2, 16, 2)
TFI_ELEMENT(__nv_bfloat16, 4, 16, 1) TFI_ELEMENT(__nv_bfloat162, 4, 16, 2)
TFI_ELEMENT(__nv_fp8_e4m3, 10, 8, 1) TFI_ELEMENT(__nv_fp8_e5m2, 12, 8, 1) TFI_ELEMENT(__nv_fp8_e8m0, 14, 8, 1)
TFI_VECTORS(char, 0, 8) TFI_VECTORS(uchar, 1, 8) TFI_VECTORS(short, 0, 16) TFI_VECTORS(ushort, 1, 16)
TFI_VECTORS(int, 0, 32) TFI_VECTORS(uint, 1, 32) TFI_VECTORS(longlong, 0, 64) TFI_VECTORS(ulonglong, 1, 64)
TFI_VECTORS(float, 2, 32)
TFI_ELEMENT(double1, 2, 64, 1) TFI_ELEMENT(double2, 2, 64, 2)

template <class T> struct bare { typedef T type; static constexpr word flags = 0; };
template <class T> struct bare<const T> { typedef T type; static constexpr word flags = 1; };
template <class T> struct bare<volatile T> { typedef T type; static constexpr word flags = 2; };
template <class T> struct bare<const volatile T> { typedef T type; static constexpr word flags = 3; };

template <bool B, class T> struct underlying { typedef T type; };
template <class T> struct underlying<true, T> { typedef __underlying_type(T) type; };

template <class T> struct describe_element {
  typedef element<typename underlying<__is_enum(T), T>::type> e;
  static constexpr word value = e::code | e::bits << 8 | e::lanes << 16 | size_or_zero<T>(0) << 32;
};
template <class T> struct describe {  // a value parameter
  static constexpr word kind = element<typename underlying<__is_enum(T), T>::type>::code == 255 ||
                               element<typename underlying<__is_enum(T), T>::type>::lanes > 1 ? 2 : 0;
  static constexpr word head = sizeof(T) | (word)alignof(T) << 32 | kind << 40;
  static constexpr word tail = describe_element<T>::value;
};
template <class T> struct describe<T*> {  // a pointer parameter
  typedef typename bare<T>::type pointee;
  static constexpr word head = sizeof(T*) | (word)alignof(T*) << 32 | (word)1 << 40 | bare<T>::flags << 44 |
                               align_or_zero<pointee>(0) << 48;
  static constexpr word tail = describe_element<pointee>::value;
};

template <class A, class B> struct join;
template <word... A, word... B> struct join<words<A...>, words<B...>> { typedef words<A..., B...> type; };
template <class... A> struct pack { typedef words<> type; };
template <class A, class... R> struct pack<A, R...> {
  typedef typename join<words<describe<typename bare<A>::type>::head, describe<typename bare<A>::type>::tail>,
                        typename pack<R...>::type>::type type;
};
template <class K> struct of;
template <class... A> struct of<void(A...)> { typedef typename pack<A...>::type type; };
template <class... A> struct of<void (*)(A...)> { typedef typename pack<A...>::type type; };
#undef TFI_ELEMENT
#undef TFI_VECTORS
}  // namespace tfi_signature
