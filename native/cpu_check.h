/* Check mode's entry points: around a launch, at each access, and for the lines in its messages. */
#ifndef TFI_CPU_CHECK_H
#define TFI_CPU_CHECK_H
#include "cpu_worker.h"

void tfi_cpu_check_begin(tfi_worker* w);
void tfi_cpu_check_end(tfi_worker* w);
void tfi_cpu_access(tfi_worker* w, const void* address, size_t nbytes, int kind, const void* pc, unsigned thread);

/* cpu_lines.c: replaces each pc+0x.. of the message by file:line, if addr2line is there to tell. */
void tfi_cpu_resolve_lines(const void* blocks_fn, char* message, size_t message_nbytes);
#endif
