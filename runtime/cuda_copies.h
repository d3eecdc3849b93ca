// What generated CUDA copies within a rank's own device memory with, on the program's stream.
#ifndef CUDA_COPIES_H
#define CUDA_COPIES_H

#include "box_copy.h"
#include "program.h"

#include <limits.h>
#include <math.h>

static inline void copy_rows(void *to, const void *from, long rows, long bytes, long to_row,
                             long from_row)
{
  if (rows == 0 || bytes == 0) return;
  CHECK_CUDA(cudaMemcpy2DAsync(to, (size_t)to_row, from, (size_t)from_row, (size_t)bytes,
                               (size_t)rows, cudaMemcpyDeviceToDevice, stream));
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

// ---- boxes -------------------------------------------------------------------------------------

// As many as a kernel's arguments have room for.
enum { MOST_BOXES = 16 };
struct boxes {
  int n;
  struct box box[MOST_BOXES];
};

// Copies a box for each row of blocks, in units of T.
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

// By the widest units in which everything begins and ends.
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

// Boxes that are copied together, in as many launches as it takes.
static inline void add_box(struct boxes *boxes, void *to, const void *from, struct box b)
{
  boxes->box[boxes->n++] = b;
  if (boxes->n < MOST_BOXES) return;
  copy_boxes(to, from, *boxes);
  boxes->n = 0;
}

// From rows that hold part[0] bytes of the first part, part[1] of the second ... to the parts one
// after the other, each with its rows; unpack_parts is the way back.
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

// Takes the box of these sizes that begins at `first` in `from`, whose shape is `of`.
static inline void slice_box(void *to, const void *from, long element, int ndim, const long *size,
                             const long *of, const long *first)
{
  const struct within box = {size, NULL}, array = {of, first};
  struct boxes boxes;
  boxes.n = 1;
  boxes.box[0] = box_of(ndim, size, box, array, element);
  copy_boxes(to, from, boxes);
}

// The way back: `from` becomes the box of these sizes that begins at `first` in `to`.
static inline void put_box(void *to, const void *from, long element, int ndim, const long *size,
                           const long *of, const long *first)
{
  const struct within box = {size, NULL}, array = {of, first};
  struct boxes boxes;
  boxes.n = 1;
  boxes.box[0] = box_of(ndim, size, array, box, element);
  copy_boxes(to, from, boxes);
}

// The pieces of the array `from`, one after the other; unpack_pieces is the way back.
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

// n elements, all equal to this one.
template <class T> static inline void fill(T *to, long n, T value)
{
  LAUNCH(fill_with<T>, (unsigned)((n + 255) / 256), 256, stream)(to, n, value);
  CHECK_CUDA(cudaGetLastError());
}

#endif
