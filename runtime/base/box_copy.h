// SPDX-License-Identifier: MIT
// Boxes of arrays, and the copy of one from array to array; both targets use it.
#ifndef BOX_COPY_H
#define BOX_COPY_H

#include <stddef.h>

enum { MAX_DIMS = 8 };

// A box of an array: its start and its sizes. In a flat buffer its elements are contiguous, from
// `at` on.
struct piece {
  long at;
  long first[MAX_DIMS], size[MAX_DIMS];
};
struct pieces {
  int ndim;
  long of[MAX_DIMS]; // the array's shape
  int n;
  const struct piece *piece;
};

// n[0] times n[1] times ... runs of `bytes` bytes. The next run along dimension d begins to_step[d]
// bytes further in the destination and from_step[d] in the source; the first begins at byte `to`
// and `from` of the arrays. The innermost dimension comes first.
struct box {
  long to, from, bytes;
  int ndim;
  long n[MAX_DIMS], to_step[MAX_DIMS], from_step[MAX_DIMS];
};

// A row-major array of elements, and the start of a box in it; NULL for `first`: at its beginning.
struct within {
  const long *of, *first;
};

// A box of `size` elements of `element` bytes each. Dimensions that are contiguous in both arrays
// become one run, or one dimension.
static inline struct box box_of(int ndim, const long *size, struct within to, struct within from,
                                long element)
{
  struct box b = {0, 0, element, 0, {0}, {0}, {0}};
  long to_step = element, from_step = element;
  for (int d = ndim - 1; d >= 0; d--) {
    const int last = b.ndim - 1;
    if (to.first) b.to += to.first[d] * to_step;
    if (from.first) b.from += from.first[d] * from_step;
    if (b.ndim == 0 && to_step == b.bytes && from_step == b.bytes) {
      b.bytes *= size[d];
    } else if (b.ndim > 0 && to_step == b.n[last] * b.to_step[last] &&
               from_step == b.n[last] * b.from_step[last]) {
      b.n[last] *= size[d];
    } else if (size[d] != 1) {
      b.n[b.ndim] = size[d];
      b.to_step[b.ndim] = to_step;
      b.from_step[b.ndim++] = from_step;
    }
    to_step *= to.of[d];
    from_step *= from.of[d];
  }
  return b;
}

// The copy of one piece from the array into the flat buffer, or back.
static inline struct box packed(const struct pieces *p, int i, long element)
{
  const struct piece *piece = &p->piece[i];
  const struct within flat = {piece->size, NULL}, array = {p->of, piece->first};
  struct box b = box_of(p->ndim, piece->size, flat, array, element);
  b.to += piece->at * element;
  return b;
}
static inline struct box unpacked(const struct pieces *p, int i, long element)
{
  const struct piece *piece = &p->piece[i];
  const struct within flat = {piece->size, NULL}, array = {p->of, piece->first};
  struct box b = box_of(p->ndim, piece->size, array, flat, element);
  b.from += piece->at * element;
  return b;
}

#endif
