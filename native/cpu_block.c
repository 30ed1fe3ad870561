/* The threads of one block: which runs next, block barriers, and the end of the block.
 *
 * Threads run as a plain loop on the OS thread's stack until one of them waits (first_wait).  That one stays parked
 * where it is, and a fresh fiber goes on with the loop; so a kernel that never waits never switches stacks.
 */
#include "cpu_check.h"
#include "cpu_worker.h"

void tfi_cpu_begin_block(tfi_worker* w, tfi_u64 block) {
  w->block = block;
  w->current_fiber = -1;
  if (w->deadline_ns) tfi_cpu_check_deadline(w);
  /* Here and not earlier: only code of the module makes the loader give this thread the module's __shared__ arrays. */
  if (w->launch->check && !w->check) tfi_cpu_check_begin(w);
}

void tfi_cpu_first_wait(tfi_worker* w, unsigned thread, tfi_threads_fn threads) {
  w->is_cooperative = 1;
  w->run_threads = threads;
  w->main_waits = 0;
  for (unsigned t = 0; t < w->nthreads; t++) w->threads[t].state = t < thread ? TFI_DONE : TFI_UNSTARTED;
  w->alive = w->nthreads - thread;
  w->started = thread;
  w->arrived = 0;
  w->count = w->any = 0;
  w->all = 1;
  tfi_cpu_reset_warps(w, thread);
}

/* Threads start in order, so one that is seen for the first time tells that all before it have started too. */
void tfi_cpu_note_started(tfi_worker* w, unsigned thread) {
  if (thread < w->started) return;
  w->started = thread + 1;
  for (unsigned t = w->started; t-- > 0 && w->threads[t].state == TFI_UNSTARTED;) w->threads[t].state = TFI_READY;
}

static void switch_to_thread(tfi_worker* w, void** save, unsigned thread) {
  w->current_fiber = w->threads[thread].fiber;
  tfi_cpu_switch(save, w->threads[thread].sp);
}

static void switch_to_new_fiber(tfi_worker* w, void** save) {
  w->current_fiber = tfi_cpu_take_fiber(w);
  tfi_cpu_switch(save, w->fibers[w->current_fiber].sp);
}

static void switch_to_main(tfi_worker* w, void** save) {
  w->current_fiber = -1;
  tfi_cpu_switch(save, w->main_sp);
}

static int ready_in_warp(const tfi_worker* w, unsigned from) {
  unsigned base = from & ~31u;
  for (unsigned i = 1; i < TFI_WARP_SIZE; i++) {
    unsigned t = base + ((from + i) & 31);
    if (t < w->started && w->threads[t].state == TFI_READY) return (int)t;
  }
  return -1;
}

static int ready_in_block(const tfi_worker* w, unsigned from) {
  for (unsigned i = 1; i <= w->nthreads; i++) {
    unsigned t = from + i;
    if (t >= w->nthreads) t -= w->nthreads;
    if (w->threads[t].state == TFI_READY) return (int)t;
  }
  return -1;
}

/* Leaves the running context, saved through *save, for whatever of the block can run; `self` is -1 if it has ended. */
static void schedule(tfi_worker* w, void** save, int self) {
  if (w->deadline_ns) tfi_cpu_check_deadline(w);
  if (w->alive == 0 && w->main_waits) return switch_to_main(w, save);
  if (w->started < w->nthreads) return switch_to_new_fiber(w, save);
  int next = ready_in_block(w, self < 0 ? w->last_done : (unsigned)self);
  if (next < 0) tfi_cpu_fail_deadlock(w);
  if (next != self) switch_to_thread(w, save, (unsigned)next);
}

static void release_barrier(tfi_worker* w) {
  tfi_cpu_check_divergence(w);
  for (unsigned t = 0; t < w->nthreads; t++)
    if (w->threads[t].state == TFI_AT_BARRIER) w->threads[t].state = TFI_READY;
  w->votes[0] = w->count;
  w->votes[1] = w->all;
  w->votes[2] = w->any;
  w->count = w->any = 0;
  w->all = 1;
  w->arrived = 0;
  w->generation++;
}

/* Most switches of a barrier go to the next thread; its frames are cold, so the one after is fetched meanwhile. */
static void switch_to_neighbour(tfi_worker* w, unsigned thread) {
  unsigned next = thread + 1, ahead = next + 2 < w->started ? next + 2 : next;
  const char* frames = w->threads[ahead].sp;
  for (int line = 0; line < 4; line++) __builtin_prefetch(frames + 64 * line);
  switch_to_thread(w, &w->threads[thread].sp, next);
}

void tfi_cpu_barrier(tfi_worker* w, unsigned thread, int line, int predicate, int votes[3]) {
  tfi_cpu_note_started(w, thread);
  tfi_thread* self = &w->threads[thread];
  self->line = line;
  self->fiber = (short)w->current_fiber;
  self->state = TFI_AT_BARRIER;
  w->count += predicate != 0;
  w->all &= predicate != 0;
  w->any |= predicate != 0;
  if (++w->arrived == w->alive && w->started == w->nthreads)
    release_barrier(w);
  else if (thread + 1 < w->started && w->threads[thread + 1].state == TFI_READY)
    switch_to_neighbour(w, thread);
  else
    schedule(w, &self->sp, (int)thread);
  for (int i = 0; i < 3; i++) votes[i] = w->votes[i];
}

void tfi_cpu_yield(tfi_worker* w, unsigned thread) {
  tfi_cpu_note_started(w, thread);
  w->threads[thread].fiber = (short)w->current_fiber;
  w->threads[thread].state = TFI_READY;
  schedule(w, &w->threads[thread].sp, (int)thread);
}

/* A warp completes soonest when its own lanes run first. */
void tfi_cpu_wait_in_warp(tfi_worker* w, unsigned thread) {
  w->threads[thread].state = TFI_IN_WARP;
  int lane = ready_in_warp(w, thread);
  if (lane >= 0) return switch_to_thread(w, &w->threads[thread].sp, (unsigned)lane);
  schedule(w, &w->threads[thread].sp, (int)thread);
}

void tfi_cpu_thread_done(tfi_worker* w, unsigned thread) {
  tfi_cpu_note_started(w, thread);
  w->threads[thread].state = TFI_DONE;
  w->last_done = thread;
  w->alive--;
  tfi_cpu_leave_warp(w, thread);
  if (w->alive && w->arrived == w->alive && w->started == w->nthreads) release_barrier(w);
}

void tfi_cpu_retire_fiber(tfi_worker* w) {
  int self = w->current_fiber;
  w->free_fibers[w->nfree++] = (short)self;
  schedule(w, &w->fibers[self].sp, -1);
}

void tfi_cpu_finish_block(tfi_worker* w) {
  if (w->alive) {
    w->main_waits = 1;
    schedule(w, &w->main_sp, -1);
  }
  w->is_cooperative = 0;
}
