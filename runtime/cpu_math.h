// The matrix products that generated C calls. Matrices are row-major float32.
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include <cblas.h>
#include <stdbool.h>

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

#endif
