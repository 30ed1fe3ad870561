// The structs of XLA's FFI that the handler reads and writes, declared here so that no header is needed to build.
// Source: xla/ffi/api/c_api.h, the part that has not changed since API version 0.1, which the handler reports.
// tests/meta/test_abi.py compares sizes, offsets and constants with the header that jax installs.
#ifndef TFI_XLA_FFI_H
#define TFI_XLA_FFI_H
#include <stddef.h>
#include <stdint.h>

enum { TFI_XLA_EXTENSION_METADATA = 1 };
enum { TFI_XLA_STAGE_EXECUTE = 3 };
enum { TFI_XLA_BUFFER = 1 };
enum { TFI_XLA_ATTR_ARRAY = 1, TFI_XLA_ATTR_SCALAR = 3 };
enum { TFI_XLA_COMMAND_BUFFER_COMPATIBLE = 1 };
enum { TFI_XLA_INVALID_ARGUMENT = 3, TFI_XLA_NOT_FOUND = 5, TFI_XLA_INTERNAL = 13 };
enum {
  TFI_XLA_PRED = 1, TFI_XLA_S8 = 2, TFI_XLA_S16 = 3, TFI_XLA_S32 = 4, TFI_XLA_S64 = 5, TFI_XLA_U8 = 6, TFI_XLA_U16 = 7,
  TFI_XLA_U32 = 8, TFI_XLA_U64 = 9, TFI_XLA_F16 = 10, TFI_XLA_F32 = 11, TFI_XLA_F64 = 12, TFI_XLA_C64 = 15,
  TFI_XLA_BF16 = 16, TFI_XLA_C128 = 18, TFI_XLA_F8E5M2 = 19, TFI_XLA_F8E4M3FN = 20, TFI_XLA_F8E4M3B11FNUZ = 23,
  TFI_XLA_F8E5M2FNUZ = 24, TFI_XLA_F8E4M3FNUZ = 25, TFI_XLA_F8E4M3 = 28, TFI_XLA_F8E3M4 = 29, TFI_XLA_F8E8M0FNU = 33
};

typedef struct tfi_xla_error tfi_xla_error;
typedef struct tfi_xla_extension {
  size_t struct_size;
  int type;
  struct tfi_xla_extension* next;
} tfi_xla_extension;
typedef struct {
  size_t struct_size;
  tfi_xla_extension* extension_start;
  int major_version, minor_version;
} tfi_xla_version;
typedef struct {
  size_t struct_size;
  tfi_xla_version api_version;
  uint32_t traits;  // later versions add fields behind it
} tfi_xla_metadata;
typedef struct {
  tfi_xla_extension base;
  tfi_xla_metadata* metadata;
} tfi_xla_metadata_extension;

typedef struct {
  size_t struct_size;
  tfi_xla_extension* extension_start;
  const char* message;
  int code;
} tfi_xla_error_create;
typedef struct {
  size_t struct_size;
  tfi_xla_extension* extension_start;
  void* context;
  void* stream;
} tfi_xla_stream_get;
typedef struct {
  size_t struct_size;
  tfi_xla_extension* extension_start;
  tfi_xla_version api_version;
  const void* internal_api;
  tfi_xla_error* (*error_create)(tfi_xla_error_create*);
  void *error_get_message, *error_destroy, *handler_register;
  tfi_xla_error* (*stream_get)(tfi_xla_stream_get*);  // later versions add functions behind it
} tfi_xla_api;

typedef struct {
  size_t struct_size;
  tfi_xla_extension* extension_start;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
} tfi_xla_buffer;
typedef struct { const char* ptr; size_t len; } tfi_xla_span;
typedef struct { int dtype; void* value; } tfi_xla_scalar;
typedef struct { int dtype; size_t size; void* data; } tfi_xla_array;
typedef struct {  // arguments and results
  size_t struct_size;
  tfi_xla_extension* extension_start;
  int64_t size;
  int* types;
  void** buffers;
} tfi_xla_buffers;
typedef struct {
  size_t struct_size;
  tfi_xla_extension* extension_start;
  int64_t size;
  int* types;
  tfi_xla_span** names;
  void** attrs;
} tfi_xla_attrs;
typedef struct {
  size_t struct_size;
  tfi_xla_extension* extension_start;
  const tfi_xla_api* api;
  void* context;
  int stage;
  tfi_xla_buffers args, rets;
  tfi_xla_attrs attrs;  // later versions add fields behind it
} tfi_xla_frame;
#endif
