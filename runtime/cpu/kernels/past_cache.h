// SPDX-License-Identifier: MIT
// Copies to memory that this core does not read soon: the stores pass by the cache.
#ifndef CPU_PAST_CACHE_H
#define CPU_PAST_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

// The line that is written need not be fetched from memory, or from the core that has read it.
static inline void copy_past_cache(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
  enum { LINE = 64 };
  const size_t to_line = (LINE - (uintptr_t)to % LINE) % LINE;
  const size_t head = to_line < bytes ? to_line : bytes, lines = (bytes - head) / LINE;
  memcpy(to, from, head);
  __m128i *line = (__m128i *)((char *)to + head);
  const __m128i_u *source = (const __m128i_u *)((const char *)from + head);
  for (size_t i = 0; i < lines * (LINE / sizeof *line); i++) _mm_stream_si128(line + i, source[i]);
  _mm_sfence();
  from = source + lines * (LINE / sizeof *line);
  to = line + lines * (LINE / sizeof *line);
  bytes -= head + lines * LINE;
#endif
  memcpy(to, from, bytes);
}

#endif
