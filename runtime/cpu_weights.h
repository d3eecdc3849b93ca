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

// LANES weights as floats.
static inline lanes weights_from_bf16(const bf16 *w)
{
  const lane_bits bits = __builtin_convertvector(*(const lanes_bf16 *)w, lane_bits);
  return (lanes)(bits << 16);
}

static inline void floats_from_int8(float *restrict to, const int8_t *restrict q)
{
  for (int i = 0; i < BLOCK_NUMBERS; i++) to[i] = q[i];
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
    float number[BLOCK_NUMBERS];
    floats_from_int8(number, w[g].q);
    for (int c = 0; c < BLOCK_NUMBERS; c += LANES) {
      const lanes some = *(const lanes *)(number + c);
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

// Some weights as floats, of `width` columns of the result and `terms` terms of its sums.
struct panel {
  float at[PANEL_TERMS][PANEL_COLUMNS];
};

// A matrix of weights as it is stored, for products of k terms with n columns.
struct weights {
  const void *at;
  long n, k;
};

// Makes the panel of the columns from j on and the terms from c on.
typedef void fill_panel(struct panel *restrict p, struct weights w, long j, int width, long c,
                        int terms);

static inline void fill_from_bf16(struct panel *restrict p, struct weights w, long j, int width,
                                  long c, int terms)
{
  const bf16 *const from = (const bf16 *)w.at + j * w.k + c;
  for (int i = 0; i < width; i++)
    for (int d = 0; d < terms; d++) p->at[d][i] = bf16_to_float(from[i * w.k + d]);
}

static inline void fill_from_bf16_turned(struct panel *restrict p, struct weights w, long j,
                                         int width, long c, int terms)
{
  const bf16 *const from = (const bf16 *)w.at + c * w.n + j;
  for (int d = 0; d < terms; d++)
    for (int i = 0; i < width; i++) p->at[d][i] = bf16_to_float(from[d * w.n + i]);
}

static inline void fill_from_int8(struct panel *restrict p, struct weights w, long j, int width,
                                  long c, int terms)
{
  const long blocks = w.k / BLOCK_NUMBERS;
  for (int i = 0; i < width; i++)
    for (int d = 0; d < terms; d += BLOCK_NUMBERS) {
      const struct weight_block *const block =
          (const struct weight_block *)w.at + (j + i) * blocks + (c + d) / BLOCK_NUMBERS;
      const float scale = bf16_to_float(block->scale);
      for (int e = 0; e < BLOCK_NUMBERS; e++) p->at[d + e][i] = scale * (float)block->q[e];
    }
}

static inline void fill_from_int8_turned(struct panel *restrict p, struct weights w, long j,
                                         int width, long c, int terms)
{
  const long blocks = w.n / BLOCK_NUMBERS;
  for (int d = 0; d < terms; d++)
    for (int i = 0; i < width; i += BLOCK_NUMBERS) {
      const struct weight_block *const block =
          (const struct weight_block *)w.at + (c + d) * blocks + (j + i) / BLOCK_NUMBERS;
      const float scale = bf16_to_float(block->scale);
      for (int e = 0; e < BLOCK_NUMBERS; e++) p->at[d][i + e] = scale * (float)block->q[e];
    }
}

// Columns j to j + PANEL_COLUMNS - 1 of the result. fill: a constant for the caller.
static inline __attribute__((always_inline)) void panel_product(float *restrict out,
                                                                const float *restrict x,
                                                                struct weights w, long rows, long j,
                                                                fill_panel *fill)
{
  const int width = w.n - j < PANEL_COLUMNS ? (int)(w.n - j) : PANEL_COLUMNS;
  struct panel p;
  for (long c = 0; c < w.k; c += PANEL_TERMS) {
    const int terms = w.k - c < PANEL_TERMS ? (int)(w.k - c) : PANEL_TERMS;
    fill(&p, w, j, width, c, terms);
    tile_product(out + j, w.n, x + c, w.k, 1, p.at[0], PANEL_COLUMNS, (int)rows, width, terms,
                 c > 0);
  }
}

// ---- the products ------------------------------------------------------------------------------

// out[rows, n] = x[rows, k] w[n, k] transposed.
static inline void linear_of_bf16(float *restrict out, const float *restrict x,
                                  const bf16 *restrict w, long rows, long n, long k)
{
  if (rows > FEW_ROWS) {
#pragma omp parallel for schedule(static)
    for (long j = 0; j < n; j += PANEL_COLUMNS)
      panel_product(out, x, (struct weights){w, n, k}, rows, j, fill_from_bf16);
    return;
  }
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j++) {
#define COLUMN(m) column_bf16(out + j, x, w + j * k, m, n, k)
    FOR_FEW_ROWS(rows, COLUMN)
#undef COLUMN
  }
}

// The same of blocks: k is 32 `blocks`.
static inline void linear_of_int8(float *restrict out, const float *restrict x,
                                  const struct weight_block *restrict w, long rows, long n,
                                  long blocks)
{
  if (rows > FEW_ROWS) {
#pragma omp parallel for schedule(static)
    for (long j = 0; j < n; j += PANEL_COLUMNS)
      panel_product(out, x, (struct weights){w, n, blocks * BLOCK_NUMBERS}, rows, j,
                    fill_from_int8);
    return;
  }
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j++) {
#define COLUMN(m) column_int8(out + j, x, w + j * blocks, m, n, blocks)
    FOR_FEW_ROWS(rows, COLUMN)
#undef COLUMN
  }
}

// out[rows, n] = x[rows, k] w[k, n].
static inline void linear_of_bf16_turned(float *restrict out, const float *restrict x,
                                         const bf16 *restrict w, long rows, long n, long k)
{
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j += PANEL_COLUMNS)
    panel_product(out, x, (struct weights){w, n, k}, rows, j, fill_from_bf16_turned);
}

// The same of blocks: n is 32 `blocks`.
static inline void linear_of_int8_turned(float *restrict out, const float *restrict x,
                                         const struct weight_block *restrict w, long rows,
                                         long blocks, long k)
{
  const long n = blocks * BLOCK_NUMBERS;
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j += PANEL_COLUMNS)
    panel_product(out, x, (struct weights){w, n, k}, rows, j, fill_from_int8_turned);
}

#endif
