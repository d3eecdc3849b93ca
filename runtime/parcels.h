// What travels together in one buffer, and where each part of it lies: both targets' copies into a
// buffer and out of it go by this.
#ifndef PARCELS_H
#define PARCELS_H

#include <stddef.h>

// A buffer has a chunk for each rank of a group. A parcel is some elements of a value: of each of
// `parts` chunks, which follow one another, `rows` rows of `run` elements. There they lie one after
// the other, from `place` on in the first of these chunks; in the value the parts of a row lie side
// by side, and a row begins `of` elements after the one before:
//
//   value[row * of + part * run + i]  is  buffer[part * chunk + place + row * run + i]
//
// Where the value's elements have 2 bytes and the buffer's 4, or the other way, it is bfloat16 here
// and float there. at NULL: zeros, into a buffer only.
struct parcel {
  void *at; // the first of the value's elements
  long bytes, place, parts, rows, run, of;
};

#endif
