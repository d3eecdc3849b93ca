// Products of a few rows of floats and a matrix of weights as they are stored: bfloat16, or blocks
// of 8 bits. With few rows, as when tokens are generated one by one, the time is that of reading
// the weights, once. With more rows some columns at a time become floats in the cache. All sums are
// sums of floats; which ones, and in which order, does not depend on the number of threads.
#ifndef CPU_WEIGHTS_H
#define CPU_WEIGHTS_H

#include "cpu_tiles.h"
#include "weight_blocks.h"

enum {
  FEW_ROWS = 4,       // that share one reading of the weights without a copy of them
  PANEL_COLUMNS = 64, // of a copy as floats,
  PANEL_TERMS = 256   // and its rows: a multiple of BLOCK_NUMBERS
};

typedef bf16 lanes_bf16 __attribute__((vector_size(LANES * sizeof(bf16)), aligned(2), may_alias));
typedef int8_t lanes_int8 __attribute__((vector_size(LANES), aligned(1), may_alias));

// LANES weights as floats.
static inline lanes weights_from_bf16(const bf16 *w)
{
  const lane_bits bits = __builtin_convertvector(*(const lanes_bf16 *)w, lane_bits);
  return (lanes)(bits << 16);
}

static inline lanes weights_from_int8(const int8_t *q)
{
  return __builtin_convertvector(*(const lanes_int8 *)q, lanes);
}

static inline float sum_of_lanes(lanes x)
{
  float sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

// ---- few rows ----------------------------------------------------------------------------------

// One column of the result: `rows` (a constant for the caller) sums over k terms. Rows of x are k
// apart, those of the result n.
static inline __attribute__((always_inline)) void
column_bf16(float *out, const float *x, const bf16 *w, int rows, long n, long k)
{
  lanes sum[FEW_ROWS][2] = {{{0}}};
  long c = 0;
  for (; c + 2 * LANES <= k; c += 2 * LANES)
    for (int half = 0; half < 2; half++) {
      const lanes some = weights_from_bf16(w + c + half * LANES);
      for (int i = 0; i < rows; i++)
        sum[i][half] += some * *(const lanes *)(x + i * k + c + half * LANES);
    }
  for (int i = 0; i < rows; i++) {
    float rest = 0;
    for (long d = c; d < k; d++) rest += x[i * k + d] * bf16_to_float(w[d]);
    out[i * n] = sum_of_lanes(sum[i][0] + sum[i][1]) + rest;
  }
}

static inline __attribute__((always_inline)) void
column_int8(float *out, const float *x, const struct weight_block *w, int rows, long n, long blocks)
{
  const long k = blocks * BLOCK_NUMBERS;
  lanes sum[FEW_ROWS] = {{0}};
  for (long g = 0; g < blocks; g++) {
    lanes part[FEW_ROWS] = {{0}};
    for (int c = 0; c < BLOCK_NUMBERS; c += LANES) {
      const lanes some = weights_from_int8(w[g].q + c);
      for (int i = 0; i < rows; i++)
        part[i] += some * *(const lanes *)(x + i * k + g * BLOCK_NUMBERS + c);
    }
    const float scale = bf16_to_float(w[g].scale);
    for (int i = 0; i < rows; i++) sum[i] += part[i] * scale;
  }
  for (int i = 0; i < rows; i++) out[i * n] = sum_of_lanes(sum[i]);
}

// A call for each number of rows, so that the sums stay in registers.
#define FOR_FEW_ROWS(rows, call)                                                                   \
  switch (rows) {                                                                                  \
  case 1:                                                                                          \
    call(1);                                                                                       \
    break;                                                                                         \
  case 2:                                                                                          \
    call(2);                                                                                       \
    break;                                                                                         \
  case 3:                                                                                          \
    call(3);                                                                                       \
    break;                                                                                         \
  default:                                                                                         \
    call(4);                                                                                       \
    break;                                                                                         \
  }

// ---- more rows ---------------------------------------------------------------------------------

// Columns j to j + width - 1 of the result, from the weights of these columns as floats: `fill`
// makes those of `terms` terms from the first-th on.
struct panel {
  float at[PANEL_TERMS][PANEL_COLUMNS];
};

static inline void panel_from_bf16(struct panel *p, const bf16 *w, long k, int width, int terms)
{
  for (int i = 0; i < width; i++)
    for (int c = 0; c < terms; c++) p->at[c][i] = bf16_to_float(w[i * k + c]);
}

static inline void panel_from_int8(struct panel *p, const struct weight_block *w, long blocks,
                                   int width, int terms)
{
  for (int i = 0; i < width; i++)
    for (int g = 0; g < terms / BLOCK_NUMBERS; g++) {
      const struct weight_block *const block = w + i * blocks + g;
      const float scale = bf16_to_float(block->scale);
      for (int c = 0; c < BLOCK_NUMBERS; c++)
        p->at[g * BLOCK_NUMBERS + c][i] = scale * (float)block->q[c];
    }
}

// ---- the products ------------------------------------------------------------------------------

// out[rows, n] = x[rows, k] w[n, k] transposed.
static inline void linear_of_bf16(float *restrict out, const float *restrict x,
                                  const bf16 *restrict w, long rows, long n, long k)
{
  if (rows <= FEW_ROWS) {
#pragma omp parallel for schedule(static)
    for (long j = 0; j < n; j++) {
#define COLUMN(m) column_bf16(out + j, x, w + j * k, m, n, k)
      FOR_FEW_ROWS(rows, COLUMN)
#undef COLUMN
    }
    return;
  }
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j += PANEL_COLUMNS) {
    const int width = n - j < PANEL_COLUMNS ? (int)(n - j) : PANEL_COLUMNS;
    struct panel p;
    for (long c = 0; c < k; c += PANEL_TERMS) {
      const int terms = k - c < PANEL_TERMS ? (int)(k - c) : PANEL_TERMS;
      panel_from_bf16(&p, w + j * k + c, k, width, terms);
      tile_product(out + j, n, x + c, k, 1, p.at[0], PANEL_COLUMNS, (int)rows, width, terms, c > 0);
    }
  }
}

// The same of blocks: k is 32 `blocks`.
static inline void linear_of_int8(float *restrict out, const float *restrict x,
                                  const struct weight_block *restrict w, long rows, long n,
                                  long blocks)
{
  const long k = blocks * BLOCK_NUMBERS;
  if (rows <= FEW_ROWS) {
#pragma omp parallel for schedule(static)
    for (long j = 0; j < n; j++) {
#define COLUMN(m) column_int8(out + j, x, w + j * blocks, m, n, blocks)
      FOR_FEW_ROWS(rows, COLUMN)
#undef COLUMN
    }
    return;
  }
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j += PANEL_COLUMNS) {
    const int width = n - j < PANEL_COLUMNS ? (int)(n - j) : PANEL_COLUMNS;
    struct panel p;
    for (long c = 0; c < k; c += PANEL_TERMS) {
      const int terms = k - c < PANEL_TERMS ? (int)(k - c) : PANEL_TERMS;
      panel_from_int8(&p, w + j * blocks + c / BLOCK_NUMBERS, blocks, width, terms);
      tile_product(out + j, n, x + c, k, 1, p.at[0], PANEL_COLUMNS, (int)rows, width, terms, c > 0);
    }
  }
}

// out[rows, n] = x[rows, k] w[k, n]. Weights of some columns become floats, some rows at a time.
static inline void linear_of_bf16_turned(float *restrict out, const float *restrict x,
                                         const bf16 *restrict w, long rows, long n, long k)
{
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j += PANEL_COLUMNS) {
    const int width = n - j < PANEL_COLUMNS ? (int)(n - j) : PANEL_COLUMNS;
    struct panel p;
    for (long c = 0; c < k; c += PANEL_TERMS) {
      const int terms = k - c < PANEL_TERMS ? (int)(k - c) : PANEL_TERMS;
      for (int d = 0; d < terms; d++)
        for (int i = 0; i < width; i++) p.at[d][i] = bf16_to_float(w[(c + d) * n + j + i]);
      tile_product(out + j, n, x + c, k, 1, p.at[0], PANEL_COLUMNS, (int)rows, width, terms, c > 0);
    }
  }
}

// The same of blocks: n is 32 `blocks`.
static inline void linear_of_int8_turned(float *restrict out, const float *restrict x,
                                         const struct weight_block *restrict w, long rows,
                                         long blocks, long k)
{
  enum { ACROSS_BLOCKS = PANEL_COLUMNS / BLOCK_NUMBERS };
  const long n = blocks * BLOCK_NUMBERS;
#pragma omp parallel for schedule(static)
  for (long g = 0; g < blocks; g += ACROSS_BLOCKS) {
    const int some = blocks - g < ACROSS_BLOCKS ? (int)(blocks - g) : ACROSS_BLOCKS;
    struct panel p;
    for (long c = 0; c < k; c += PANEL_TERMS) {
      const int terms = k - c < PANEL_TERMS ? (int)(k - c) : PANEL_TERMS;
      for (int d = 0; d < terms; d++)
        for (int b = 0; b < some; b++) {
          const struct weight_block *const block = w + (c + d) * blocks + g + b;
          const float scale = bf16_to_float(block->scale);
          for (int i = 0; i < BLOCK_NUMBERS; i++)
            p.at[d][b * BLOCK_NUMBERS + i] = scale * (float)block->q[i];
        }
      tile_product(out + g * BLOCK_NUMBERS, n, x + c, k, 1, p.at[0], PANEL_COLUMNS, (int)rows,
                   some * BLOCK_NUMBERS, terms, c > 0);
    }
  }
}

#endif
