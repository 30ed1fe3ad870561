/* Stacks for waiting threads, and the switch between them (x86-64 and AArch64). */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu_worker.h"

enum { STACKS_PER_MAPPING = 64 };

#if defined(__x86_64__)
enum { SAVED_REGISTERS = 6 };
__asm__(
    ".text\n"
    ".hidden tfi_cpu_switch\n"
    ".globl tfi_cpu_switch\n"
    ".type tfi_cpu_switch, @function\n"
    "tfi_cpu_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size tfi_cpu_switch, .-tfi_cpu_switch\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n"
    ".hidden tfi_cpu_switch\n"
    ".globl tfi_cpu_switch\n"
    ".type tfi_cpu_switch, %function\n"
    "tfi_cpu_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size tfi_cpu_switch, .-tfi_cpu_switch\n");
#else
#error "the CPU engine has no context switch for this processor"
#endif

static void fiber_main(void) {
  for (;;) {
    tfi_worker* w = tfi_cpu_current();
    w->run_threads();
    tfi_cpu_retire_fiber(w);
  }
}

/* The first switch to a fresh stack must "return" into fiber_main with the stack aligned as after a call. */
static void make_fresh(tfi_fiber* fiber, unsigned index) {
  /* Stacks are 256 KiB apart: equal offsets would fight for the same cache sets. */
  size_t stagger = (size_t)(index * 3 % 61) * 64;
  TFI_CPU_FORGET_FRAMES(fiber->base, TFI_CPU_STACK_BYTES);
  void** top = (void**)(((uintptr_t)fiber->base + TFI_CPU_STACK_BYTES - 256 - stagger) & ~(uintptr_t)63);
#if defined(__x86_64__)
  *--top = NULL;
  *--top = (void*)fiber_main;
  for (int i = 0; i < SAVED_REGISTERS; i++) *--top = NULL;
#else
  top -= 160 / sizeof(void*);
  for (unsigned i = 0; i < 160 / sizeof(void*); i++) top[i] = NULL;
  top[11] = (void*)fiber_main; /* x30 */
#endif
  fiber->sp = top;
}

/* Guard pages only below the first stacks: each splits the mapping, and the kernel limits the number of mappings. */
static void guard_stack(tfi_worker* w, int index) {
  if (index < STACKS_PER_MAPPING) mprotect(w->fibers[index].base, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE);
}

const tfi_fiber* tfi_cpu_guard_hit(const tfi_worker* w, const void* address) {
  if (w->current_fiber < 0) return NULL;
  const tfi_fiber* fiber = &w->fibers[w->current_fiber];
  const char* at = address;
  return at >= fiber->base && at < fiber->base + sysconf(_SC_PAGESIZE) ? fiber : NULL;
}

static void add_fibers(tfi_worker* w) {
  size_t nbytes = (size_t)TFI_CPU_STACK_BYTES * STACKS_PER_MAPPING;
  int total = w->nfibers + STACKS_PER_MAPPING;
  tfi_fiber* fibers = realloc(w->fibers, (size_t)total * sizeof *fibers);
  if (fibers) w->fibers = fibers;
  short* free_fibers = realloc(w->free_fibers, (size_t)total * sizeof *free_fibers);
  if (free_fibers) w->free_fibers = free_fibers;
  if (!fibers || !free_fibers) tfi_cpu_fail(w, TFI_CPU_MEMORY, "out of memory for the stacks of a block's threads");
  char* base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) tfi_cpu_fail(w, TFI_CPU_MEMORY, "out of memory for the stacks of a block's threads");
  for (int i = total - 1; i >= w->nfibers; i--) {
    w->fibers[i].base = base + (size_t)(i - w->nfibers) * TFI_CPU_STACK_BYTES;
    make_fresh(&w->fibers[i], (unsigned)i);
    guard_stack(w, i);
    w->free_fibers[w->nfree++] = (short)i;
  }
  w->nfibers = total;
}

int tfi_cpu_take_fiber(tfi_worker* w) {
  if (!w->nfree) add_fibers(w);
  return w->free_fibers[--w->nfree];
}

/* After an error the stacks hold frames that will never be resumed. */
void tfi_cpu_reset_fibers(tfi_worker* w) {
  w->nfree = 0;
  for (int i = w->nfibers - 1; i >= 0; i--) {
    make_fresh(&w->fibers[i], (unsigned)i);
    w->free_fibers[w->nfree++] = (short)i;
  }
}

void tfi_cpu_free_fibers(tfi_worker* w) {
  size_t nbytes = (size_t)TFI_CPU_STACK_BYTES * STACKS_PER_MAPPING;
  for (int i = 0; i < w->nfibers; i += STACKS_PER_MAPPING) munmap(w->fibers[i].base, nbytes);
  free(w->fibers);
  free(w->free_fibers);
}
