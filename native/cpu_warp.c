/* Warp operations: each lane leaves its part, and the last lane of the mask to arrive computes every result. */
#include <string.h>

#include "cpu_worker.h"

static void check_call_sites(tfi_worker* w, unsigned base, const tfi_warp* warp, unsigned lanes) {
  unsigned first = (unsigned)__builtin_ctz(lanes);
  const tfi_warp_call* expected = &warp->call[first];
  for (unsigned rest = lanes & (lanes - 1); rest; rest &= rest - 1) {
    unsigned lane = (unsigned)__builtin_ctz(rest);
    const tfi_warp_call* call = &warp->call[lane];
    if (call->kind == TFI_WARP_SYNC && expected->kind == TFI_WARP_SYNC) continue; /* hardware lets these meet */
    if (call->line == expected->line && call->kind == expected->kind) continue;
    tfi_cpu_fail(w, TFI_CPU_WARP, "warp operation mixes call sites: thread %u at line %d and thread %u at line %d",
                 base + first, expected->line, base + lane, call->line);
  }
}

static unsigned ballot(const tfi_warp* warp, unsigned lanes) {
  unsigned votes = 0;
  for (; lanes; lanes &= lanes - 1) {
    unsigned lane = (unsigned)__builtin_ctz(lanes);
    int predicate = 0;
    if (warp->call[lane].kind == TFI_WARP_BALLOT) memcpy(&predicate, warp->slot[lane], sizeof predicate);
    if (predicate) votes |= 1u << lane;
  }
  return votes;
}

static void give_result(const tfi_warp* warp, unsigned lanes, unsigned votes, const tfi_warp_call* call) {
  if (call->kind == TFI_WARP_SHUFFLE && (lanes >> call->source & 1))
    memcpy(call->out, warp->slot[call->source], call->nbytes);
  else if (call->kind == TFI_WARP_BALLOT)
    memcpy(call->out, &votes, sizeof votes);
  else if (call->kind == TFI_WARP_GATHER) {
    tfi_gathered* all = call->out;
    memcpy(all->value, warp->slot, sizeof all->value);
    all->lanes = lanes;
  }
}

static void release_lanes(tfi_worker* w, unsigned index, unsigned lanes) {
  tfi_warp* warp = &w->warps[index];
  unsigned base = index * TFI_WARP_SIZE, votes = ballot(warp, lanes);
  check_call_sites(w, base, warp, lanes);
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    unsigned lane = (unsigned)__builtin_ctz(rest);
    give_result(warp, lanes, votes, &warp->call[lane]);
    w->threads[base + lane].state = TFI_READY;
  }
  warp->arrived &= ~lanes;
  warp->generation++;
}

void tfi_cpu_warp(tfi_worker* w, unsigned thread, const tfi_warp_call* call) {
  tfi_cpu_note_started(w, thread);
  unsigned index = thread / TFI_WARP_SIZE, lane = thread % TFI_WARP_SIZE;
  tfi_warp* warp = &w->warps[index];
  if (!(call->mask >> lane & 1))
    tfi_cpu_fail(w, TFI_CPU_WARP, "line %d: warp operation executed by lane %u which is not in its mask 0x%08x",
                 call->line, lane, call->mask);
  warp->call[lane] = *call;
  if (call->value) memcpy(warp->slot[lane], call->value, call->nbytes);
  warp->arrived |= 1u << lane;
  w->threads[thread].line = call->line;
  w->threads[thread].fiber = (short)w->current_fiber;
  unsigned needed = call->mask & warp->alive;
  if ((warp->arrived & needed) == needed)
    release_lanes(w, index, needed);
  else
    tfi_cpu_wait_in_warp(w, thread);
}

void tfi_cpu_reset_warps(tfi_worker* w, unsigned first_alive) {
  for (unsigned index = 0; index * TFI_WARP_SIZE < w->nthreads; index++) {
    unsigned base = index * TFI_WARP_SIZE, left = w->nthreads - base;
    tfi_warp* warp = &w->warps[index];
    warp->arrived = 0;
    warp->alive = left >= TFI_WARP_SIZE ? ~0u : (1u << left) - 1;
    if (first_alive >= base + TFI_WARP_SIZE)
      warp->alive = 0;
    else if (first_alive > base)
      warp->alive &= ~0u << (first_alive - base);
  }
}

/* Exited lanes count as arrived, as on hardware: their departure may complete what the others wait for. */
void tfi_cpu_leave_warp(tfi_worker* w, unsigned thread) {
  tfi_warp* warp = &w->warps[thread / TFI_WARP_SIZE];
  warp->alive &= ~(1u << thread % TFI_WARP_SIZE);
  for (unsigned waiting = warp->arrived; waiting;) {
    unsigned lane = (unsigned)__builtin_ctz(waiting), needed = warp->call[lane].mask & warp->alive;
    waiting &= ~needed;
    if ((warp->arrived & needed) == needed) release_lanes(w, thread / TFI_WARP_SIZE, needed);
  }
}
