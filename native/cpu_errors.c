/* How a kernel that goes wrong ends its launch: the texts, and the way out. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* its longjmp refuses to leave a fiber, whose stack lies elsewhere */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "cpu_worker.h"

void tfi_cpu_fail(tfi_worker* w, int kind, const char* format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(w->message, sizeof w->message, format, values);
  va_end(values);
  w->error = kind;
  _longjmp(w->escape, 1);
}

static int is_waiting(const tfi_thread* thread) {
  return thread->state == TFI_AT_BARRIER || thread->state == TFI_IN_WARP;
}

void tfi_cpu_fail_deadlock(tfi_worker* w) {
  char text[400];
  int length = 0, shown = 0;
  for (unsigned t = 0; t < w->nthreads && shown < 4; t++) {
    const tfi_thread* thread = &w->threads[t];
    if (!is_waiting(thread)) continue;
    if (t && thread->state == thread[-1].state && thread->line == thread[-1].line) continue;
    const char* where = thread->state == TFI_AT_BARRIER ? "__syncthreads" : "a warp operation";
    length += snprintf(text + length, sizeof text - (size_t)length, "; thread %u.. waits in %s at line %d", t, where,
                       thread->line);
    shown++;
  }
  tfi_cpu_fail(w, TFI_CPU_DEADLOCK, "deadlock: no thread of block %llu can run%s", (unsigned long long)w->block, text);
}

void tfi_cpu_check_divergence(tfi_worker* w) {
  const tfi_thread* first = NULL;
  for (unsigned t = 0; t < w->nthreads; t++) {
    const tfi_thread* thread = &w->threads[t];
    if (thread->state != TFI_AT_BARRIER) continue;
    if (!first) first = thread;
    if (thread->line != first->line)
      tfi_cpu_fail(w, TFI_CPU_DIVERGENT,
                   "divergent __syncthreads: thread %d waits at line %d while thread %u waits at line %d",
                   (int)(first - w->threads), first->line, t, thread->line);
  }
}

void tfi_cpu_check_deadline(tfi_worker* w) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec > w->deadline_ns)
    tfi_cpu_fail(w, TFI_CPU_TIMEOUT, "the launch ran past TENFERRO_CPU_TIMEOUT in block %llu",
                 (unsigned long long)w->block);
}
