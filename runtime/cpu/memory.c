// SPDX-License-Identifier: MIT
// The memory of a program whose ranks communicate by MPI: the process's own.
#include "base/target.h"
#include "cpu/memory.h"

void *target_allocate(size_t bytes, struct failure *why)
{
  void *memory = own_memory(bytes);
  if (!memory) failed(why, "no memory for the program's %zu bytes", bytes);
  return memory;
}

void target_free(void *memory)
{
  free(memory);
}
