/* zeros.c: statements that set memory to zero. */
#include "kernel/kernel.h"

#include <inttypes.h>

int64_t all_bytes(int value, int rank)
{
  return elements(local_shape(value, rank)) * type_bytes(graph->value[value].type);
}

char *zeros_at_text(const char *at, int64_t bytes)
{
  return options.cuda ? text("CHECK_CUDA(cudaMemsetAsync(%s, 0, %" PRId64 ", stream));", at, bytes)
                      : text("memset(%s, 0, %" PRId64 ");", at, bytes);
}

char *zero_text(int value, int rank)
{
  return zeros_at_text(c_name(value), all_bytes(value, rank));
}
