// What generated C copies within a rank's own memory with.
#ifndef CPU_COPIES_H
#define CPU_COPIES_H

#include "box_copy.h"

#include <limits.h>
#include <math.h>
#include <string.h>

// Copies rows of `bytes` bytes; the next one begins to_row and from_row bytes further. Not inline:
// where a compiler knows the sizes of arrays, but not that of a row, it warns of copies that are
// never made.
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

// Takes `bytes` bytes of each of the rows of `from`, from `begin` on; a row of `from` has `of`
// bytes.
static inline void slice_rows(void *to, const void *from, long rows, long bytes, long of,
                              long begin)
{
  copy_rows(to, (const char *)from + begin, rows, bytes, bytes, of);
}

// The way back: each of the rows of `from`, of `bytes` bytes, becomes those of `to` from `begin`
// on; a row of `to` has `of` bytes.
static inline void put_rows(void *to, const void *from, long rows, long bytes, long of, long begin)
{
  copy_rows((char *)to + begin, from, rows, bytes, of, bytes);
}

// From rows that hold part[0] bytes of the first part, part[1] of the second ... to the parts one
// after the other, each with its rows; unpack_parts is the way back.
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

// Takes the box of these sizes that begins at `first` in `from`, whose shape is `of`.
static inline void slice_box(void *to, const void *from, long element, int ndim, const long *size,
                             const long *of, const long *first)
{
  const struct box b =
      box_of(ndim, size, (struct within){size, NULL}, (struct within){of, first}, element);
  copy_box(to, from, &b);
}

// The way back: `from` becomes the box of these sizes that begins at `first` in `to`.
static inline void put_box(void *to, const void *from, long element, int ndim, const long *size,
                           const long *of, const long *first)
{
  const struct box b =
      box_of(ndim, size, (struct within){of, first}, (struct within){size, NULL}, element);
  copy_box(to, from, &b);
}

// The pieces of the array `from`, one after the other; unpack_pieces is the way back.
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

// n elements of so many bytes, all equal to this one.
static inline void fill(void *to, long n, long element, const void *value)
{
  for (long i = 0; i < n; i++) memcpy((char *)to + i * element, value, (size_t)element);
}

#endif
