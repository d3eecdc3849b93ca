// Products of bfloat16 matrices, row-major, whose sums are float32: for generated C.
//
// BLAS knows no bfloat16. The result is cut into tiles, and the operands of each, tile by tile too,
// become float32 before BLAS multiplies them. The tiles are dealt out to the threads; what is in a
// tile, and in which order it is summed, does not depend on how many there are. A processor that
// multiplies bfloat16 itself is left to oneDNN, where that is installed (cpu_onednn.c).
#ifndef CPU_BF16_H
#define CPU_BF16_H

#include "elements.h"

enum { BF16_ROWS = 128, BF16_COLUMNS = 256, BF16_TERMS = 256 };

struct bf16_product {
  char a_is, b_is; // 't': stored transposed, 'n': not
  const bf16 *a, *b;
  bf16 *c;     // or NULL: the result is
  float *wide; // of float32
  long lda, ldb, ldc;
  int m, n, k, batch;
  long step_a, step_b, step_c;
  bool add;
};

#ifdef TPGEN_ONEDNN
// Computes it and is true; or is false, where the tiles are quicker or oneDNN does not know how.
bool multiply_by_onednn(const struct bf16_product *p);
#endif

static inline void widen(float *to, const bf16 *from, long ld, int rows, int columns)
{
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) to[i * columns + j] = bf16_to_float(from[i * ld + j]);
}

// The tile of the result that begins at row i and column j, in float32.
static inline void bf16_sums(const struct bf16_product *p, const bf16 *a, const bf16 *b,
                             float *sums, int i, int j, int rows, int columns)
{
  static _Thread_local float wide_a[BF16_ROWS * BF16_TERMS], wide_b[BF16_TERMS * BF16_COLUMNS];
  const bool ta = p->a_is == 't', tb = p->b_is == 't';
  for (int k = 0; k < p->k; k += BF16_TERMS) {
    const int terms = k + BF16_TERMS < p->k ? BF16_TERMS : p->k - k;
    widen(wide_a, ta ? a + k * p->lda + i : a + i * p->lda + k, p->lda, ta ? terms : rows,
          ta ? rows : terms);
    widen(wide_b, tb ? b + j * p->ldb + k : b + k * p->ldb + j, p->ldb, tb ? columns : terms,
          tb ? terms : columns);
    gemm_on_one_thread(p->a_is, p->b_is, sums, columns, wide_a, ta ? rows : terms, wide_b,
                       tb ? terms : columns, rows, columns, terms, k > 0 || p->add);
  }
}

static inline void bf16_tile(const struct bf16_product *p, int of, int i, int j)
{
  static _Thread_local float sums[BF16_ROWS * BF16_COLUMNS];
  const int rows = i + BF16_ROWS < p->m ? BF16_ROWS : p->m - i;
  const int columns = j + BF16_COLUMNS < p->n ? BF16_COLUMNS : p->n - j;
  const long begin = of * p->step_c + i * p->ldc + j;
  for (int y = 0; y < rows && p->add; y++)
    for (int x = 0; x < columns; x++) {
      const long at = begin + y * p->ldc + x;
      sums[y * columns + x] = p->c ? bf16_to_float(p->c[at]) : p->wide[at];
    }
  bf16_sums(p, p->a + of * p->step_a, p->b + of * p->step_b, sums, i, j, rows, columns);
  for (int y = 0; y < rows; y++)
    for (int x = 0; x < columns; x++) {
      const long at = begin + y * p->ldc + x;
      if (p->c)
        p->c[at] = float_to_bf16(sums[y * columns + x]);
      else
        p->wide[at] = sums[y * columns + x];
    }
}

static inline void multiply_by_tiles(const struct bf16_product *p)
{
  const int down = (p->m + BF16_ROWS - 1) / BF16_ROWS;
  const int across = (p->n + BF16_COLUMNS - 1) / BF16_COLUMNS;
  const int threads = threads_for((long)p->m * p->n * p->k * p->batch);
#pragma omp parallel for schedule(static) if (threads > 1)
  for (long t = 0; t < (long)p->batch * down * across; t++)
    bf16_tile(p, (int)(t / across / down), (int)(t / across % down) * BF16_ROWS,
              (int)(t % across) * BF16_COLUMNS);
}

static inline void multiply_bf16(const struct bf16_product *p)
{
#ifdef TPGEN_ONEDNN
  if (multiply_by_onednn(p)) return;
#endif
  multiply_by_tiles(p);
}

// As gemm and gemm_batch of cpu_math.h, of bfloat16.
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

// The same with a result of float32.
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

// As those of cpu_math.h, of bfloat16; c is of bfloat16, or of float32.
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
