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

// By all threads, if it is large.
static inline void copy_by_all(void *to, const void *from, size_t bytes)
{
  static const size_t PIECE = (size_t)1 << 18;
  if (bytes <= PIECE) {
    memcpy(to, from, bytes);
    return;
  }
  const size_t pieces = (bytes + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < pieces; i++) {
    const size_t begin = i * PIECE, n = i + 1 < pieces ? PIECE : bytes - begin;
    copy_past_cache((char *)to + begin, (const char *)from + begin, n);
  }
}

#endif
