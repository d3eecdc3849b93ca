// SPDX-License-Identifier: MIT
#include "base/json_memory.h"

#include <jansson.h>
#include <stdlib.h>

static bool ended;

static void *take(size_t size)
{
  void *memory = malloc(size);
  ended = ended || !memory;
  return memory;
}

void json_memory_start(void)
{
  json_set_alloc_funcs(take, free);
}

bool json_memory_ended(void)
{
  bool was = ended;
  ended = false;
  return was;
}
