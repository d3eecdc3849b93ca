// SPDX-License-Identifier: MIT
// Products of row-major float32 matrices, for generated C; cpu/kernels/bf16.h has those of
// bfloat16.
//
// Each product is cut into parts for the threads of the kernels. BLAS, or oneDNN if it is faster,
// computes a part on one thread: BLAS's own threads would compete with the kernels' (run.sh sets
// them to one), and oneDNN uses none if several threads run already. The parts, and so the sums to
// the bit, depend only on the number of threads.
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include <cblas.h>
#include <stdbool.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "cpu/kernels/few_rows.h"

#ifdef TPGEN_ONEDNN
// Computes it and returns true; false if BLAS is faster.
bool multiply_floats_by_onednn(char a_is, char b_is, float *c, int ldc, const float *a, int lda,
                               const float *b, int ldb, int m, int n, int k, bool add);
#endif

// Ends the job if BLAS would find no memory. Called before the threads of a product begin.
void ask_for_blas_memory(void);

// Starts the program again where OpenBLAS does not know the processor, with products that it can
// compute: before MPI, threads and output.
void take_newer_blas_core(char **argv);

static inline void gemm_on_one_thread(char a_is, char b_is, float *c, int ldc, const float *a,
                                      int lda, const float *b, int ldb, int m, int n, int k,
                                      bool add)
{
#ifdef TPGEN_ONEDNN
  if (multiply_floats_by_onednn(a_is, b_is, c, ldc, a, lda, b, ldb, m, n, k, add)) return;
#endif
  cblas_sgemm(CblasRowMajor, a_is == 't' ? CblasTrans : CblasNoTrans,
              b_is == 't' ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, add ? 1 : 0, c,
              ldc);
}

// The number of threads that pays off for so many multiply-adds.
static inline int threads_for(long products)
{
#ifdef _OPENMP
  return products < 1L << 20 ? 1 : omp_get_max_threads();
#else
  (void)products;
  return 1;
#endif
}

// The start of the i-th of `parts` parts of n rows or columns, at a multiple that is fast.
static inline int part_begin(int n, int parts, int i)
{
  enum { UNIT = 16 };
  const long each = ((long)n + (long)parts * UNIT - 1) / ((long)parts * UNIT) * UNIT;
  return each * i < n ? (int)(each * i) : n;
}

// The number of parts that the rows of a result are cut into; the columns are cut into threads /
// that number. The parts are as square as possible, and every thread has one.
static inline int parts_of_rows(int m, int n, int threads)
{
  int best = 1;
  for (int rows = 1; rows <= threads; rows++) {
    const double now = (double)m / best + (double)n / (threads / best);
    if (threads % rows == 0 && (double)m / rows + (double)n / (threads / rows) < now) best = rows;
  }
  return best;
}

// Whether the time of a product is that of reading b once, from memory.
static inline bool is_reading(char a_is, char b_is, int m, int n, int k)
{
  enum { LEAST = 1 << 18 }; // elements of b: a core's cache
  return a_is == 'n' && b_is == 't' && m > 0 && m <= FEW_ROWS && (long)n * k >= LEAST;
}

// c[m, n] = a[m, k] b[k, n], or c += a b if `add` is true. An operand 't' is stored transposed, one
// 'n' is not; ld is the distance of stored rows in elements.
static inline void gemm(char a_is, char b_is, float *c, int ldc, const float *a, int lda,
                        const float *b, int ldb, int m, int n, int k, bool add)
{
  if (is_reading(a_is, b_is, m, n, k)) {
    few_rows_product(c, ldc, a, lda, b, ldb, m, n, k, add);
    return;
  }
  ask_for_blas_memory();
  const int threads = threads_for((long)m * n * k), rows = parts_of_rows(m, n, threads);
  const int columns = threads / rows;
#pragma omp parallel for schedule(static) if (threads > 1)
  for (int part = 0; part < threads; part++) {
    const int i = part_begin(m, rows, part / columns), j = part_begin(n, columns, part % columns);
    const int here_m = part_begin(m, rows, part / columns + 1) - i;
    const int here_n = part_begin(n, columns, part % columns + 1) - j;
    if (here_m > 0 && here_n > 0)
      gemm_on_one_thread(a_is, b_is, c + (long)i * ldc + j, ldc,
                         a_is == 't' ? a + i : a + (long)i * lda, lda,
                         b_is == 't' ? b + (long)j * ldb : b + j, ldb, here_m, here_n, k, add);
  }
}

// gemm for each of `batch` products; `step` is the distance of their matrices in elements.
static inline void gemm_batch(char a_is, char b_is, float *c, int ldc, long step_c, const float *a,
                              int lda, long step_a, const float *b, int ldb, long step_b, int m,
                              int n, int k, int batch, bool add)
{
  ask_for_blas_memory();
  const int threads = threads_for((long)m * n * k * batch);
  if (batch < threads) {
    for (int i = 0; i < batch; i++)
      gemm(a_is, b_is, c + i * step_c, ldc, a + i * step_a, lda, b + i * step_b, ldb, m, n, k, add);
    return;
  }
#pragma omp parallel for schedule(static) if (threads > 1)
  for (int i = 0; i < batch; i++)
    gemm_on_one_thread(a_is, b_is, c + i * step_c, ldc, a + i * step_a, lda, b + i * step_b, ldb, m,
                       n, k, add);
}

// Without gaps: c[m, n] = a[m, k] b[k, n]; a t says that the operand is stored transposed.
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

// The same for each of `batch` products; `step` is the distance of their matrices in elements.
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

#include "cpu/kernels/bf16.h"

// Calls name the sizes of a product: matmul_nn(c, a, b, .m = 2, .n = 4, .k = 3). `step` is the
// distance of a batch's matrices in elements. gemm and gemm_batch take the leading dimension and
// the step of each matrix; they may add to c.
struct product_sizes {
  int m, n, k, batch;
  long step_c, step_a, step_b;
  bool add;
};
#define MATMUL(f, c, a, b, ...)                                                                    \
  do {                                                                                             \
    const struct product_sizes s_ = {__VA_ARGS__};                                                 \
    f(c, a, b, s_.m, s_.n, s_.k);                                                                  \
  } while (0)
#define MATMUL_BATCH(f, c, a, b, ...)                                                              \
  do {                                                                                             \
    const struct product_sizes s_ = {__VA_ARGS__};                                                 \
    f(c, a, b, s_.m, s_.n, s_.k, s_.batch, s_.step_c, s_.step_a, s_.step_b);                       \
  } while (0)
#define GEMM(f, a_is, b_is, c, ldc, a, lda, b, ldb, ...)                                           \
  do {                                                                                             \
    const struct product_sizes s_ = {__VA_ARGS__};                                                 \
    f(a_is, b_is, c, ldc, a, lda, b, ldb, s_.m, s_.n, s_.k, s_.add);                               \
  } while (0)
#define GEMM_BATCH(f, a_is, b_is, c, ldc, step_c, a, lda, step_a, b, ldb, step_b, ...)             \
  do {                                                                                             \
    const struct product_sizes s_ = {__VA_ARGS__};                                                 \
    f(a_is, b_is, c, ldc, step_c, a, lda, step_a, b, ldb, step_b, s_.m, s_.n, s_.k, s_.batch,      \
      s_.add);                                                                                     \
  } while (0)
#define matmul_nn(...)           MATMUL(matmul_nn, __VA_ARGS__)
#define matmul_nt(...)           MATMUL(matmul_nt, __VA_ARGS__)
#define matmul_tn(...)           MATMUL(matmul_tn, __VA_ARGS__)
#define matmul_tt(...)           MATMUL(matmul_tt, __VA_ARGS__)
#define matmul_nn_bf16(...)      MATMUL(matmul_nn_bf16, __VA_ARGS__)
#define matmul_nt_bf16(...)      MATMUL(matmul_nt_bf16, __VA_ARGS__)
#define matmul_tn_bf16(...)      MATMUL(matmul_tn_bf16, __VA_ARGS__)
#define matmul_tt_bf16(...)      MATMUL(matmul_tt_bf16, __VA_ARGS__)
#define matmul_nn_bf16_f32(...)  MATMUL(matmul_nn_bf16_f32, __VA_ARGS__)
#define matmul_nt_bf16_f32(...)  MATMUL(matmul_nt_bf16_f32, __VA_ARGS__)
#define matmul_tn_bf16_f32(...)  MATMUL(matmul_tn_bf16_f32, __VA_ARGS__)
#define matmul_tt_bf16_f32(...)  MATMUL(matmul_tt_bf16_f32, __VA_ARGS__)
#define matmul_nn_batch(...)     MATMUL_BATCH(matmul_nn_batch, __VA_ARGS__)
#define matmul_nt_batch(...)     MATMUL_BATCH(matmul_nt_batch, __VA_ARGS__)
#define matmul_tn_batch(...)     MATMUL_BATCH(matmul_tn_batch, __VA_ARGS__)
#define matmul_tt_batch(...)     MATMUL_BATCH(matmul_tt_batch, __VA_ARGS__)
#define gemm(...)                GEMM(gemm, __VA_ARGS__)
#define gemm_bf16(...)           GEMM(gemm_bf16, __VA_ARGS__)
#define gemm_bf16_f32(...)       GEMM(gemm_bf16_f32, __VA_ARGS__)
#define gemm_batch(...)          GEMM_BATCH(gemm_batch, __VA_ARGS__)
#define gemm_batch_bf16(...)     GEMM_BATCH(gemm_batch_bf16, __VA_ARGS__)
#define gemm_batch_bf16_f32(...) GEMM_BATCH(gemm_batch_bf16_f32, __VA_ARGS__)

#endif
