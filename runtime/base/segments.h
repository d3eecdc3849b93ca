// SPDX-License-Identifier: MIT
// The layout of packed segments in a collective's buffer, for the copies of both targets into it
// and out of it.
#ifndef SEGMENTS_H
#define SEGMENTS_H

#include <stddef.h>

// A buffer has a chunk for each rank of a group. A segment is some elements of a value: `rows` rows
// of `run` elements in each of `parts` consecutive chunks. In a chunk the rows are contiguous, from
// `place` on, counted from the first of these chunks; in the value the parts of a row are side by
// side, and rows are `of` elements apart:
//
//   value[row * of + part * run + i]  is  buffer[part * chunk + place + row * run + i]
//
// If the value's elements have 2 bytes and the buffer's 4, or the reverse, one is bfloat16 and the
// other float. at NULL: zeros, into a buffer only.
struct segment {
  void *at; // the first of the value's elements
  long bytes, place, parts, rows, run, of;
};

#endif
