/* One worker per OS thread that ever ran a block: made on first use, freed when the thread ends. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_worker.h"

/* Initial-exec: the fault handler reads it, and the general model may allocate on a thread's first access. */
static __thread tfi_worker* current __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_worker(void* pointer) {
  tfi_worker* w = pointer;
  current = NULL;
  tfi_cpu_drop_signal_stack(w);
  tfi_cpu_free_fibers(w);
  free(w->shared);
  free(w);
}

static void make_key(void) { pthread_key_create(&key, free_worker); }

tfi_worker* tfi_cpu_current(void) { return current; }

tfi_worker* tfi_cpu_worker(void) {
  if (current) return current;
  pthread_once(&once, make_key);
  size_t nbytes = (sizeof(tfi_worker) + 63) & ~(size_t)63;
  tfi_worker* w = aligned_alloc(64, nbytes);
  if (!w) return NULL;
  memset(w, 0, nbytes);
  tfi_cpu_give_signal_stack(w);
  pthread_setspecific(key, w);
  return current = w;
}
