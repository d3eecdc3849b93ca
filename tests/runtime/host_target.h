// What the runtime asks of its target, where a rank's memory is the test's own.
#ifndef HOST_TARGET_H
#define HOST_TARGET_H

#include <string.h>

#include "base/program.h"

void target_put(void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
}

void target_get(void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
}

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fail_msg("%s:%d: %s: %s", file, line, call, why);
  abort();
}

#endif
