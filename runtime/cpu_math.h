// What generated C calls on a rank's own memory: matrix products, and moves of rows.
// Matrices are row-major float32.
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include <cblas.h>
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

// Takes `bytes` bytes of each of the rows of `from`, from `begin` on; a row of `from` has `of`
// bytes.
static inline void slice_rows(void *to, const void *from, long rows, long bytes, long of,
                              long begin)
{
  for (long r = 0; r < rows; r++)
    memcpy((char *)to + r * bytes, (const char *)from + r * of + begin, (size_t)bytes);
}

// The way back: each of the rows of `from`, of `bytes` bytes, becomes those of `to` from `begin`
// on; a row of `to` has `of` bytes.
static inline void put_rows(void *to, const void *from, long rows, long bytes, long of, long begin)
{
  for (long r = 0; r < rows; r++)
    memcpy((char *)to + r * of + begin, (const char *)from + r * bytes, (size_t)bytes);
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

#endif
