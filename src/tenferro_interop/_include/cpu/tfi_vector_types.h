// Vector types with CUDA's size and alignment, make_*, and dim3.
#pragma once
#define TFI_VECTOR(NAME, T, ALIGN2, ALIGN4)                                                   \
  struct NAME##1 { T x; };                                                                    \
  struct alignas(ALIGN2) NAME##2 { T x, y; };                                                 \
  struct NAME##3 { T x, y, z; };                                                              \
  struct alignas(ALIGN4) NAME##4 { T x, y, z, w; };                                           \
  TFI_INLINE constexpr NAME##1 make_##NAME##1(T x) { return NAME##1{x}; }                     \
  TFI_INLINE constexpr NAME##2 make_##NAME##2(T x, T y) { return NAME##2{x, y}; }             \
  TFI_INLINE constexpr NAME##3 make_##NAME##3(T x, T y, T z) { return NAME##3{x, y, z}; }     \
  TFI_INLINE constexpr NAME##4 make_##NAME##4(T x, T y, T z, T w) { return NAME##4{x, y, z, w}; }
TFI_VECTOR(char, signed char, 2, 4)
TFI_VECTOR(uchar, unsigned char, 2, 4)
TFI_VECTOR(short, short, 4, 8)
TFI_VECTOR(ushort, unsigned short, 4, 8)
TFI_VECTOR(int, int, 8, 16)
TFI_VECTOR(uint, unsigned, 8, 16)
TFI_VECTOR(long, long, 16, 16)
TFI_VECTOR(ulong, unsigned long, 16, 16)
TFI_VECTOR(longlong, long long, 16, 16)
TFI_VECTOR(ulonglong, unsigned long long, 16, 16)
TFI_VECTOR(float, float, 8, 16)
TFI_VECTOR(double, double, 16, 16)
#undef TFI_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
