// The generic handler of XLA's FFI: finds the kernel by its content hash, checks the call against its plan, launches.
// It runs on XLA's threads without the GIL, and while XLA records a command buffer: it allocates nothing, waits for
// nothing, and enqueues the same launch for the same attributes.
#include "xla_handler.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_runtime.h"
#include "driver.h"

enum { BUCKETS = 1024, MESSAGE_BYTES = 1024 };

typedef struct entry {
  struct entry* next;
  uint64_t key;
  int platform, check;
  void* kernel;
  char names[];
} entry;

static _Atomic(entry*) table[BUCKETS];  // entries are never removed: compiled programs hold their keys

static entry* find(uint64_t key, int platform) {
  entry* e = atomic_load_explicit(&table[key % BUCKETS], memory_order_acquire);
  while (e && (e->key != key || e->platform != platform)) e = e->next;
  return e;
}

int tfi_xla_register(uint64_t key, int platform, void* kernel, int check, const char* names, size_t names_nbytes) {
  if (find(key, platform)) return 0;
  entry* e = malloc(sizeof *e + names_nbytes);
  if (!e) return -1;
  e->key = key, e->platform = platform, e->check = check, e->kernel = kernel;
  memcpy(e->names, names, names_nbytes);
  e->next = atomic_load_explicit(&table[key % BUCKETS], memory_order_relaxed);
  atomic_store_explicit(&table[key % BUCKETS], e, memory_order_release);
  return 0;
}

typedef struct {
  tfi_xla_frame* frame;
  const entry* kernel;
  const char* plan;
  size_t count;  // of kernel parameters
  const uint32_t* launch;
  void* pointers[TFI_XLA_MAX_PARAMETERS];
  tfi_cpu_span spans[TFI_XLA_MAX_PARAMETERS];
  int span_count;
  char numbers[TFI_XLA_MAX_NUMBERS] __attribute__((aligned(16)));
  size_t numbers_nbytes;
} call;

static tfi_xla_error* fail(const tfi_xla_frame* frame, int code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
static tfi_xla_error* fail(const tfi_xla_frame* frame, int code, const char* format, ...) {
  char message[MESSAGE_BYTES];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  tfi_xla_error_create create = {sizeof create, NULL, message, code};
  return frame->api->error_create(&create);
}

static void report(tfi_xla_metadata_extension* extension) {
  extension->metadata->api_version.major_version = 0;
  extension->metadata->api_version.minor_version = 1;
  extension->metadata->traits = TFI_XLA_COMMAND_BUFFER_COMPATIBLE;
}

static const void* attribute(const tfi_xla_frame* frame, const char* name, int type) {
  for (int64_t i = 0; i < frame->attrs.size; ++i) {
    const tfi_xla_span* found = frame->attrs.names[i];
    if (found->len == strlen(name) && !memcmp(found->ptr, name, found->len))
      return frame->attrs.types[i] == type ? frame->attrs.attrs[i] : NULL;
  }
  return NULL;
}

static const tfi_xla_array* array_of(const tfi_xla_frame* frame, const char* name, int dtype) {
  const tfi_xla_array* found = attribute(frame, name, TFI_XLA_ATTR_ARRAY);
  return found && found->dtype == dtype ? found : NULL;
}

// Reads the attributes into the call; the numbers are copied, for XLA promises no alignment.
static tfi_xla_error* read_attributes(call* c, int platform) {
  const tfi_xla_frame* frame = c->frame;
  const tfi_xla_scalar* key = attribute(frame, "kernel", TFI_XLA_ATTR_SCALAR);
  const tfi_xla_array* plan = array_of(frame, "plan", TFI_XLA_U8);
  const tfi_xla_array* numbers = array_of(frame, "numbers", TFI_XLA_U8);
  const tfi_xla_array* launch = array_of(frame, "launch", TFI_XLA_U32);
  if (!key || key->dtype != TFI_XLA_U64 || !plan || plan->size % sizeof(tfi_xla_parameter) || !numbers ||
      numbers->size > TFI_XLA_MAX_NUMBERS || !launch || launch->size != 7 ||
      plan->size / sizeof(tfi_xla_parameter) > TFI_XLA_MAX_PARAMETERS)
    return fail(frame, TFI_XLA_INVALID_ARGUMENT, "launch: attributes must be those of tenferro_interop, got others");
  uint64_t hash;
  memcpy(&hash, key->value, sizeof hash);
  c->kernel = find(hash, platform);
  if (!c->kernel)
    return fail(frame, TFI_XLA_NOT_FOUND,
                "launch: kernel %016llx must be registered in this process, got none for %s. Lower the function here "
                "once before running a program compiled elsewhere",
                (unsigned long long)hash, platform == TFI_XLA_ON_CPU ? "the CPU" : "CUDA");
  c->plan = plan->data, c->count = plan->size / sizeof(tfi_xla_parameter);
  c->launch = launch->data, c->numbers_nbytes = numbers->size;
  memcpy(c->numbers, numbers->data, numbers->size);
  return NULL;
}

static const char* parameter_name(const call* c, size_t index) {
  const char* name = c->kernel->names;
  for (size_t i = 0; i <= index; ++i) name += strlen(name) + 1;
  return name;
}

// XLA's number for a DLPack element type, 0 where it has none.
static int xla_dtype(unsigned code, unsigned bits) {
  static const int F8[] = {TFI_XLA_F8E3M4,     TFI_XLA_F8E4M3, TFI_XLA_F8E4M3B11FNUZ, TFI_XLA_F8E4M3FN,
                           TFI_XLA_F8E4M3FNUZ, TFI_XLA_F8E5M2, TFI_XLA_F8E5M2FNUZ,    TFI_XLA_F8E8M0FNU};
  int width = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : bits == 64 ? 3 : bits == 128 ? 4 : -1;
  if (width < 0) return 0;
  if (code <= 1) return width > 3 ? 0 : (code ? TFI_XLA_U8 : TFI_XLA_S8) + width;
  if (code == 2) return width < 1 || width > 3 ? 0 : TFI_XLA_F16 + width - 1;
  if (code == 4) return width == 1 ? TFI_XLA_BF16 : 0;
  if (code == 5) return width == 3 ? TFI_XLA_C64 : width == 4 ? TFI_XLA_C128 : 0;
  if (code == 6) return width == 0 ? TFI_XLA_PRED : 0;
  return code >= 7 && code <= 14 && width == 0 ? F8[code - 7] : 0;
}

// The address of an argument or result that agrees with its parameter.
static tfi_xla_error* address_of(const call* c, size_t index, const tfi_xla_parameter* p, const tfi_xla_buffers* from,
                                 int64_t position, void** address) {
  const char *kernel = c->kernel->names, *name = parameter_name(c, index);
  if (position >= from->size || from->types[position] != TFI_XLA_BUFFER)
    return fail(c->frame, TFI_XLA_INVALID_ARGUMENT, "launch: argument '%s' of kernel '%s' must be a buffer, got none",
                name, kernel);
  const tfi_xla_buffer* buffer = from->buffers[position];
  if (buffer->dtype != xla_dtype(p->code, p->bits))
    return fail(c->frame, TFI_XLA_INVALID_ARGUMENT,
                "launch: argument '%s' of kernel '%s' must have XLA's element type %d, got %d", name, kernel,
                xla_dtype(p->code, p->bits), buffer->dtype);
  uint64_t nbytes = p->bits / 8;
  for (int64_t axis = 0; axis < buffer->rank; ++axis) nbytes *= (uint64_t)buffer->dims[axis];
  if (nbytes != p->size)
    return fail(c->frame, TFI_XLA_INVALID_ARGUMENT, "launch: argument '%s' of kernel '%s' must have %llu bytes, got %llu",
                name, kernel, (unsigned long long)p->size, (unsigned long long)nbytes);
  *address = buffer->data;
  return NULL;
}

// Where the kernel finds one parameter: a slot that holds an address, or the number's bytes.
static tfi_xla_error* place(call* c, size_t index, void** slot) {
  tfi_xla_parameter p;
  void* argument = NULL;
  tfi_xla_error* error = NULL;
  memcpy(&p, c->plan + index * sizeof p, sizeof p);
  if (p.role == TFI_XLA_NUMBER) {
    if (p.size >= c->numbers_nbytes)
      return fail(c->frame, TFI_XLA_INVALID_ARGUMENT, "launch: argument '%s' of kernel '%s' must lie in its numbers, got %llu",
                  parameter_name(c, index), c->kernel->names, (unsigned long long)p.size);
    c->pointers[index] = c->numbers + p.size;
    return NULL;
  }
  if (p.role != TFI_XLA_READS) error = address_of(c, index, &p, &c->frame->rets, p.result, slot);
  if (!error && p.role != TFI_XLA_MAKES) error = address_of(c, index, &p, &c->frame->args, p.argument, &argument);
  if (error) return error;
  if (p.role == TFI_XLA_READS) *slot = argument;
  if (p.role == TFI_XLA_UPDATES && argument != *slot)
    return fail(c->frame, TFI_XLA_INTERNAL, "launch: argument '%s' of kernel '%s' must share the result's memory, got a copy",
                parameter_name(c, index), c->kernel->names);
  c->pointers[index] = slot;
  c->spans[c->span_count++] = (tfi_cpu_span){*slot, p.size, (int)index};
  return NULL;
}

static tfi_xla_error* run_on_cpu(const call* c) {
  char message[MESSAGE_BYTES];
  const uint32_t* g = c->launch;
  tfi_cpu_launch_t launch = {{g[0], g[1], g[2]}, {g[3], g[4], g[5]}, g[6], c->pointers, NULL, 0, c->kernel->check};
  if (launch.check) launch.spans = c->spans, launch.nspans = c->span_count;
  if (tfi_cpu_launch(c->kernel->kernel, &launch, message, sizeof message) == TFI_CPU_OK) return NULL;
  return fail(c->frame, TFI_XLA_INTERNAL, "launch: kernel '%s' must run without a fault, got: %s", c->kernel->names, message);
}

static tfi_xla_error* run_on_cuda(call* c) {
  const uint32_t* g = c->launch;
  tfi_xla_stream_get get = {sizeof get, NULL, c->frame->context, NULL};
  tfi_xla_error* error = c->frame->api->stream_get(&get);
  if (error) return error;
  // A kernel of a library belongs to no context: the driver takes that of the stream.
  int status = tfi_driver.launch_kernel(c->kernel->kernel, g[0], g[1], g[2], g[3], g[4], g[5], g[6], get.stream,
                                        c->pointers, NULL);
  if (!status) return NULL;
  return fail(c->frame, TFI_XLA_INTERNAL, "launch: kernel '%s' must be accepted by the driver, got CUDA error %d",
              c->kernel->names, status);
}

static tfi_xla_error* handle(tfi_xla_frame* frame, int platform) {
  call c;
  void* slots[TFI_XLA_MAX_PARAMETERS];
  if (frame->extension_start && frame->extension_start->type == TFI_XLA_EXTENSION_METADATA) {
    report((tfi_xla_metadata_extension*)frame->extension_start);  // the rest of the frame is not filled then
    return NULL;
  }
  if (frame->stage != TFI_XLA_STAGE_EXECUTE) return NULL;
  c.frame = frame, c.span_count = 0;
  tfi_xla_error* error = read_attributes(&c, platform);
  for (size_t i = 0; !error && i < c.count; ++i) error = place(&c, i, &slots[i]);
  if (error || c.launch[0] == 0) return error;  // no element to work on
  return platform == TFI_XLA_ON_CPU ? run_on_cpu(&c) : run_on_cuda(&c);
}

tfi_xla_error* tfi_xla_cpu(tfi_xla_frame* frame) { return handle(frame, TFI_XLA_ON_CPU); }
tfi_xla_error* tfi_xla_cuda(tfi_xla_frame* frame) { return handle(frame, TFI_XLA_ON_CUDA); }
