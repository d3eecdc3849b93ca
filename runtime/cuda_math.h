// The matrix products that generated CUDA calls, on the program's stream. Matrices are row-major
// float32.
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

#include "program.h"

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

#endif
