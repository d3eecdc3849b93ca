// SPDX-License-Identifier: MIT
// Packs and unpacks the buffers of collectives, for generated C.
#ifndef CPU_SEGMENTS_H
#define CPU_SEGMENTS_H

#include "base/elements.h"
#include "base/segments.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#include <string.h>

// Copies n elements, of to_bytes and from_bytes each; from NULL: zeros.
static inline void copy_run(void *to, long to_bytes, const void *from, long from_bytes, long n)
{
  if (!from) {
    memset(to, 0, (size_t)(n * to_bytes));
  } else if (to_bytes == from_bytes) {
    memcpy(to, from, (size_t)(n * to_bytes));
  } else if (to_bytes == sizeof(bf16)) {
    for (long i = 0; i < n; i++) ((bf16 *)to)[i] = float_to_bf16(((const float *)from)[i]);
  } else {
    for (long i = 0; i < n; i++) ((float *)to)[i] = bf16_to_float(((const bf16 *)from)[i]);
  }
}

// A buffer and the bytes of its elements.
struct segment_buffer {
  char *at;
  long bytes, chunk;
};

// Copies the elements first .. last - 1 of a segment into the buffer, or out of it.
static inline void copy_elements(struct segment_buffer b, const struct segment *p, long first,
                                 long last, int in)
{
  for (long i = first, n; i < last; i += n) {
    const long x = i % p->run, row = i / p->run % p->rows, part = i / p->run / p->rows;
    n = p->run - x < last - i ? p->run - x : last - i;
    char *there = b.at + (part * b.chunk + p->place + row * p->run + x) * b.bytes;
    char *here = p->at ? (char *)p->at + (row * p->of + part * p->run + x) * p->bytes : NULL;
    if (in)
      copy_run(there, b.bytes, here, p->bytes, n);
    else
      copy_run(here, p->bytes, there, b.bytes, n);
  }
}

// The threads share the work in pieces of this many elements.
enum { SEGMENT_PIECE = 1 << 15 };

static inline long pieces_of(const struct segment *p)
{
  return (p->parts * p->rows * p->run + SEGMENT_PIECE - 1) / SEGMENT_PIECE;
}

static inline void copy_segments(struct segment_buffer b, int n, const struct segment *p, int in)
{
  long pieces = 0;
  for (int k = 0; k < n; k++) pieces += pieces_of(&p[k]);
#pragma omp parallel for schedule(static) if (pieces > n + 4)
  for (long piece = 0; piece < pieces; piece++) {
    long before = piece;
    int k = 0;
    while (before >= pieces_of(&p[k])) before -= pieces_of(&p[k++]);
    const long all = p[k].parts * p[k].rows * p[k].run, first = before * SEGMENT_PIECE;
    const long last = first + SEGMENT_PIECE;
    copy_elements(b, &p[k], first, last < all ? last : all, in);
  }
}

// Copies n segments into the buffer at `at`, whose elements have `bytes` bytes and whose chunks
// have `chunk` elements; unpack_segments is the reverse.
static inline void pack_segments(void *at, long bytes, long chunk, int n, const struct segment *p)
{
  copy_segments((struct segment_buffer){at, bytes, chunk}, n, p, 1);
}

static inline void unpack_segments(void *at, long bytes, long chunk, int n, const struct segment *p)
{
  copy_segments((struct segment_buffer){at, bytes, chunk}, n, p, 0);
}

#endif
