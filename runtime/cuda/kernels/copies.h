// SPDX-License-Identifier: MIT
// Copies within a rank's device memory on the program's stream, for generated CUDA.
#ifndef CUDA_COPIES_H
#define CUDA_COPIES_H

#include "base/box_copy.h"
#include "base/program.h"

#include <limits.h>
#include <math.h>

static inline void copy_rows(void *to, const void *from, long rows, long bytes, long to_row,
                             long from_row)
{
  if (rows == 0 || bytes == 0) return;
  CHECK_CUDA(cudaMemcpy2DAsync(to, (size_t)to_row, from, (size_t)from_row, (size_t)bytes,
                               (size_t)rows, cudaMemcpyDeviceToDevice, stream));
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

// ---- boxes -------------------------------------------------------------------------------------

// The most that fit a kernel's arguments.
enum { MOST_BOXES = 16 };
struct boxes {
  int n;
  struct box box[MOST_BOXES];
};

// Each row of blocks copies a box, in units of T.
template <class T> __global__ void copy_units(char *to, const char *from, struct boxes boxes)
{
  const struct box &b = boxes.box[blockIdx.y];
  const long run = b.bytes / (long)sizeof(T);
  long units = run;
  for (int d = 0; d < b.ndim; d++) units *= b.n[d];
  for (long i = (long)blockIdx.x * 256 + threadIdx.x; i < units; i += (long)gridDim.x * 256) {
    long at_to = b.to + i % run * (long)sizeof(T), at_from = b.from + i % run * (long)sizeof(T);
    long rest = i / run;
    for (int d = 0; d < b.ndim; d++) {
      at_to += rest % b.n[d] * b.to_step[d];
      at_from += rest % b.n[d] * b.from_step[d];
      rest /= b.n[d];
    }
    *(T *)(to + at_to) = *(const T *)(from + at_from);
  }
}

template <class T> static inline void copy_in(void *to, const void *from, const struct boxes &boxes)
{
  const long MOST = 1024; // blocks for each box
  long most = 1;
  for (int k = 0; k < boxes.n; k++) {
    long units = boxes.box[k].bytes / (long)sizeof(T);
    for (int d = 0; d < boxes.box[k].ndim; d++) units *= boxes.box[k].n[d];
    if (units > most) most = units;
  }
  const long blocks = most > MOST * 256 ? MOST : (most + 255) / 256;
  LAUNCH(copy_units<T>, dim3((unsigned)blocks, (unsigned)boxes.n), 256, stream)
  ((char *)to, (const char *)from, boxes);
  CHECK_CUDA(cudaGetLastError());
}

// Uses the widest unit to which all starts and ends are aligned.
static inline void copy_boxes(void *to, const void *from, const struct boxes &boxes)
{
  size_t all = (size_t)to | (size_t)from;
  if (boxes.n == 0) return;
  for (int k = 0; k < boxes.n; k++) {
    const struct box &b = boxes.box[k];
    all |= (size_t)(b.to | b.from | b.bytes);
    for (int d = 0; d < b.ndim; d++) all |= (size_t)(b.to_step[d] | b.from_step[d]);
  }
  if (all % 16 == 0)
    copy_in<uint4>(to, from, boxes);
  else if (all % 8 == 0)
    copy_in<uint2>(to, from, boxes);
  else if (all % 4 == 0)
    copy_in<unsigned>(to, from, boxes);
  else if (all % 2 == 0)
    copy_in<unsigned short>(to, from, boxes);
  else
    copy_in<unsigned char>(to, from, boxes);
}

// Adds a box to those that are copied together, in as many launches as needed.
static inline void add_box(struct boxes *boxes, void *to, const void *from, struct box b)
{
  boxes->box[boxes->n++] = b;
  if (boxes->n < MOST_BOXES) return;
  copy_boxes(to, from, *boxes);
  boxes->n = 0;
}

// Each row holds part[0] bytes of the first part, part[1] of the second ...; copies them to the
// parts, stored one after the other, each row by row. unpack_parts is the reverse.
static inline void pack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  struct boxes boxes;
  long of = 0, begin = 0;
  boxes.n = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; begin += part[p++])
    if (part[p])
      add_box(&boxes, to, from, {rows * begin, begin, part[p], 1, {rows}, {part[p]}, {of}});
  copy_boxes(to, from, boxes);
}

static inline void unpack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  struct boxes boxes;
  long of = 0, begin = 0;
  boxes.n = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; begin += part[p++])
    if (part[p])
      add_box(&boxes, to, from, {begin, rows * begin, part[p], 1, {rows}, {of}, {part[p]}});
  copy_boxes(to, from, boxes);
}

// Copies the box of these sizes at `first` of `from`, whose shape is `of`.
static inline void slice_box(void *to, const void *from, long element, int ndim, const long *size,
                             const long *of, const long *first)
{
  const struct within box = {size, NULL}, array = {of, first};
  struct boxes boxes;
  boxes.n = 1;
  boxes.box[0] = box_of(ndim, size, box, array, element);
  copy_boxes(to, from, boxes);
}

// The reverse: copies `from` into the box of these sizes at `first` of `to`.
static inline void put_box(void *to, const void *from, long element, int ndim, const long *size,
                           const long *of, const long *first)
{
  const struct within box = {size, NULL}, array = {of, first};
  struct boxes boxes;
  boxes.n = 1;
  boxes.box[0] = box_of(ndim, size, array, box, element);
  copy_boxes(to, from, boxes);
}

// Copies the pieces of the array `from` one after the other; unpack_pieces is the reverse.
static inline void pack_pieces(void *to, const void *from, long element, const struct pieces *p)
{
  struct boxes boxes;
  boxes.n = 0;
  for (int i = 0; i < p->n; i++) add_box(&boxes, to, from, packed(p, i, element));
  copy_boxes(to, from, boxes);
}

static inline void unpack_pieces(void *to, const void *from, long element, const struct pieces *p)
{
  struct boxes boxes;
  boxes.n = 0;
  for (int i = 0; i < p->n; i++) add_box(&boxes, to, from, unpacked(p, i, element));
  copy_boxes(to, from, boxes);
}

// ---- filling -----------------------------------------------------------------------------------

template <class T> __global__ void fill_with(T *to, long n, T value)
{
  const long i = (long)blockIdx.x * 256 + threadIdx.x;
  if (i < n) to[i] = value;
}

// Sets n elements to this value.
template <class T> static inline void fill(T *to, long n, T value)
{
  LAUNCH(fill_with<T>, (unsigned)((n + 255) / 256), 256, stream)(to, n, value);
  CHECK_CUDA(cudaGetLastError());
}

#endif
