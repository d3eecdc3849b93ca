// SPDX-License-Identifier: MIT
// Products of row-major bfloat16 matrices with float32 sums, for generated C.
//
// BLAS has no bfloat16, and converting operands to float32 before BLAS packs them would copy them
// twice: cpu/kernels/products.h copies them once. The result is cut into parts, one for each
// thread; the order of summation does not depend on the number of threads. On a processor with a
// matrix unit it computes the products (cpu/kernels/amx_bf16.h), and on another one with bfloat16
// instructions oneDNN, if it is installed (cpu/onednn.c).
#ifndef CPU_BF16_H
#define CPU_BF16_H

#include "base/elements.h"
#include "cpu/kernels/amx_bf16.h"
#include "cpu/kernels/products.h"

#ifdef TPGEN_ONEDNN
// Computes it and returns true; false if the parts below are faster or oneDNN does not support it.
bool multiply_by_onednn(const struct bf16_product *p);

// Whether the environment asks for oneDNN wherever it has code.
bool asked_for_onednn(void);

// Releases all that the calls above keep, of this thread in a library.
void forget_onednn(void);
#endif

// The number of columns of a bfloat16 result that are summed at a time.
enum { BF16_COLUMNS = 1024 };

// Some rows and columns of a bfloat16 result, summed in a float32 buffer.
static inline void bf16_narrow_part(const struct bf16_product *p, bf16 *c, struct stored a,
                                    struct stored b, int rows, int columns)
{
  static _Thread_local float sums[PART_ROWS * BF16_COLUMNS];
  for (int i = 0; i < rows && p->add; i++)
    for (int j = 0; j < columns; j++) sums[i * columns + j] = bf16_to_float(c[i * p->ldc + j]);
  product_on_one_thread(sums, columns, a, b, rows, columns, p->k, p->add);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) c[i * p->ldc + j] = float_to_bf16(sums[i * columns + j]);
}

// In product number `of`, rows and columns from i and j on.
static inline void bf16_part(const struct bf16_product *p, int of, int i, int j, int rows,
                             int columns)
{
  const struct stored a = {p->a + of * p->step_a, p->lda, p->a_is == 't'};
  const struct stored b = {p->b + of * p->step_b, p->ldb, p->b_is == 't'};
  const long begin = of * p->step_c + i * p->ldc + j;
  if (!p->c) {
    product_on_one_thread(p->wide + begin, p->ldc, stored_from(a, i, 0), stored_from(b, 0, j), rows,
                          columns, p->k, p->add);
    return;
  }
  for (int x = 0; x < columns; x += BF16_COLUMNS)
    for (int y = 0; y < rows; y += PART_ROWS)
      bf16_narrow_part(p, p->c + begin + y * p->ldc + x, stored_from(a, i + y, 0),
                       stored_from(b, 0, j + x), rows - y < PART_ROWS ? rows - y : PART_ROWS,
                       columns - x < BF16_COLUMNS ? columns - x : BF16_COLUMNS);
}

// Cuts each product into as many parts as there are threads; into one part if there are at least as
// many products as threads.
static inline void multiply_by_parts(const struct bf16_product *p)
{
  const int threads = threads_for((long)p->m * p->n * p->k * p->batch);
  const int parts = p->batch < threads ? threads : 1;
  const int down = parts_of_rows(p->m, p->n, parts), across = parts / down;
#pragma omp parallel for schedule(static) if (threads > 1)
  for (long t = 0; t < (long)p->batch * parts; t++) {
    const int part = (int)(t % parts);
    const int i = part_begin(p->m, down, part / across),
              j = part_begin(p->n, across, part % across);
    const int rows = part_begin(p->m, down, part / across + 1) - i;
    const int columns = part_begin(p->n, across, part % across + 1) - j;
    if (rows > 0 && columns > 0) bf16_part(p, (int)(t / parts), i, j, rows, columns);
  }
}

static inline void multiply_bf16(const struct bf16_product *p)
{
#ifdef TPGEN_ONEDNN
  if (asked_for_onednn() && multiply_by_onednn(p)) return;
#endif
#ifdef HAS_AMX
  if (multiply_by_amx(p, threads_for((long)p->m * p->n * p->k * p->batch))) return;
#endif
#ifdef TPGEN_ONEDNN
  if (multiply_by_onednn(p)) return;
#endif
  multiply_by_parts(p);
}

// Like gemm and gemm_batch of cpu/kernels/math.h, for bfloat16.
static inline void gemm_batch_bf16(char a_is, char b_is, bf16 *c, int ldc, long step_c,
                                   const bf16 *a, int lda, long step_a, const bf16 *b, int ldb,
                                   long step_b, int m, int n, int k, int batch, bool add)
{
  multiply_bf16(&(struct bf16_product){a_is, b_is, a, b, c, NULL, lda, ldb, ldc, m, n, k, batch,
                                       step_a, step_b, step_c, add});
}

static inline void gemm_bf16(char a_is, char b_is, bf16 *c, int ldc, const bf16 *a, int lda,
                             const bf16 *b, int ldb, int m, int n, int k, bool add)
{
  gemm_batch_bf16(a_is, b_is, c, ldc, 0, a, lda, 0, b, ldb, 0, m, n, k, 1, add);
}

// The same with a float32 result.
static inline void gemm_batch_bf16_f32(char a_is, char b_is, float *c, int ldc, long step_c,
                                       const bf16 *a, int lda, long step_a, const bf16 *b, int ldb,
                                       long step_b, int m, int n, int k, int batch, bool add)
{
  multiply_bf16(&(struct bf16_product){a_is, b_is, a, b, NULL, c, lda, ldb, ldc, m, n, k, batch,
                                       step_a, step_b, step_c, add});
}

static inline void gemm_bf16_f32(char a_is, char b_is, float *c, int ldc, const bf16 *a, int lda,
                                 const bf16 *b, int ldb, int m, int n, int k, bool add)
{
  gemm_batch_bf16_f32(a_is, b_is, c, ldc, 0, a, lda, 0, b, ldb, 0, m, n, k, 1, add);
}

// Like those of cpu/kernels/math.h, for bfloat16; c is bfloat16 or float32.
static inline void matmul_nn_bf16(bf16 *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16('n', 'n', c, n, a, k, b, n, m, n, k, false);
}

static inline void matmul_nt_bf16(bf16 *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16('n', 't', c, n, a, k, b, k, m, n, k, false);
}

static inline void matmul_tn_bf16(bf16 *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16('t', 'n', c, n, a, m, b, n, m, n, k, false);
}

static inline void matmul_tt_bf16(bf16 *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16('t', 't', c, n, a, m, b, k, m, n, k, false);
}

static inline void matmul_nn_bf16_f32(float *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16_f32('n', 'n', c, n, a, k, b, n, m, n, k, false);
}

static inline void matmul_nt_bf16_f32(float *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16_f32('n', 't', c, n, a, k, b, k, m, n, k, false);
}

static inline void matmul_tn_bf16_f32(float *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16_f32('t', 'n', c, n, a, m, b, n, m, n, k, false);
}

static inline void matmul_tt_bf16_f32(float *c, const bf16 *a, const bf16 *b, int m, int n, int k)
{
  gemm_bf16_f32('t', 't', c, n, a, m, b, k, m, n, k, false);
}

#endif
