// SPDX-License-Identifier: MIT
// Products of a few rows of floats and a matrix of weights as they are stored: bfloat16, or blocks
// of 8 bits. With few rows, as when tokens are generated one by one, the time is that of reading
// the weights, once. More rows go to the processor's matrix unit where it has one
// (cpu/kernels/amx.h); else some columns at a time become floats in the cache. All sums are sums of
// floats; which ones, and in which order, does not depend on the number of threads.
#ifndef CPU_WEIGHTS_H
#define CPU_WEIGHTS_H

#include "base/weight_blocks.h"
#include "cpu/kernels/amx.h"
#include "cpu/kernels/few_rows.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#include <string.h>

enum { FEW_TERMS = 8192 }; // of few rows that are reordered at a time: a multiple of 4 LANES

_Static_assert(PART_TERMS % BLOCK_NUMBERS == 0 && BLOCK_NUMBERS % STRIP == 0, "parts cut no block");

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
    fetch_row_ahead(w + c, 4 * LANES * sizeof *w);
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

// A block's scale in all lanes: made of four bytes; the lower two are the scale. So it does not go
// through a general register.
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

// Makes a strip of the columns from j on, of `width` of them, and the terms from c on, as floats: a
// row of STRIP for each term. The columns beyond `width` are not read.
typedef void fill_strip(float *restrict to, struct weights w, long j, int width, long c, int terms);

static inline void strip_of_bf16(float *restrict to, struct weights w, long j, int width, long c,
                                 int terms)
{
  turn_lines(to, STRIP, (const bf16 *)w.at + j * w.k + c, w.k, width, terms);
}

static inline void strip_of_bf16_transposed(float *restrict to, struct weights w, long j, int width,
                                            long c, int terms)
{
  copy_lines(to, STRIP, (const bf16 *)w.at + c * w.n + j, w.n, width, terms);
}

static inline void strip_of_int8(float *restrict to, struct weights w, long j, int width, long c,
                                 int terms)
{
  const long blocks = w.k / BLOCK_NUMBERS;
  for (int d = 0; d < terms; d += BLOCK_NUMBERS)
    for (int first = 0; first < STRIP; first += LANES)
      for (int part = 0; part < BLOCK_NUMBERS; part += LANES) {
        lanes row[LANES];
        for (int i = 0; i < LANES; i++) {
          const long column = j + (first + i < width ? first + i : 0);
          const struct weight_block *const block =
              (const struct weight_block *)w.at + column * blocks + (c + d) / BLOCK_NUMBERS;
          row[i] = floats_from_int8(block->q + part) * lanes_of_scale(block);
        }
        transpose_lanes(row);
        for (int i = 0; i < LANES; i++) *(lanes *)(to + (d + part + i) * STRIP + first) = row[i];
      }
}

// A strip is a part of one block of each term.
static inline void strip_of_int8_transposed(float *restrict to, struct weights w, long j, int width,
                                            long c, int terms)
{
  (void)width;
  for (int d = 0; d < terms; d++) {
    const struct weight_block *const block =
        (const struct weight_block *)w.at + (c + d) * (w.n / BLOCK_NUMBERS) + j / BLOCK_NUMBERS;
    for (int i = 0; i < STRIP; i += LANES)
      *(lanes *)(to + d * STRIP + i) =
          floats_from_int8(block->q + j % BLOCK_NUMBERS + i) * lanes_of_scale(block);
  }
}

// A panel of x: PANEL rows, or fewer, a row of the panel for each term.
static inline void panel_of_floats(float *restrict to, const float *restrict x, long ld, int rows,
                                   int terms)
{
  for (int i = 0; i < PANEL; i++)
    for (int d = 0; d < terms; d++) to[d * PANEL + i] = i < rows ? x[i * ld + d] : 0;
}

// out[rows, n] = x[rows, k] w. The terms are cut into parts, the same for any number of rows. Few
// rows are no panel: all of it would be multiplied. fill: a constant for the caller.
static inline __attribute__((always_inline)) void product_of_strips(float *restrict out,
                                                                    const float *restrict x,
                                                                    struct weights w, long rows,
                                                                    fill_strip *fill)
{
  static _Thread_local float room[PART_ROWS * PART_TERMS];
  float *const panels = room; // of the calling thread, for all of its team
#pragma omp parallel
  for (long i = 0; i < rows; i += PART_ROWS)
    for (long c = 0; c < w.k; c += PART_TERMS) {
      const int here = rows - i < PART_ROWS ? (int)(rows - i) : PART_ROWS;
      const int terms = w.k - c < PART_TERMS ? (int)(w.k - c) : PART_TERMS;
      const float *const from = x + i * w.k + c;
#pragma omp for schedule(static)
      for (int p = 0; p < here; p += PANEL)
        if (here > FEW_ROWS)
          panel_of_floats(panels + (long)p * terms, from + p * w.k, w.k,
                          here - p < PANEL ? here - p : PANEL, terms);
#pragma omp for schedule(static)
      for (long j = 0; j < w.n; j += STRIP) {
        const int width = w.n - j < STRIP ? (int)(w.n - j) : STRIP;
        float strip[PART_TERMS * STRIP], *const to = out + i * w.n + j;
        fill(strip, w, j, width, c, terms);
        if (here > FEW_ROWS)
          strip_of(to, w.n, panels, strip, here, width, terms, c > 0);
        else
          tile_product(to, w.n, from, w.k, 1, strip, STRIP, here, width, terms, c > 0);
      }
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
    product_of_strips(out, x, stored, rows, strip_of_bf16);
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
    product_of_strips(out, x, stored, rows, strip_of_int8);
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
static inline void linear_of_bf16_transposed(float *restrict out, const float *restrict x,
                                             const bf16 *restrict w, long rows, long n, long k)
{
  const struct weights stored = {w, n, k};
  // It reads narrow strips of the matrix: that pays off with more rows than a tile has.
  if (rows > LANES && AMX_PRODUCT(out, x, stored, rows, bf16_transposed, 1)) return;
  product_of_strips(out, x, stored, rows, strip_of_bf16_transposed);
}

// The same of blocks: n is 32 `blocks`.
static inline void linear_of_int8_transposed(float *restrict out, const float *restrict x,
                                             const struct weight_block *restrict w, long rows,
                                             long blocks, long k)
{
  const struct weights stored = {w, blocks * BLOCK_NUMBERS, k};
  if (rows > FEW_ROWS && AMX_PRODUCT(out, x, stored, rows, int8_transposed, WEIGHT_PARTS)) return;
  product_of_strips(out, x, stored, rows, strip_of_int8_transposed);
}

#endif
