// SPDX-License-Identifier: MIT
// Tiles of bfloat16 in pairs of terms, for the products of cpu/kernels/tiles.h.
#ifndef CPU_PAIRS_H
#define CPU_PAIRS_H

#include <string.h>
#include "base/elements.h"
#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/lanes.h"

// Two terms of a sum in bfloat16, the first one in the lower half.
typedef uint32_t bf16_pair;

static inline float pair_first(bf16_pair p)
{
  return bf16_to_float((bf16)p);
}

static inline float pair_second(bf16_pair p)
{
  return bf16_to_float((bf16)(p >> 16));
}

static inline bf16_pair pair_of(bf16 first, bf16 second)
{
  return first | (bf16_pair)second << 16;
}

// ---- copies -------------------------------------------------------------------------------------

// A row of bfloat16 as pairs. In memory they are what the row is; a missing last element is zero.
static inline void pair_row(bf16_pair *restrict to, const bf16 *restrict from, int width)
{
  memcpy(to, from, (size_t)(width / 2) * sizeof *to);
  if (width % 2) to[width / 2] = pair_of(from[width - 1], 0);
}

// Packs rows of bfloat16 as pairs along the row: to[room][width / 2]. A missing second element, and
// the rows beyond the last up to `room`, are zero.
static inline void pair_along(bf16_pair *restrict to, int room, const bf16 *restrict from,
                              long step, int rows, int width)
{
  const int pairs = (width + 1) / 2;
  for (int i = 0; i < rows; i++) pair_row(to + i * pairs, from + i * step, width);
  if (rows < room) memset(to + rows * pairs, 0, (size_t)(room - rows) * (size_t)pairs * sizeof *to);
}

// The same transposed: to[width / 2][room].
static inline void pair_transposed(bf16_pair *restrict to, int room, const bf16 *restrict from,
                                   long step, int rows, int width)
{
  const int pairs = (width + 1) / 2, whole = width / 2 / LANES * LANES;
  for (int i = 0; i < room / LANES * LANES; i += LANES)
    for (int c = 0; c < whole; c += LANES) {
      lanes line[LANES] = {{0}};
      for (int x = 0; x < LANES && i + x < rows; x++)
        memcpy(&line[x], from + (i + x) * step + 2 * c, sizeof *line);
      transpose_lanes(line);
      for (int x = 0; x < LANES; x++) *(lanes *)(to + (c + x) * room + i) = line[x];
    }
  for (int c = 0; c < pairs; c++)
    for (int i = c < whole ? room / LANES * LANES : 0; i < room; i++) {
      const bf16 *const at = from + i * step + 2 * c;
      to[c * room + i] = i < rows ? pair_of(at[0], 2 * c + 1 < width ? at[1] : 0) : 0;
    }
}

// Pairs each row with the next one: to[room / 2][width].
static inline void pair_down(bf16_pair *restrict to, int room, const bf16 *restrict from, long step,
                             int rows, int width)
{
  for (int i = 0; i < room; i += 2)
    for (int c = 0; c < width; c++) {
      const bf16 *const at = from + i * step + c;
      to[i / 2 * width + c] = i < rows ? pair_of(at[0], i + 1 < rows ? at[step] : 0) : 0;
    }
}

// The same for floats, rounded, without padding rows.
static inline void pair_down_floats(bf16_pair *restrict to, const float *restrict from, int rows,
                                    int width)
{
  for (int i = 0; i < rows; i += 2) {
    int c = 0;
#ifdef __AVX512BF16__
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (; c + LANES <= width; c += LANES) {
      const float *const at = from + i * width + c;
      const __m512 next = i + 1 < rows ? _mm512_loadu_ps(at + width) : _mm512_setzero_ps();
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(next, _mm512_loadu_ps(at));
      _mm512_storeu_si512(to + i / 2 * width + c, _mm512_permutexvar_epi16(order, both));
    }
#endif
    for (; c < width; c++) {
      const float *const at = from + i * width + c;
      to[i / 2 * width + c] =
          pair_of(float_to_bf16(at[0]), i + 1 < rows ? float_to_bf16(at[width]) : 0);
    }
  }
}

// ---- products on the matrix unit ----------------------------------------------------------------

// Before and after products of a thread with tile_product_bf16: they use the matrix unit.
static inline void tile_begin(void)
{
#ifdef HAS_AMX
  if (may_use_amx()) amx_begin();
#endif
}
static inline void tile_end(void)
{
#ifdef HAS_AMX
  if (may_use_amx()) _tile_release();
#endif
}

#ifdef HAS_AMX
// The product of multiples of 16 rows, columns and pairs.
static inline void tile_whole_bf16(float *c, long step_c, const bf16_pair *a, long row,
                                   const bf16_pair *b, long step_b, int m, int n, int pairs,
                                   bool add)
{
  const int steps = pairs / TILE_ROWS;
  for (int i = 0; i < m; i += AMX_SIDE)
    for (int j = 0; j < n; j += AMX_SIDE) {
      float *const sum = c + i * step_c + j;
      const bf16 *const rows = (const bf16 *)(const void *)(a + i * row);
      const struct amx_pairs of_b = {b + j, 4 * step_b, 4 * TILE_ROWS * step_b, TILE_BYTES};
      const bool down = m - i > TILE_ROWS, across = n - j > TILE_ROWS;
      if (down && across)
        amx_sum(sum, step_c, rows, 2 * row, of_b, steps, add, true, true, true);
      else if (down)
        amx_sum(sum, step_c, rows, 2 * row, of_b, steps, add, true, true, false);
      else if (across)
        amx_sum(sum, step_c, rows, 2 * row, of_b, steps, add, true, false, true);
      else
        amx_sum(sum, step_c, rows, 2 * row, of_b, steps, add, true, false, false);
    }
}

// The same of the transposed a, whose pairs of one row are `column` apart.
static inline void tile_turned_bf16(float *c, long step_c, const bf16_pair *a, long column,
                                    const bf16_pair *b, long step_b, int m, int n, int pairs,
                                    bool add)
{
  enum { ROWS = 64, PAIRS = 32 };
  bf16_pair turned[ROWS][PAIRS] __attribute__((aligned(64)));
  for (int i = 0; i < m; i += ROWS)
    for (int k = 0; k < pairs; k += PAIRS) {
      const int rows = m - i < ROWS ? m - i : ROWS, some = pairs - k < PAIRS ? pairs - k : PAIRS;
      for (int x = 0; x < rows; x += LANES)
        for (int y = 0; y < some; y += LANES) {
          lanes line[LANES];
          for (int z = 0; z < LANES; z++)
            line[z] = *(const lanes *)(a + (k + y + z) * column + i + x);
          transpose_lanes(line);
          for (int z = 0; z < LANES; z++) *(lanes *)(turned[x + z] + y) = line[z];
        }
      tile_whole_bf16(c + i * step_c, step_c, turned[0], PAIRS, b + k * step_b, step_b, rows, n,
                      some, add || k > 0);
    }
}
#endif

#endif
