// SPDX-License-Identifier: MIT
// Copies within a rank's memory, for generated C.
#ifndef CPU_COPIES_H
#define CPU_COPIES_H

#include "base/box_copy.h"

#include <limits.h>
#include <math.h>
#include <string.h>

// Copies rows of `bytes` bytes; the next one begins to_row and from_row bytes further. Not inline:
// a compiler that knows the sizes of the arrays, but not of a row, would warn of copies that never
// happen.
#ifdef __GNUC__
__attribute__((noinline, unused))
#endif
static void
copy_rows(char *to, const char *from, long rows, long bytes, long to_row, long from_row)
{
  // A call of memcpy for each element would take longer than the copy.
  switch (bytes) {
  case 2:
    for (long r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, 2);
    return;
  case 4:
    for (long r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, 4);
    return;
  case 8:
    for (long r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, 8);
    return;
  default:
    for (long r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, (size_t)bytes);
  }
}

// Copies `bytes` bytes of each row of `from`, from byte `begin` of the row on; a row of `from` has
// `of` bytes.
static inline void slice_rows(void *to, const void *from, long rows, long bytes, long of,
                              long begin)
{
  copy_rows(to, (const char *)from + begin, rows, bytes, bytes, of);
}

// The reverse: copies each row of `from`, of `bytes` bytes, into a row of `to`, from byte `begin`
// on; a row of `to` has `of` bytes.
static inline void put_rows(void *to, const void *from, long rows, long bytes, long of, long begin)
{
  copy_rows((char *)to + begin, from, rows, bytes, of, bytes);
}

// Each row holds part[0] bytes of the first part, part[1] of the second ...; copies them to the
// parts, stored one after the other, each row by row. unpack_parts is the reverse.
static inline void pack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  long of = 0, begin = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; p++) {
    slice_rows((char *)to + rows * begin, from, rows, part[p], of, begin);
    begin += part[p];
  }
}

static inline void unpack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  long of = 0, begin = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; p++) {
    put_rows(to, (const char *)from + rows * begin, rows, part[p], of, begin);
    begin += part[p];
  }
}

static inline void copy_dimensions(char *to, const char *from, const struct box *b, int ndim)
{
  if (ndim == 0) {
    memcpy(to, from, (size_t)b->bytes);
  } else if (ndim == 1) {
    copy_rows(to, from, b->n[0], b->bytes, b->to_step[0], b->from_step[0]);
  } else {
    for (long i = 0; i < b->n[ndim - 1]; i++)
      copy_dimensions(to + i * b->to_step[ndim - 1], from + i * b->from_step[ndim - 1], b,
                      ndim - 1);
  }
}

static inline void copy_box(void *to, const void *from, const struct box *b)
{
  copy_dimensions((char *)to + b->to, (const char *)from + b->from, b, b->ndim);
}

// Copies the box of these sizes at `first` of `from`, whose shape is `of`.
static inline void slice_box(void *to, const void *from, long element, int ndim, const long *size,
                             const long *of, const long *first)
{
  const struct box b =
      box_of(ndim, size, (struct within){size, NULL}, (struct within){of, first}, element);
  copy_box(to, from, &b);
}

// The reverse: copies `from` into the box of these sizes at `first` of `to`.
static inline void put_box(void *to, const void *from, long element, int ndim, const long *size,
                           const long *of, const long *first)
{
  const struct box b =
      box_of(ndim, size, (struct within){of, first}, (struct within){size, NULL}, element);
  copy_box(to, from, &b);
}

// Copies the pieces of the array `from` one after the other; unpack_pieces is the reverse.
static inline void pack_pieces(void *to, const void *from, long element, const struct pieces *p)
{
  for (int i = 0; i < p->n; i++) {
    const struct box b = packed(p, i, element);
    copy_box(to, from, &b);
  }
}

static inline void unpack_pieces(void *to, const void *from, long element, const struct pieces *p)
{
  for (int i = 0; i < p->n; i++) {
    const struct box b = unpacked(p, i, element);
    copy_box(to, from, &b);
  }
}

// Sets n elements of `element` bytes to this value.
static inline void fill(void *to, long n, long element, const void *value)
{
  for (long i = 0; i < n; i++) memcpy((char *)to + i * element, value, (size_t)element);
}

#endif
