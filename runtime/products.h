// The products of dense matrices that generated code calls, over gemm() and gemm_batch(), which
// cpu_math.h and cuda_math.h define before they include this.
#ifndef PRODUCTS_H
#define PRODUCTS_H

// c[m, n] = a[m, k] b[k, n], all without gaps; with a t, the operand is stored transposed.
static inline void matmul_nn(float *c, const float *a, const float *b, int m, int n, int k)
{
  gemm('n', 'n', c, n, a, k, b, n, m, n, k, false);
}

static inline void matmul_nt(float *c, const float *a, const float *b, int m, int n, int k)
{
  gemm('n', 't', c, n, a, k, b, k, m, n, k, false);
}

static inline void matmul_tn(float *c, const float *a, const float *b, int m, int n, int k)
{
  gemm('t', 'n', c, n, a, m, b, n, m, n, k, false);
}

static inline void matmul_tt(float *c, const float *a, const float *b, int m, int n, int k)
{
  gemm('t', 't', c, n, a, m, b, k, m, n, k, false);
}

// The same for each of `batch` products, whose matrices begin `step` elements after each other's.
static inline void matmul_nn_batch(float *c, const float *a, const float *b, int m, int n, int k,
                                   int batch, long step_c, long step_a, long step_b)
{
  gemm_batch('n', 'n', c, n, step_c, a, k, step_a, b, n, step_b, m, n, k, batch, false);
}

static inline void matmul_nt_batch(float *c, const float *a, const float *b, int m, int n, int k,
                                   int batch, long step_c, long step_a, long step_b)
{
  gemm_batch('n', 't', c, n, step_c, a, k, step_a, b, k, step_b, m, n, k, batch, false);
}

static inline void matmul_tn_batch(float *c, const float *a, const float *b, int m, int n, int k,
                                   int batch, long step_c, long step_a, long step_b)
{
  gemm_batch('t', 'n', c, n, step_c, a, m, step_a, b, n, step_b, m, n, k, batch, false);
}

static inline void matmul_tt_batch(float *c, const float *a, const float *b, int m, int n, int k,
                                   int batch, long step_c, long step_a, long step_b)
{
  gemm_batch('t', 't', c, n, step_c, a, m, step_a, b, k, step_b, m, n, k, batch, false);
}

#endif
