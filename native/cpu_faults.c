/* Hardware faults inside a kernel become errors of its launch; all others go to the handler that was there before. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* see cpu_errors.c */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_worker.h"

enum { SIGNAL_STACK_BYTES = 64 * 1024 };

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE};
enum { NSIGNALS = sizeof fault_signals / sizeof *fault_signals };
static struct sigaction previous[NSIGNALS];
static __thread int is_chaining __attribute__((tls_model("initial-exec")));

static void fail_on_fault(tfi_worker* w, int signal_number, const siginfo_t* info) {
  unsigned long long block = w->block;
  const void* address = info->si_addr;
  if (signal_number == SIGFPE) tfi_cpu_fail(w, TFI_CPU_FAULT, "integer division by zero in block %llu", block);
  if (tfi_cpu_guard_hit(w, address))
    tfi_cpu_fail(w, TFI_CPU_FAULT, "stack overflow in block %llu: a thread has %d KiB of stack on the CPU device",
                 block, TFI_CPU_STACK_BYTES / 1024);
  if (info->si_code == SI_KERNEL) /* x86 does not tell an address beyond its 48 bits */
    tfi_cpu_fail(w, TFI_CPU_FAULT, "illegal memory access to a non-canonical address in block %llu", block);
  tfi_cpu_fail(w, TFI_CPU_FAULT, "illegal memory access to %p in block %llu", address, block);
}

static void chain(int index, siginfo_t* info, void* context) {
  const struct sigaction* old = &previous[index];
  int is_default = !(old->sa_flags & SA_SIGINFO) && (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN);
  /* faulthandler restores the handler it found, which may be ours, and raises again: the second time ends it. */
  if (is_default || is_chaining) {
    signal(info->si_signo, SIG_DFL);
    raise(info->si_signo);
    return;
  }
  is_chaining = 1;
  if (old->sa_flags & SA_SIGINFO)
    old->sa_sigaction(info->si_signo, info, context);
  else
    old->sa_handler(info->si_signo);
  is_chaining = 0;
}

static void on_fault(int signal_number, siginfo_t* info, void* context) {
  tfi_worker* w = tfi_cpu_current();
  if (w && w->in_kernel) fail_on_fault(w, signal_number, info);
  for (int i = 0; i < NSIGNALS; i++)
    if (fault_signals[i] == signal_number) chain(i, info, context);
}

static int is_ours(const struct sigaction* action) {
  return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fault;
}

static void install(int index) {
  struct sigaction action, old;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(fault_signals[index], &action, &old);
  if (!is_ours(&old)) previous[index] = old; /* another thread may have been faster */
}

/* Called at each launch: faulthandler.enable() and others may have replaced our handlers since the last one.  Who
 * takes one takes SIGSEGV, so a launch asks the kernel for that one only. */
void tfi_cpu_install_handlers(void) {
  struct sigaction current;
  sigaction(SIGSEGV, NULL, &current);
  if (is_ours(&current)) return;
  for (int i = 0; i < NSIGNALS; i++) install(i);
}

/* A stack overflow leaves no room for the handler; a thread that already has a signal stack keeps it. */
void tfi_cpu_give_signal_stack(tfi_worker* w) {
  stack_t current;
  if (sigaltstack(NULL, &current) || !(current.ss_flags & SS_DISABLE)) return;
  w->signal_stack = malloc(SIGNAL_STACK_BYTES);
  stack_t own = {.ss_sp = w->signal_stack, .ss_size = SIGNAL_STACK_BYTES};
  if (w->signal_stack) sigaltstack(&own, NULL);
}

void tfi_cpu_drop_signal_stack(tfi_worker* w) {
  stack_t current, none = {.ss_flags = SS_DISABLE};
  if (!w->signal_stack || sigaltstack(NULL, &current)) return;
  if (current.ss_sp == w->signal_stack) sigaltstack(&none, NULL);
  free(w->signal_stack);
}
