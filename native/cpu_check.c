/* Check mode: every load and store of a kernel is compared with the launch's memory and with earlier accesses.
 *
 * A region is what a kernel may touch.  Each of its 4-byte words has a shadow cell with the last write and the last
 * read; two accesses are ordered if a barrier of the block, or an operation of their warp, lies between them.
 */
#define _GNU_SOURCE
#include "cpu_check.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WORD_BYTES = 4, MODULE_REGIONS = 4 };

typedef struct {
  uint64_t block; /* counted from 1; 0 = none yet */
  const void* pc;
  unsigned barriers, warp_operations;
  unsigned short thread;
  unsigned char is_atomic;
  unsigned char bytes; /* of the word, one bit each: neighbouring halves are different objects */
} tfi_access;

typedef struct {
  tfi_access write, read;
} tfi_cell;

typedef struct {
  const char* base;
  size_t nbytes;
  const char* what;
  int argument; /* -1: not an argument */
  int is_of_block;
  tfi_cell* cells;
} tfi_region;

struct tfi_check {
  tfi_region* regions;
  int nregions;
  const char* module;
  const char *stack, *stack_end;
};

static size_t shadow_bytes(const tfi_region* region) {
  return (region->nbytes / WORD_BYTES + 2) * sizeof(tfi_cell);
}

static void add_region(tfi_check* check, const void* base, size_t nbytes, const char* what, int argument) {
  tfi_region region = {.base = base, .nbytes = nbytes, .what = what, .argument = argument};
  region.is_of_block = strstr(what, "shared") != NULL;
  /* 16 times the region, but only the pages of words that the kernel touches are ever backed. */
  region.cells = mmap(NULL, shadow_bytes(&region), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region.cells == MAP_FAILED) region.cells = NULL;
  check->regions[check->nregions++] = region;
}

typedef struct {
  const char* function;
  tfi_check* check;
} tfi_module_search;

static int holds(const struct dl_phdr_info* info, const char* address) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    const char* base = (const char*)info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && address >= base && address < base + part->p_memsz) return 1;
  }
  return 0;
}

static int add_module(struct dl_phdr_info* info, size_t nbytes, void* data) {
  (void)nbytes;
  tfi_module_search* search = data;
  if (!holds(info, search->function)) return 0;
  const char *first = (const char*)UINTPTR_MAX, *last = NULL;
  size_t shared = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    const char* base = (const char*)info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_TLS) shared = part->p_memsz;
    if (part->p_type != PT_LOAD) continue;
    if (base < first) first = base;
    if (base + part->p_memsz > last) last = base + part->p_memsz;
  }
  search->check->module = (const char*)info->dlpi_addr;
  add_region(search->check, first, (size_t)(last - first), "a module variable", -1);
  if (shared && info->dlpi_tls_data) add_region(search->check, info->dlpi_tls_data, shared, "static shared memory", -1);
  return 1;
}

static void find_stack(tfi_check* check) {
  pthread_attr_t attributes;
  void* base;
  size_t nbytes;
  if (pthread_getattr_np(pthread_self(), &attributes)) return;
  pthread_attr_getstack(&attributes, &base, &nbytes);
  pthread_attr_destroy(&attributes);
  check->stack = base;
  check->stack_end = check->stack + nbytes;
}

void tfi_cpu_check_begin(tfi_worker* w) {
  const tfi_cpu_launch_t* launch = w->launch;
  tfi_check* check = calloc(1, sizeof *check);
  if (check) check->regions = calloc((size_t)launch->nspans + MODULE_REGIONS, sizeof *check->regions);
  if (!check || !check->regions) tfi_cpu_fail(w, TFI_CPU_MEMORY, "out of memory for check mode");
  w->check = check;
  for (int i = 0; i < launch->nspans; i++)
    add_region(check, launch->spans[i].base, launch->spans[i].nbytes, "argument", launch->spans[i].argument);
  if (launch->shared_bytes) add_region(check, w->shared, launch->shared_bytes, "dynamic shared memory", -1);
  tfi_module_search search = {.function = w->blocks_fn, .check = check};
  dl_iterate_phdr(add_module, &search);
  find_stack(check);
}

void tfi_cpu_check_end(tfi_worker* w) {
  tfi_check* check = w->check;
  w->check = NULL;
  if (!check) return;
  for (int i = 0; i < check->nregions; i++)
    if (check->regions[i].cells) munmap(check->regions[i].cells, shadow_bytes(&check->regions[i]));
  free(check->regions);
  free(check);
}

static int is_on_stack(const tfi_worker* w, const char* at) {
  if (w->current_fiber < 0) return at >= w->check->stack && at < w->check->stack_end;
  const char* base = w->fibers[w->current_fiber].base;
  return at >= base && at < base + TFI_CPU_STACK_BYTES;
}

static const char* name_region(const tfi_region* region, char* text, size_t nbytes) {
  if (region->argument < 0) return region->what;
  snprintf(text, nbytes, "argument %d", region->argument);
  return text;
}

static const char* const verbs[] = {"read", "write", "atomic"};

_Noreturn static void fail_race(tfi_worker* w, const tfi_region* region, size_t offset, const char* order,
                                const tfi_access* before, const tfi_access* now) {
  char name[32];
  tfi_cpu_fail(w, TFI_CPU_CHECK,
               "data race (%s) on %s, byte offset %zu: block %llu thread %u (pc+0x%zx) and block %llu thread %u "
               "(pc+0x%zx), with no barrier between them",
               order, name_region(region, name, sizeof name), offset, (unsigned long long)before->block - 1,
               before->thread, (size_t)((const char*)before->pc - w->check->module),
               (unsigned long long)now->block - 1, now->thread,
               (size_t)((const char*)now->pc - w->check->module));
}

static int conflicts(const tfi_region* region, const tfi_access* before, const tfi_access* now) {
  if (!before->block || !(before->bytes & now->bytes)) return 0;
  if (before->block != now->block) return !region->is_of_block;
  if (before->thread == now->thread || before->barriers != now->barriers) return 0;
  int is_same_warp = before->thread / TFI_WARP_SIZE == now->thread / TFI_WARP_SIZE;
  return !(is_same_warp && before->warp_operations != now->warp_operations);
}

/* A plain read beside atomics is let pass: loops around atomicCAS begin with one. */
static void check_word(tfi_worker* w, const tfi_region* region, size_t word, int kind, const tfi_access* now) {
  tfi_cell* cell = &region->cells[word];
  size_t offset = word * WORD_BYTES;
  const char* order = kind == TFI_READ ? "read after write" : "write after write";
  int is_plain_write = kind == TFI_WRITE || !cell->write.is_atomic;
  if (is_plain_write && conflicts(region, &cell->write, now)) fail_race(w, region, offset, order, &cell->write, now);
  if (kind == TFI_WRITE && conflicts(region, &cell->read, now))
    fail_race(w, region, offset, "write after read", &cell->read, now);
  if (kind != TFI_WRITE) cell->read = *now;
  if (kind != TFI_READ) cell->write = *now;
}

static unsigned char bytes_of_word(const char* word, const char* at, size_t nbytes) {
  unsigned bytes = 0;
  for (int i = 0; i < WORD_BYTES; i++)
    if (word + i >= at && word + i < at + nbytes) bytes |= 1u << i;
  return (unsigned char)bytes;
}

static void check_race(tfi_worker* w, const tfi_region* region, const char* at, size_t nbytes, int kind,
                       tfi_access now) {
  if (!region->cells) return;
  now.barriers = w->generation;
  now.warp_operations = w->warps[now.thread / TFI_WARP_SIZE].generation;
  size_t first = (size_t)(at - region->base) / WORD_BYTES, last = (size_t)(at - region->base + nbytes - 1) / WORD_BYTES;
  for (size_t word = first; word <= last; word++) {
    now.bytes = bytes_of_word(region->base + word * WORD_BYTES, at, nbytes);
    check_word(w, region, word, kind, &now);
  }
}

static size_t distance(const tfi_region* region, const char* at) {
  if (at < region->base) return (size_t)(region->base - at);
  return at > region->base + region->nbytes ? (size_t)(at - region->base) - region->nbytes : 0;
}

_Noreturn static void fail_bounds(tfi_worker* w, const char* at, size_t nbytes, int kind, const tfi_access* now) {
  const tfi_check* check = w->check;
  const tfi_region* nearest = NULL;
  for (int i = 0; i < check->nregions; i++) {
    const tfi_region* region = &check->regions[i];
    int may_be_meant = region->argument >= 0 || !strcmp(region->what, "dynamic shared memory");
    if (may_be_meant && (!nearest || distance(region, at) < distance(nearest, at))) nearest = region;
  }
  unsigned long long block = w->block;
  size_t pc = (size_t)((const char*)now->pc - check->module);
  if (!nearest)
    tfi_cpu_fail(w, TFI_CPU_CHECK, "%s of %zu bytes at %p, which no argument holds: block %llu thread %u, pc+0x%zx",
                 verbs[kind], nbytes, (const void*)at, block, now->thread, pc);
  char name[32];
  tfi_cpu_fail(w, TFI_CPU_CHECK,
               "out-of-bounds %s of %zu bytes, %zu bytes %s %s (%zu bytes): block %llu thread %u, pc+0x%zx",
               verbs[kind], nbytes, distance(nearest, at), at < nearest->base ? "before" : "past the end of",
               name_region(nearest, name, sizeof name), nearest->nbytes, block, now->thread, pc);
}

void tfi_cpu_access(tfi_worker* w, const void* address, size_t nbytes, int kind, const void* pc, unsigned thread) {
  const char* at = address;
  int may_be_elsewhere = kind & TFI_MAY_BE_ELSEWHERE;
  kind &= ~TFI_MAY_BE_ELSEWHERE;
  if (!w->check || is_on_stack(w, at)) return;
  tfi_access now = {.block = w->block + 1, .pc = pc, .thread = (unsigned short)thread, .is_atomic = kind == TFI_ATOMIC};
  for (int i = 0; i < w->check->nregions; i++) {
    const tfi_region* region = &w->check->regions[i];
    if (at >= region->base && at + nbytes <= region->base + region->nbytes)
      return check_race(w, region, at, nbytes, kind, now);
  }
  if (!may_be_elsewhere) fail_bounds(w, at, nbytes, kind, &now);
}
