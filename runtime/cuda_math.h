// What generated CUDA calls on a rank's own device memory: matrix products, and moves of rows, all
// on the program's stream. Matrices are row-major float32.
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

#include "program.h"

#include <math.h>

// c[m, n] = a[m, k] b[k, n], or c += a b where `add` is true. An operand that is 't' is stored
// transposed, one that is 'n' is not; from each stored row to the next there are ld elements.
// cuBLAS takes columns first, so it computes the transposed product of the transposed operands.
static inline void gemm(char a_is, char b_is, float *c, int ldc, const float *a, int lda,
                        const float *b, int ldb, int m, int n, int k, bool add)
{
  const float one = 1, beta = add ? 1 : 0;
  CHECK_CUBLAS(cublasSgemm(cublas, b_is == 't' ? CUBLAS_OP_T : CUBLAS_OP_N,
                           a_is == 't' ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b, ldb, a, lda,
                           &beta, c, ldc));
}

// As gemm for each of `batch` products, whose matrices begin `step` elements after each other's.
static inline void gemm_batch(char a_is, char b_is, float *c, int ldc, long step_c, const float *a,
                              int lda, long step_a, const float *b, int ldb, long step_b, int m,
                              int n, int k, int batch, bool add)
{
  const float one = 1, beta = add ? 1 : 0;
  CHECK_CUBLAS(cublasSgemmStridedBatched(
      cublas, b_is == 't' ? CUBLAS_OP_T : CUBLAS_OP_N, a_is == 't' ? CUBLAS_OP_T : CUBLAS_OP_N, n,
      m, k, &one, b, ldb, step_b, a, lda, step_a, &beta, c, ldc, step_c, batch));
}

#include "products.h"

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

// From rows that hold part[0] bytes of the first part, part[1] of the second ... to the parts one
// after the other, each with its rows; unpack_parts is the way back.
static inline void pack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  long of = 0, begin = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; begin += part[p++])
    copy_rows((char *)to + rows * begin, (const char *)from + begin, rows, part[p], part[p], of);
}

static inline void unpack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  long of = 0, begin = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; begin += part[p++])
    copy_rows((char *)to + begin, (const char *)from + rows * begin, rows, part[p], of, part[p]);
}

#endif
