// What generated CUDA calls on a rank's own device memory: matrix products, and moves of rows, all
// on the program's stream. Matrices are row-major float32 without gaps.
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

#include "program.h"

#include <math.h>

// c[m, n] = a[m, k] b[k, n], with the transposed form that is stored. cuBLAS takes columns first,
// so it computes the transposed product of the transposed operands.
static inline void matmul(cublasOperation_t a_is, cublasOperation_t b_is, float *c, const float *a,
                          const float *b, int m, int n, int k)
{
  const float one = 1, zero = 0;
  CHECK_CUBLAS(cublasSgemm(cublas, b_is, a_is, n, m, k, &one, b, b_is == CUBLAS_OP_N ? n : k, a,
                           a_is == CUBLAS_OP_N ? k : m, &zero, c, n));
}

// c[m, n] = a[m, k] b[k, n]; with a t, the operand is stored transposed.
static inline void matmul_nn(float *c, const float *a, const float *b, int m, int n, int k)
{
  matmul(CUBLAS_OP_N, CUBLAS_OP_N, c, a, b, m, n, k);
}

static inline void matmul_nt(float *c, const float *a, const float *b, int m, int n, int k)
{
  matmul(CUBLAS_OP_N, CUBLAS_OP_T, c, a, b, m, n, k);
}

static inline void matmul_tn(float *c, const float *a, const float *b, int m, int n, int k)
{
  matmul(CUBLAS_OP_T, CUBLAS_OP_N, c, a, b, m, n, k);
}

static inline void matmul_tt(float *c, const float *a, const float *b, int m, int n, int k)
{
  matmul(CUBLAS_OP_T, CUBLAS_OP_T, c, a, b, m, n, k);
}

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
