// What generated C calls on a rank's own memory: matrix products, and copies.
// Matrices are row-major float32.
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include "boxes.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

// c[m, n] = a[m, k] b[k, n], or c += a b where `add` is true. An operand that is 't' is stored
// transposed, one that is 'n' is not; from each stored row to the next there are ld elements.
static inline void gemm(char a_is, char b_is, float *c, int ldc, const float *a, int lda,
                        const float *b, int ldb, int m, int n, int k, bool add)
{
  cblas_sgemm(CblasRowMajor, a_is == 't' ? CblasTrans : CblasNoTrans,
              b_is == 't' ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, add ? 1 : 0, c,
              ldc);
}

// As gemm for each of `batch` products, whose matrices begin `step` elements after each other's.
static inline void gemm_batch(char a_is, char b_is, float *c, int ldc, long step_c, const float *a,
                              int lda, long step_a, const float *b, int ldb, long step_b, int m,
                              int n, int k, int batch, bool add)
{
  for (int i = 0; i < batch; i++)
    gemm(a_is, b_is, c + i * step_c, ldc, a + i * step_a, lda, b + i * step_b, ldb, m, n, k, add);
}

#include "products.h"

// Copies rows of `bytes` bytes; the next one begins to_row and from_row bytes further.
static inline void copy_rows(char *to, const char *from, long rows, long bytes, long to_row,
                             long from_row)
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
