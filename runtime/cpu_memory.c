// The memory of a program whose ranks communicate by MPI: the process's own.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "target.h"

void *target_allocate(size_t bytes, struct failure *why)
{
  enum { PAGE = 4096, HUGE = 2 << 20 };
  size_t align = bytes < HUGE ? PAGE : HUGE;
  void *memory = NULL;
  if (posix_memalign(&memory, align, bytes ? bytes : 1) != 0) {
    failed(why, "no memory for the program's %zu bytes", bytes);
    return NULL;
  }
  if (align == HUGE) madvise(memory, bytes, MADV_HUGEPAGE); // a hint; it may be refused
  memset(memory, 0, bytes);
  return memory;
}

void target_free(void *memory)
{
  free(memory);
}
