/* Turns the code addresses in a check mode message into the user's lines, by asking addr2line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_check.h"

enum { LINE_BYTES = 256 };

/* Inlined calls are listed innermost first; the first frame outside our headers is the user's. */
static int is_ours(const char* frame) {
  return !strncmp(frame, "tfi_", 4) || !strncmp(frame, "cuda_", 5) || !strncmp(frame, "cooperative_groups", 18);
}

static int ask(const char* module, unsigned long offset, char frame[LINE_BYTES]) {
  /* A module is loaded from a copy "<image>.so.<random>" that is gone by now; the image itself stays. */
  const char* suffix = strstr(module, ".so.");
  int length = suffix ? (int)(suffix - module) + 3 : (int)strlen(module);
  char command[4096 + 64];
  snprintf(command, sizeof command, "addr2line -s -i -e '%.*s' 0x%lx 2>/dev/null", length, module, offset);
  FILE* answer = popen(command, "re");
  if (!answer) return 0;
  int is_found = 0;
  while (!is_found && fgets(frame, LINE_BYTES, answer)) {
    frame[strcspn(frame, " \n")] = 0;
    is_found = frame[0] != '?' && !is_ours(frame);
  }
  pclose(answer);
  return is_found;
}

void tfi_cpu_resolve_lines(const void* blocks_fn, char* message, size_t message_nbytes) {
  Dl_info module;
  if (!dladdr(blocks_fn, &module) || strchr(module.dli_fname, '\'')) return;
  char frame[LINE_BYTES], rest[TFI_CPU_MESSAGE_BYTES];
  for (char* found = message; (found = strstr(found, "pc+0x")); found++) {
    char* end;
    unsigned long offset = strtoul(found + 3, &end, 16);
    /* The address is where the call returns to, which may be the next line. */
    if (!ask(module.dli_fname, offset - 1, frame)) continue;
    snprintf(rest, sizeof rest, "%s", end);
    snprintf(found, message_nbytes - (size_t)(found - message), "%s%s", frame, rest);
  }
}
