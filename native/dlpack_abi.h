// The structs of DLPack 1.3 that the core reads and writes, declared here so that no header is needed to build.
// Source: https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h; tests/unit/test_abi.py compares the offsets.
#ifndef TFI_DLPACK_ABI_H
#define TFI_DLPACK_ABI_H
#include <stddef.h>
#include <stdint.h>

enum { TFI_DL_CPU = 1, TFI_DL_CUDA = 2, TFI_DL_CUDA_HOST = 3, TFI_DL_CUDA_MANAGED = 13 };
enum { TFI_DL_FLAG_READ_ONLY = 1, TFI_DL_FLAG_IS_COPIED = 2 };

typedef struct { int32_t device_type, device_id; } tfi_dl_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } tfi_dl_dtype;
typedef struct {
  void* data;
  tfi_dl_device device;
  int32_t ndim;
  tfi_dl_dtype dtype;
  int64_t* shape;
  int64_t* strides;  // NULL means compact row-major
  uint64_t byte_offset;
} tfi_dl_tensor;
typedef struct tfi_dl_managed {
  tfi_dl_tensor tensor;
  void* manager_ctx;
  void (*deleter)(struct tfi_dl_managed*);
} tfi_dl_managed;
typedef struct { uint32_t major, minor; } tfi_dl_version;
typedef struct tfi_dl_managed_versioned {
  tfi_dl_version version;
  void* manager_ctx;
  void (*deleter)(struct tfi_dl_managed_versioned*);
  uint64_t flags;
  tfi_dl_tensor tensor;
} tfi_dl_managed_versioned;

typedef struct tfi_dl_exchange_header {
  tfi_dl_version version;
  struct tfi_dl_exchange_header* prev_api;
} tfi_dl_exchange_header;
// Every function holds the GIL, returns 0, or -1 with a Python exception set; none of them synchronises.
typedef struct {
  tfi_dl_exchange_header header;
  int (*allocate)(tfi_dl_tensor* prototype, tfi_dl_managed_versioned** out, void* error_ctx,
                  void (*set_error)(void*, const char* kind, const char* message));
  int (*managed_from_object)(void* object, tfi_dl_managed_versioned** out);
  int (*object_from_managed)(tfi_dl_managed_versioned* managed, void** out);  // steals
  int (*view_from_object)(void* object, tfi_dl_tensor* out);                  // may be NULL; borrowed pointers
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
} tfi_dl_exchange;

// Packs a dtype so that equality is one comparison.
static inline uint32_t tfi_dtype_word(tfi_dl_dtype t) { return t.code | (uint32_t)t.bits << 8 | (uint32_t)t.lanes << 16; }

// Whether an element type has one agreed raw form: whole bytes, and a width that its code is used with.
static inline int tfi_dtype_is_plain(tfi_dl_dtype t) {
  uint32_t bits = t.bits;
  if (t.lanes == 0 || bits == 0 || bits * t.lanes % 8) return 0;
  if (t.code <= 1) return bits == 8 || bits == 16 || bits == 32 || bits == 64;
  if (t.code == 2) return bits == 16 || bits == 32 || bits == 64;
  if (t.code == 4) return bits == 16;
  if (t.code == 5) return bits == 32 || bits == 64 || bits == 128;
  if (t.code == 6) return bits == 8;
  if (t.code >= 7 && t.code <= 14) return bits == 8;
  return t.code >= 15 && t.code <= 17;  // packed sub-byte floats, several lanes to a byte
}

enum { TFI_LAYOUT_BAD = -1, TFI_LAYOUT_STRIDED = 0, TFI_LAYOUT_COMPACT = 1 };

// Element count, and whether the elements lie row-major without gaps.  Axes of one element may have any stride, and a
// tensor of no elements is compact whatever its strides say.
static inline int tfi_layout(const tfi_dl_tensor* t, int64_t* numel) {
  int64_t count = 1;
  int compact = 1, empty = 0;
  if (t->ndim < 0 || (t->ndim > 0 && !t->shape)) return TFI_LAYOUT_BAD;
  for (int32_t axis = t->ndim - 1; axis >= 0; --axis) {
    int64_t extent = t->shape[axis];
    if (extent < 0) return TFI_LAYOUT_BAD;
    if (extent == 0) empty = 1;
    if (extent > 1 && t->strides && t->strides[axis] != count) compact = 0;
    if (extent > 0 && __builtin_mul_overflow(count, extent, &count)) return TFI_LAYOUT_BAD;
  }
  *numel = empty ? 0 : count;
  return empty ? TFI_LAYOUT_COMPACT : compact;
}

// Lowest and highest byte touched relative to the first element, for tensors with at least one element.
// Returns -1 where the offsets leave 63 bits.
static inline int tfi_extent(const tfi_dl_tensor* t, int64_t itemsize, int64_t* low, int64_t* high) {
  int64_t lo = 0, hi = 0, step;
  for (int32_t axis = 0; axis < t->ndim; ++axis) {
    if (t->shape[axis] <= 1 || !t->strides) continue;
    if (__builtin_mul_overflow(t->strides[axis], t->shape[axis] - 1, &step)) return -1;
    if (__builtin_add_overflow(step < 0 ? lo : hi, step, step < 0 ? &lo : &hi)) return -1;
  }
  if (__builtin_mul_overflow(lo, itemsize, low) || __builtin_mul_overflow(hi + 1, itemsize, high)) return -1;
  return 0;
}

// A framework's own tensor objects, as an adapter measured them (`TensorLayout` in _producers.py).
typedef struct {
  int32_t impl, state, dtype, grad, version, count, storage, data, guard, offset, ndim, device;
} tfi_layout_offsets;
enum { TFI_INLINE_AXES = 5 };

// Fills a view from a tensor object; 0 where its storage must be asked first, as with copy-on-write.
static inline int tfi_read_layout(const char* impl, const tfi_layout_offsets* at, tfi_dl_dtype dtype, int32_t device_type,
                                  tfi_dl_tensor* out) {
  const char* storage = *(char* const*)(impl + at->storage);
  if (!storage || storage[at->guard]) return 0;
  int64_t ndim = *(const int64_t*)(impl + at->ndim);
  int64_t* extents = (int64_t*)(impl + at->ndim + sizeof(int64_t));
  if (ndim > TFI_INLINE_AXES) extents = *(int64_t**)extents;
  char* data = *(char* const*)(storage + at->data);
  int8_t ordinal = *(const int8_t*)(impl + at->device + 1);
  int64_t offset = *(const int64_t*)(impl + at->offset);
  out->data = data ? data + offset * (dtype.bits * dtype.lanes / 8) : NULL;
  out->device.device_type = device_type;
  out->device.device_id = ordinal < 0 ? 0 : ordinal;
  out->ndim = (int32_t)ndim;
  out->dtype = dtype;
  out->shape = extents;
  out->strides = extents + (ndim > TFI_INLINE_AXES ? ndim : TFI_INLINE_AXES);
  out->byte_offset = 0;
  return 1;
}
#endif
