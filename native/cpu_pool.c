/* Deals the blocks of a launch to OS threads: the caller, and helpers that sleep between launches. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu_check.h"
#include "cpu_worker.h"

enum { MAX_HELPERS = 1023, INLINE_THREADS = 4096, CHUNKS_PER_WORKER = 16 };

typedef struct {
  tfi_cpu_blocks_fn blocks;
  const tfi_cpu_launch_t* launch;
  uint64_t total, chunk;
  int64_t deadline_ns;
  _Atomic uint64_t next;
  atomic_int error;
  char message[TFI_CPU_MESSAGE_BYTES];
} tfi_job;

/* `pool.lock` guards the fields below it; `pool.turn` is held by the one launch that uses the helpers. */
static struct {
  pthread_mutex_t turn, lock;
  pthread_cond_t work, done;
  tfi_job* job;
  int nhelpers, wanted, running;
} pool;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void reset_pool(void) {
  memset(&pool, 0, sizeof pool);
  pthread_mutex_init(&pool.turn, NULL);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.work, NULL);
  pthread_cond_init(&pool.done, NULL);
}

/* A forked child has none of the helpers, and a mutex that one of them held would stay locked. */
static void set_up(void) {
  reset_pool();
  pthread_atfork(NULL, NULL, reset_pool);
}

static int affinity_count(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int worker_count(uint64_t blocks) {
  const char* text = getenv("TENFERRO_CPU_THREADS");
  int count = text && atoi(text) > 0 ? atoi(text) : affinity_count();
  if (count > MAX_HELPERS + 1) count = MAX_HELPERS + 1;
  return (uint64_t)count > blocks ? (int)blocks : count;
}

static int64_t deadline(void) {
  const char* text = getenv("TENFERRO_CPU_TIMEOUT");
  double seconds = text ? atof(text) : 0;
  if (seconds <= 0) return 0;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + (int64_t)(seconds * 1e9);
}

static void run_chunks(tfi_worker* w, tfi_job* job) {
  while (!atomic_load_explicit(&job->error, memory_order_relaxed)) {
    uint64_t first = atomic_fetch_add(&job->next, job->chunk);
    if (first >= job->total) return;
    uint64_t last = job->total - first < job->chunk ? job->total : first + job->chunk;
    job->blocks(w, job->launch, first, last);
  }
}

static void keep_first_error(tfi_job* job, tfi_worker* w) {
  int none = 0;
  if (!atomic_compare_exchange_strong(&job->error, &none, w->error)) return;
  memcpy(job->message, w->message, sizeof job->message);
}

static int has_shared(tfi_worker* w, size_t nbytes) {
  if (nbytes <= w->shared_capacity) return 1;
  free(w->shared);
  w->shared_capacity = (nbytes + 127) & ~(size_t)127;
  w->shared = aligned_alloc(128, w->shared_capacity);
  if (!w->shared) w->shared_capacity = 0;
  return w->shared != NULL;
}

static void prepare(tfi_worker* w, const tfi_job* job) {
  const unsigned* block = job->launch->block;
  w->launch = job->launch;
  w->blocks_fn = (const void*)job->blocks;
  w->nthreads = block[0] * block[1] * block[2];
  w->deadline_ns = job->deadline_ns;
  w->is_cooperative = 0;
  w->error = 0;
}

static void work(tfi_job* job) {
  tfi_worker* w = tfi_cpu_worker();
  if (!w || !has_shared(w, job->launch->shared_bytes)) {
    atomic_store(&job->error, TFI_CPU_MEMORY);
    return;
  }
  prepare(w, job);
  if (_setjmp(w->escape) == 0) {
    w->in_kernel = 1;
    run_chunks(w, job);
    w->in_kernel = 0;
  } else {
    w->in_kernel = 0;
    TFI_CPU_FORGET_FRAMES((char*)__builtin_frame_address(0) - 65536, 65536 - 512);  /* not our own locals */
    keep_first_error(job, w);
    tfi_cpu_reset_fibers(w);
  }
  tfi_cpu_check_end(w);
}

static void* helper_main(void* unused) {
  (void)unused;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (!pool.wanted) pthread_cond_wait(&pool.work, &pool.lock);
    pool.wanted--;
    tfi_job* job = pool.job;
    pthread_mutex_unlock(&pool.lock);
    work(job);
    pthread_mutex_lock(&pool.lock);
    if (--pool.running == 0) pthread_cond_signal(&pool.done);
  }
  return NULL;
}

/* Helpers take no signals but their own faults: Python's handlers belong to its main thread. */
static int start_helper(void) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigdelset(&blocked, SIGSEGV);
  sigdelset(&blocked, SIGBUS);
  sigdelset(&blocked, SIGFPE);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  int failed = pthread_create(&thread, NULL, helper_main, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) pthread_detach(thread);
  return !failed;
}

static void wake_helpers(tfi_job* job, int count) {
  pthread_mutex_lock(&pool.lock);
  while (pool.nhelpers < count && start_helper()) pool.nhelpers++;
  pool.job = job;
  pool.wanted = pool.running = count < pool.nhelpers ? count : pool.nhelpers;
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
}

/* A helper that has not woken by the time the work is gone need not wake at all. */
static void await_helpers(void) {
  pthread_mutex_lock(&pool.lock);
  pool.running -= pool.wanted;
  pool.wanted = 0;
  while (pool.running > 0) pthread_cond_wait(&pool.done, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
}

static void work_with_helpers(tfi_job* job, int workers) {
  job->chunk = job->total / ((uint64_t)workers * CHUNKS_PER_WORKER);
  if (!job->chunk) job->chunk = 1;
  pthread_mutex_lock(&pool.turn);
  wake_helpers(job, workers - 1);
  work(job);
  await_helpers();
  pthread_mutex_unlock(&pool.turn);
}

int tfi_cpu_run(tfi_cpu_blocks_fn blocks, const tfi_cpu_launch_t* launch, char* message, size_t message_nbytes) {
  pthread_once(&once, set_up);
  tfi_cpu_install_handlers();
  tfi_job job = {.blocks = blocks, .launch = launch, .deadline_ns = deadline()};
  job.total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  job.chunk = job.total;
  uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  /* Waking a helper costs more than so few threads take. */
  int is_small = job.total <= INLINE_THREADS / threads;
  int workers = is_small || launch->check ? 1 : worker_count(job.total);
  if (workers > 1)
    work_with_helpers(&job, workers);
  else
    work(&job);
  fflush(stdout);
  if (!job.error) return TFI_CPU_OK;
  snprintf(message, message_nbytes, "%s", job.message[0] ? job.message : "out of memory");
  if (launch->check) tfi_cpu_resolve_lines((const void*)blocks, message, message_nbytes);
  return job.error;
}
