// A libcuda.so.1 that runs nothing: it answers as one GPU would, writes down what it was asked, and fails when told to.
// Kernels are not run, so memory keeps what copies put there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801 };
enum { KERNELS = 16384, PARAMETERS = 64, FAILURES = 16, CONTEXT = 0xC0, OTHER_CONTEXT = 0xC1, FIRST_FOREIGN = 0x9000 };

typedef struct { char name[128]; int count; uint64_t sizes[PARAMETERS]; unsigned granted; } kernel_t;
typedef struct { char function[48]; int status, calls; } failure_t;

static char* text;
static size_t length, room;
static int logging = 1, cold, failures;
static kernel_t kernels[KERNELS];
static int kernel_count = 1;
static failure_t failing[FAILURES];
static void* capturing;
static __thread void* contexts[16];
static __thread int depth;

static void note(const char* format, ...) {
  if (!logging) return;
  va_list list;
  if (room - length < 16384) text = realloc(text, room = 2 * room + 32768);
  va_start(list, format);
  length += (size_t)vsnprintf(text + length, room - length, format, list);
  va_end(list);
}

static int outcome(const char* function) {
  for (int i = 0; i < failures; i++)
    if (failing[i].calls && !strcmp(failing[i].function, function)) return failing[i].calls--, failing[i].status;
  return OK;
}
#define ATTEMPT int failed = failures ? outcome(__func__) : OK; if (failed) return failed

// ---- what tests call --------------------------------------------------------------------------------------------
const char* stub_log(void) { return length ? text : ""; }
void stub_clear(void) { length = 0; if (text) *text = 0; }
void stub_logging(int on) { logging = on; }
void stub_cold(int lines) { cold = lines; }  // cache lines that a launch reads, as a real one does
void stub_capture(uint64_t stream) { capturing = (void*)stream; }
void stub_fail(const char* function, int status, int calls) {
  failure_t* f = &failing[failures++ % FAILURES];
  snprintf(f->function, sizeof f->function, "%s", function);
  f->status = status, f->calls = calls;
}
static kernel_t* kernel_named(const char* name) {
  for (int i = 1; i < kernel_count; i++) if (!strcmp(kernels[i].name, name)) return &kernels[i];
  if (kernel_count == KERNELS) return NULL;
  kernel_t* k = &kernels[kernel_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  k->granted = 49152, k->count = -1;
  return k;
}
void stub_declare(const char* name, int count, const uint64_t* sizes) {
  kernel_t* k = kernel_named(name);
  k->count = count;
  memcpy(k->sizes, sizes, (size_t)count * sizeof *sizes);
}

// ---- the driver -------------------------------------------------------------------------------------------------
int cuInit(unsigned flags) { return OK; }
int cuDriverGetVersion(int* version) { return *version = 13000, OK; }
int cuGetExportTable(const void** table, const void* id) { return NOT_SUPPORTED; }  // NVRTC asks, and may be refused
int cuDeviceGetCount(int* count) { return *count = 1, OK; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, OK; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = (void*)CONTEXT, OK; }
int cuCtxGetCurrent(void** context) { return *context = depth ? contexts[depth - 1] : NULL, OK; }
int cuCtxPushCurrent(void* context) { return contexts[depth++] = context, OK; }
int cuCtxPopCurrent(void** context) { return *context = contexts[--depth], OK; }
int cuThreadExchangeStreamCaptureMode(int* mode) { return *mode = 0, OK; }

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  static const struct { int id, value; } known[] = {
    {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {10, 32},
    {75, 9}, {76, 0}, {95, 1}, {97, 232448}, {115, 1}, {120, 1},
  };
  *value = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) if (known[i].id == attribute) *value = known[i].value;
  return OK;
}

int cuStreamCreate(void** stream, unsigned flags) {
  static uint64_t next = 0x1000;
  *stream = (void*)(next += 0x10);
  return OK;
}
int cuStreamGetCtx(void* stream, void** context) {
  *context = (void*)(uintptr_t)((uint64_t)stream >= FIRST_FOREIGN && (uint64_t)stream < 0xA000 ? OTHER_CONTEXT : CONTEXT);
  return OK;
}
int cuStreamIsCapturing(void* stream, int* state) { return *state = capturing && stream == capturing, OK; }
int cuStreamSynchronize(void* stream) { ATTEMPT; note("synchronize stream=%p\n", stream); return OK; }
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  ATTEMPT; note("wait stream=%p event=%p\n", stream, event); return OK;
}
int cuEventCreate(void** event, unsigned flags) {
  static uint64_t next = 0xE000;
  *event = (void*)(next += 0x10);
  return OK;
}
int cuEventRecord(void* event, void* stream) { ATTEMPT; note("record event=%p stream=%p\n", event, stream); return OK; }
int cuEventQuery(void* event) { return OK; }
int cuEventDestroy(void* event) { return OK; }

int cuMemAllocAsync(uint64_t* address, size_t nbytes, void* stream) {
  ATTEMPT;
  *address = (uint64_t)(uintptr_t)aligned_alloc(256, (nbytes + 255) / 256 * 256);
  note("alloc nbytes=%zu stream=%p\n", nbytes, stream);
  return OK;
}
int cuMemFreeAsync(uint64_t address, void* stream) {
  ATTEMPT; free((void*)(uintptr_t)address); note("free stream=%p\n", stream); return OK;
}
int cuMemFree(uint64_t address) { ATTEMPT; free((void*)(uintptr_t)address); note("free\n"); return OK; }
static int copied(const char* what, void* to, const void* from, size_t nbytes, void* stream) {
  memmove(to, from, nbytes);
  note("%s nbytes=%zu stream=%p\n", what, nbytes, stream);
  return OK;
}
int cuMemcpyHtoDAsync(uint64_t to, const void* from, size_t nbytes, void* stream) {
  ATTEMPT; return copied("upload", (void*)to, from, nbytes, stream);
}
int cuMemcpyDtoHAsync(void* to, uint64_t from, size_t nbytes, void* stream) {
  ATTEMPT; return copied("download", to, (void*)from, nbytes, stream);
}
int cuMemcpyDtoDAsync(uint64_t to, uint64_t from, size_t nbytes, void* stream) {
  ATTEMPT; return copied("copy", (void*)to, (void*)from, nbytes, stream);
}

int cuLibraryLoadData(void** library, const void* image, void* a, void* b, unsigned c, void* d, void* e, unsigned f) {
  ATTEMPT; *library = (void*)0x11B; note("load\n"); return OK;
}
int cuLibraryUnload(void* library) { note("unload\n"); return OK; }
int cuLibraryGetModule(void** module, void* library) { return *module = library, OK; }
int cuLibraryGetKernelCount(unsigned* count, void* library) { return *count = 0, OK; }
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  ATTEMPT; *kernel = kernel_named(name); return *kernel ? OK : NOT_FOUND;
}
int cuKernelGetAttribute(int* value, int attribute, kernel_t* kernel, int device) {
  *value = attribute == 0 ? 1024 : attribute == 8 ? (int)kernel->granted : 0;
  return OK;
}
int cuKernelSetAttribute(int attribute, int value, kernel_t* kernel, int device) {
  ATTEMPT;
  if (attribute == 8) kernel->granted = (unsigned)value;
  note("grant %s shared=%d\n", kernel->name, value);
  return OK;
}
int cuKernelGetParamInfo(kernel_t* kernel, size_t index, size_t* offset, size_t* size) {
  if (kernel->count < 0) return NOT_SUPPORTED;
  if ((int)index >= kernel->count) return INVALID_VALUE;
  return *offset = 8 * index, *size = kernel->sizes[index], OK;
}
int cuGetErrorString(int status, const char** sentence) { return *sentence = "the stub was told to fail", OK; }
int cuGetErrorName(int status, const char** name) { return *name = "STUB", OK; }

static void read_lines(void) {
  static volatile char memory[1 << 20];
  for (int i = 0; i < cold; i++) (void)memory[64 * i];
}

static int launched(kernel_t* k, const unsigned* grid, const unsigned* block, unsigned shared, void* stream, void** args) {
  if (cold) read_lines();
  if (!logging) return OK;
  if (shared > k->granted) return INVALID_VALUE;
  note("launch %s stream=%p context=%p grid=%u,%u,%u block=%u,%u,%u shared=%u args=", k->name, stream,
       depth ? contexts[depth - 1] : NULL, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared);
  for (int i = 0; i < k->count; i++) {
    for (uint64_t b = 0; b < k->sizes[i]; b++) note("%02x", ((unsigned char*)args[i])[b]);
    note(i + 1 < k->count ? "|" : "");
  }
  note("\n");
  return OK;
}
int cuLaunchKernel(kernel_t* k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** args, void** extra) {
  ATTEMPT;
  return launched(k, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, args);
}

typedef struct { int id; char pad[4]; unsigned value[16]; } attribute_t;
typedef struct { unsigned grid[3], block[3], shared; void* stream; attribute_t* attributes; unsigned count; } config_t;
int cuLaunchKernelEx(const config_t* c, kernel_t* k, void** args, void** extra) {
  ATTEMPT;
  for (unsigned i = 0; i < c->count; i++) {
    const unsigned* v = c->attributes[i].value;
    note("attribute %d=%u,%u,%u\n", c->attributes[i].id, v[0], v[1], v[2]);
  }
  return launched(k, c->grid, c->block, c->shared, c->stream, args);
}

int cuGetProcAddress_v2(const char* name, void** entry, int version, uint64_t flags, int* found) {
  Dl_info here;
  dladdr((void*)cuInit, &here);
  *entry = dlsym(dlopen(here.dli_fname, RTLD_NOW), name);
  if (found) *found = *entry ? 0 : 1;
  return *entry ? OK : NOT_FOUND;
}
int cuGetProcAddress(const char* name, void** entry, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, entry, version, flags, NULL);
}
