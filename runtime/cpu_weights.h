// Products of a few rows of floats and a matrix of weights as they are stored: bfloat16, or blocks
// of 8 bits. With few rows, as when tokens are generated one by one, the time is that of reading
// the weights, once. More rows go to the processor's matrix unit where it has one (cpu_amx.h); else
// some columns at a time become floats in the cache. All sums are sums of floats; which ones, and
// in which order, does not depend on the number of threads.
#ifndef CPU_WEIGHTS_H
#define CPU_WEIGHTS_H

#include "cpu_amx.h"
#include "cpu_few_rows.h"
#include "weight_blocks.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#include <string.h>

enum {
  FEW_TERMS = 8192,   // of few rows that are reordered at a time: a multiple of 4 LANES
  PANEL_COLUMNS = 64, // of a copy as floats,
  PANEL_TERMS = 256   // and its rows: a multiple of BLOCK_NUMBERS
};

// ---- few rows ----------------------------------------------------------------------------------

// Puts the even ones of each 2 LANES numbers before the odd ones, as far as there are 4 LANES. A
// register of bfloat16 then becomes two of floats without moving a number to another lane.
static inline void put_evens_first(float *restrict to, const float *restrict x, long n)
{
  const long whole = n / (4 * LANES) * (4 * LANES);
  for (long c = 0; c < whole; c += 2 * LANES)
    for (int i = 0; i < LANES; i++) {
      to[c + i] = x[c + 2 * i];
      to[c + LANES + i] = x[c + 2 * i + 1];
    }
  for (long c = whole; c < n; c++) to[c] = x[c];
}

typedef uint32_t pairs_of_bf16
    __attribute__((vector_size(LANES * sizeof(float)), aligned(2), may_alias));

// One column of the result: `rows` (a constant for the caller) sums over k terms. Rows of x, which
// is reordered, are k apart, those of the result n.
static inline __attribute__((always_inline)) void
column_bf16(float *out, const float *x, const bf16 *w, int rows, long n, long k, bool add)
{
  lanes sum[FEW_ROWS][4] = {{{0}}};
  long c = 0;
  for (; c + 4 * LANES <= k; c += 4 * LANES) {
    fetch_ahead(w + c, 4 * LANES * sizeof *w);
    for (int half = 0; half < 4; half += 2) {
      const pairs_of_bf16 both = *(const pairs_of_bf16 *)(w + c + half * LANES);
      const lanes even = (lanes)(both << 16), odd = (lanes)(both & 0xffff0000);
      for (int i = 0; i < rows; i++) {
        const float *const at = x + i * k + c + half * LANES;
        sum[i][half] += even * *(const lanes *)at;
        sum[i][half + 1] += odd * *(const lanes *)(at + LANES);
      }
    }
  }
  for (int i = 0; i < rows; i++) {
    float rest = add ? out[i * n] : 0;
    for (long d = c; d < k; d++) rest += x[i * k + d] * bf16_to_float(w[d]);
    out[i * n] = sum_of_lanes((sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3])) + rest;
  }
}

// LANES numbers as floats.
static inline lanes floats_from_int8(const int8_t *q)
{
#if defined(__AVX512F__)
  return (lanes)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)q)));
#elif defined(__AVX2__)
  return (lanes)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)q)));
#else
  float number[LANES];
  for (int i = 0; i < LANES; i++) number[i] = q[i];
  return *(lanes *)number;
#endif
}

// A block's scale in all lanes: made of four bytes, of which the scale is the lower two. So it does
// not go through a general register.
static inline lanes lanes_of_scale(const struct weight_block *w)
{
#if defined(__AVX512F__) || defined(__AVX2__)
  int bytes;
  memcpy(&bytes, w, sizeof bytes);
#endif
#if defined(__AVX512F__)
  return (lanes)_mm512_slli_epi32(_mm512_set1_epi32(bytes), 16);
#elif defined(__AVX2__)
  return (lanes)_mm256_slli_epi32(_mm256_set1_epi32(bytes), 16);
#else
  return (lanes){0} + bf16_to_float(w->scale);
#endif
}

// A block's numbers times as many terms.
static inline lanes block_product(const struct weight_block *w, const float *x)
{
  lanes sum = floats_from_int8(w->q) * *(const lanes *)x;
  for (int c = LANES; c < BLOCK_NUMBERS; c += LANES)
    sum += floats_from_int8(w->q + c) * *(const lanes *)(x + c);
  return sum * lanes_of_scale(w);
}

static inline __attribute__((always_inline)) void
column_int8(float *out, const float *x, const struct weight_block *w, int rows, long n, long blocks)
{
  const long k = blocks * BLOCK_NUMBERS;
  lanes sum[FEW_ROWS][2] = {{{0}}};
  long g = 0;
  for (; g + 2 <= blocks; g += 2) {
    fetch_ahead(w + g, 2 * sizeof *w);
    for (int i = 0; i < rows; i++)
      for (int part = 0; part < 2; part++)
        sum[i][part] += block_product(w + g + part, x + i * k + (g + part) * BLOCK_NUMBERS);
  }
  for (; g < blocks; g++)
    for (int i = 0; i < rows; i++) sum[i][0] += block_product(w + g, x + i * k + g * BLOCK_NUMBERS);
  for (int i = 0; i < rows; i++) out[i * n] = sum_of_lanes(sum[i][0] + sum[i][1]);
}

// ---- more rows ---------------------------------------------------------------------------------

// Some weights as floats, of `width` columns of the result and `terms` terms of its sums.
struct panel {
  float at[PANEL_TERMS][PANEL_COLUMNS];
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
  const struct weights stored = {w, n, k};
  if (rows > FEW_ROWS) {
    if (AMX_PRODUCT(out, x, stored, rows, bf16, 1)) return;
#pragma omp parallel for schedule(static)
    for (long j = 0; j < n; j += PANEL_COLUMNS)
      panel_product(out, x, stored, rows, j, fill_from_bf16);
    return;
  }
#pragma omp parallel
  {
    float reordered[FEW_ROWS * FEW_TERMS];
    for (long c = 0; c < k; c += FEW_TERMS) {
      const long terms = k - c < FEW_TERMS ? k - c : FEW_TERMS;
      for (long i = 0; i < rows; i++) put_evens_first(reordered + i * terms, x + i * k + c, terms);
#pragma omp for schedule(static) nowait
      for (long j = 0; j < n; j++) {
#define COLUMN(m) column_bf16(out + j, reordered, w + j * k + c, m, n, terms, c > 0)
        FOR_FEW_ROWS(rows, COLUMN)
#undef COLUMN
      }
    }
  }
}

// The same of blocks: k is 32 `blocks`.
static inline void linear_of_int8(float *restrict out, const float *restrict x,
                                  const struct weight_block *restrict w, long rows, long n,
                                  long blocks)
{
  const struct weights stored = {w, n, blocks * BLOCK_NUMBERS};
  if (rows > FEW_ROWS) {
    if (AMX_PRODUCT(out, x, stored, rows, int8, WEIGHT_PARTS)) return;
#pragma omp parallel for schedule(static)
    for (long j = 0; j < n; j += PANEL_COLUMNS)
      panel_product(out, x, stored, rows, j, fill_from_int8);
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
  const struct weights stored = {w, n, k};
  // It reads narrow strips of the matrix: that pays off with more rows than a tile has.
  if (rows > LANES && AMX_PRODUCT(out, x, stored, rows, bf16_turned, 1)) return;
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j += PANEL_COLUMNS)
    panel_product(out, x, stored, rows, j, fill_from_bf16_turned);
}

// The same of blocks: n is 32 `blocks`.
static inline void linear_of_int8_turned(float *restrict out, const float *restrict x,
                                         const struct weight_block *restrict w, long rows,
                                         long blocks, long k)
{
  const struct weights stored = {w, blocks * BLOCK_NUMBERS, k};
  if (rows > FEW_ROWS && AMX_PRODUCT(out, x, stored, rows, int8_turned, WEIGHT_PARTS)) return;
#pragma omp parallel for schedule(static)
  for (long j = 0; j < stored.n; j += PANEL_COLUMNS)
    panel_product(out, x, stored, rows, j, fill_from_int8_turned);
}

#endif
