// SPDX-License-Identifier: MIT
// Memory that a process has for itself.
#ifndef CPU_MEMORY_H
#define CPU_MEMORY_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20 };

// Zeros, at the start of a page, of a huge one where they fill it; NULL: no memory. free() frees
// it.
static inline void *own_memory(size_t bytes)
{
  const size_t page = bytes < HUGE_PAGE ? SMALL_PAGE : HUGE_PAGE;
  void *memory = NULL;
  if (posix_memalign(&memory, page, bytes ? bytes : 1) != 0) return NULL;
  if (page == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE); // a hint; it may be refused
  memset(memory, 0, bytes);
  return memory;
}

#endif
