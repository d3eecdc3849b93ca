/* zeros.c: statements that set memory to zero. */
#include "kernel/kernel.h"

#include <inttypes.h>

int64_t all_bytes(int value, int rank)
{
  return elements(local_shape(value, rank)) * type_bytes(graph->value[value].type);
}

char *zeros_at_text(const char *at, int64_t bytes)
{
  return fill(target_syntax()->zero_bytes, "at", at, "bytes", text("%" PRId64, bytes), NULL);
}

char *zero_text(int value, int rank)
{
  return zeros_at_text(c_name(value), all_bytes(value, rank));
}
