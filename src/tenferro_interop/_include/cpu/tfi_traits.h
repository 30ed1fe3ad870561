// The few type traits that the prelude needs, without <type_traits>.
#pragma once
typedef __PTRDIFF_TYPE__ ptrdiff_t;
namespace tfi_cpu {
template <class A, class B> struct same { static constexpr bool value = false; };
template <class A> struct same<A, A> { static constexpr bool value = true; };

template <bool B, class T = void> struct enable {};
template <class T> struct enable<true, T> { typedef T type; };

template <class T> struct no_cv { typedef T type; };
template <class T> struct no_cv<const T> { typedef T type; };
template <class T> struct no_cv<volatile T> { typedef T type; };
template <class T> struct no_cv<const volatile T> { typedef T type; };

// A parameter of type identity<T>::type converts its argument instead of taking part in deduction.
template <class T> struct identity { typedef T type; };

template <class T> struct is_integer { static constexpr bool value = false; };
#define TFI_INTEGER(T) template <> struct is_integer<T> { static constexpr bool value = true; };
TFI_INTEGER(bool) TFI_INTEGER(char) TFI_INTEGER(signed char) TFI_INTEGER(unsigned char)
TFI_INTEGER(short) TFI_INTEGER(unsigned short) TFI_INTEGER(int) TFI_INTEGER(unsigned)
TFI_INTEGER(long) TFI_INTEGER(unsigned long) TFI_INTEGER(long long) TFI_INTEGER(unsigned long long)
#undef TFI_INTEGER
template <class T> struct is_arithmetic {
  static constexpr bool value = is_integer<T>::value || same<T, float>::value || same<T, double>::value;
};

// An unsigned integer as wide as T.
template <class T, size_t = sizeof(T)> struct bits;
template <class T> struct bits<T, 1> { typedef unsigned char type; };
template <class T> struct bits<T, 2> { typedef unsigned short type; };
template <class T> struct bits<T, 4> { typedef unsigned type; };
template <class T> struct bits<T, 8> { typedef unsigned long long type; };

template <class To, class From> static inline __attribute__((always_inline)) To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To result;
  __builtin_memcpy(&result, &value, sizeof result);
  return result;
}
}  // namespace tfi_cpu
