// SPDX-License-Identifier: MIT
// Products of small matrices, which are in the cache: for kernels that work tile by tile.
#ifndef CPU_TILES_H
#define CPU_TILES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/elements.h"
#include "cpu/kernels/lanes.h"
#include "cpu/kernels/pairs.h"

// An element of an operand: a float, or a pair.
typedef uint32_t tile_word __attribute__((may_alias));

// sum + a b, with one element a and a register b.
static inline __attribute__((always_inline)) lanes
plus_product(bool paired, lanes sum, const tile_word *a, const tile_word *b)
{
  if (!paired) return sum + *(const float *)a * *(const lanes *)b;
#ifdef __AVX512BF16__
  return (lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)*a),
                                 (__m512bh)_mm512_loadu_si512(b));
#else
  const lane_bits all = *(const lane_bits *)b;
  return sum + pair_first(*a) * (lanes)(all << 16) + pair_second(*a) * (lanes)(all & 0xffff0000);
#endif
}

// A block of a result, of `down` rows and `across` registers: constants for the caller.
static inline __attribute__((always_inline)) void
tile_block(bool paired, int down, int across, float *c, long step_c, const tile_word *a, long row,
           long column, const tile_word *b, long step_b, int terms, bool add)
{
  lanes sum[DOWN][ACROSS] = {{{0}}};
  for (int i = 0; i < down && add; i++)
    for (int j = 0; j < across; j++) sum[i][j] = *(const lanes *)(c + i * step_c + j * LANES);
  for (int k = 0; k < terms; k++)
    for (int i = 0; i < down; i++)
      for (int j = 0; j < across; j++)
        sum[i][j] =
            plus_product(paired, sum[i][j], a + i * row + k * column, b + k * step_b + j * LANES);
  for (int i = 0; i < down; i++)
    for (int j = 0; j < across; j++) *(lanes *)(c + i * step_c + j * LANES) = sum[i][j];
}

// All rows of some columns.
static inline __attribute__((always_inline)) void
tile_columns(bool paired, int across, float *c, long step_c, const tile_word *a, long row,
             long column, const tile_word *b, long step_b, int m, int terms, bool add)
{
  int i = 0;
  for (; i + DOWN <= m; i += DOWN)
    tile_block(paired, DOWN, across, c + i * step_c, step_c, a + i * row, row, column, b, step_b,
               terms, add);
  for (; i < m; i++)
    tile_block(paired, 1, across, c + i * step_c, step_c, a + i * row, row, column, b, step_b,
               terms, add);
}

static inline __attribute__((always_inline)) void
tile_elements(bool paired, float *c, long step_c, const tile_word *a, long row, long column,
              const tile_word *b, long step_b, int m, int n, int terms, bool add)
{
  int j = 0;
  for (; j + ACROSS * LANES <= n; j += ACROSS * LANES)
    tile_columns(paired, ACROSS, c + j, step_c, a, row, column, b + j, step_b, m, terms, add);
  for (; j + LANES <= n; j += LANES)
    tile_columns(paired, 1, c + j, step_c, a, row, column, b + j, step_b, m, terms, add);
  for (; j < n; j++)
    for (int i = 0; i < m; i++) {
      float sum = add ? c[i * step_c + j] : 0;
      for (int k = 0; k < terms; k++) {
        const tile_word *x = a + i * row + k * column, *y = b + k * step_b + j;
        sum += paired ? pair_first(*x) * pair_first(*y) + pair_second(*x) * pair_second(*y)
                      : *(const float *)x * *(const float *)y;
      }
      c[i * step_c + j] = sum;
    }
}

// n floats or bfloat16s as floats: at x, or in `room`.
static inline const float *tile_floats_there(const float *x, float *room, long n)
{
  (void)room, (void)n;
  return x;
}
static inline const float *tile_floats_copied(const bf16 *x, float *room, long n)
{
  for (long i = 0; i < n; i++) room[i] = bf16_to_float(x[i]);
  return room;
}
#define TILE_FLOATS(x, room, n)                                                                    \
  _Generic(*(x), float : tile_floats_there, bf16 : tile_floats_copied)(x, room, n)

// Stores a float as one, or as a bfloat16.
static inline void tile_store_float(float *to, float x)
{
  *to = x;
}
static inline void tile_store_bf16(bf16 *to, float x)
{
  *to = float_to_bf16(x);
}
#define TILE_STORE(to, x) _Generic(to, float : tile_store_float, bf16 : tile_store_bf16)(&(to), x)

// c[m, n] = a[m, terms] b[terms, n], or c += a b if `add` is true. The rows of c and b are step_c
// and step_b elements apart; element i, k of a is at i * row + k * column.
static inline void tile_product(float *c, long step_c, const float *a, long row, long column,
                                const float *b, long step_b, int m, int n, int terms, bool add)
{
  tile_elements(false, c, step_c, (const tile_word *)a, row, column, (const tile_word *)b, step_b,
                m, n, terms, add);
}

// The same for bfloat16: an element of a and of b is a pair of terms; there are 2 `pairs` terms.
// Between tile_begin and tile_end.
static inline void tile_product_bf16(float *c, long step_c, const bf16_pair *a, long row,
                                     long column, const bf16_pair *b, long step_b, int m, int n,
                                     int pairs, bool add)
{
  int rows = 0, columns = 0, some = 0; // that the matrix unit does
#ifdef HAS_AMX
  if (may_use_amx() && (row == 1 || column == 1)) {
    enum { WHOLE = ~(TILE_ROWS - 1) };
    rows = m & WHOLE, columns = n & WHOLE, some = pairs & WHOLE;
    if (!rows || !columns || !some)
      rows = columns = some = 0;
    else if (column == 1)
      tile_whole_bf16(c, step_c, a, row, b, step_b, rows, columns, some, add);
    else
      tile_turned_bf16(c, step_c, a, column, b, step_b, rows, columns, some, add);
  }
#endif
  const tile_word *const left = (const tile_word *)a, *const right = (const tile_word *)b;
  if (some < pairs)
    tile_elements(true, c, step_c, left + some * column, row, column, right + some * step_b, step_b,
                  rows, columns, pairs - some, some > 0 || add);
  if (columns < n)
    tile_elements(true, c + columns, step_c, left, row, column, right + columns, step_b, rows,
                  n - columns, pairs, add);
  if (rows < m)
    tile_elements(true, c + rows * step_c, step_c, left + rows * row, row, column, right, step_b,
                  m - rows, n, pairs, add);
}

// The exponential, within a unit in the last place; 0 if it is less than 1e-37, and at most
// exp(88). Inline, so that a loop over scores makes no calls.
static inline float tile_exp(float x)
{
  const float least = -87, most = 88, high = least > x ? least : x; // so that NaN stays
  const float within = most < high ? most : high;
  const float rounds = 0x1.8p23f; // added to x it leaves the nearest integer in the last bits
  const union {
    float number;
    uint32_t bits;
  } shifted = {.number = within * 1.44269504f + rounds},
    power = {.bits = (shifted.bits + 127) << 23};
  const float n = shifted.number - rounds; // exp(x) = 2^n exp(r)
  const float r = within - n * 0.693359375f + n * 2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  sum = sum * r + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  const float result = (sum * (r * r) + r + 1) * power.number;
  return x < least ? 0 : result;
}

// Turns the scores of some rows for some keys into weights, and rescales the rows' earlier sums to
// the same base. The scores of one key are contiguous, those of the next one `step` further; most:
// each row's largest score so far; total: the sum of its weights; sum: `width` numbers of each.
static inline void tile_weigh(float *restrict score, int step, int rows, int keys,
                              float *restrict most, float *restrict total, float *restrict sum,
                              int width)
{
  for (int i = 0; i < rows; i++) {
    float base = most[i], part = 0;
    for (int j = 0; j < keys; j++) base = score[j * step + i] > base ? score[j * step + i] : base;
    const float less = base == -INFINITY ? 1 : tile_exp(most[i] - base);
    for (int j = 0; j < keys; j++) {
      float *const at = &score[j * step + i];
      *at = *at == -INFINITY ? 0 : tile_exp(*at - base);
      part += *at;
    }
    total[i] = total[i] * less + part;
    most[i] = base;
    for (int c = 0; c < width; c++) sum[i * width + c] *= less;
  }
}

// The hyperbolic tangent, within a few units in the last place: a polynomial where it is almost x,
// else by the exponential.
static inline float tile_tanh(float x)
{
  const float square = x * x, power = tile_exp(2 * x);
  float sum = -5.70498872745e-3f;
  sum = sum * square + 2.06390887954e-2f;
  sum = sum * square - 5.37397155531e-2f;
  sum = sum * square + 1.33314422036e-1f;
  sum = sum * square - 3.33332819422e-1f;
  return square < 0.625f * 0.625f ? sum * square * x + x : 1 - 2 / (power + 1);
}

// The least and the greatest of some numbers of documents.
struct tile_range {
  int least, most;
};

static inline struct tile_range tile_range(const int *document, int n)
{
  struct tile_range r = {document[0], document[0]};
  for (int i = 1; i < n; i++) {
    r.least = document[i] < r.least ? document[i] : r.least;
    r.most = document[i] > r.most ? document[i] : r.most;
  }
  return r;
}

// Whether some of one tile and some of another may be in the same document, and whether all are.
static inline bool may_meet(struct tile_range a, struct tile_range b)
{
  return a.least <= b.most && b.least <= a.most;
}

static inline bool are_one(struct tile_range a, struct tile_range b)
{
  return a.least == a.most && b.least == b.most && a.least == b.least;
}

// By the places of queries and of keys in the sequence: whether some query of a tile may see some
// key of another, and whether all see all. window 0: there is none.
static inline bool may_see(struct tile_range queries, struct tile_range keys, bool causal,
                           long window)
{
  if (causal && keys.least > queries.most) return false;
  return !window ||
         ((long)queries.least - keys.most < window && (long)keys.least - queries.most < window);
}

static inline bool see_all(struct tile_range queries, struct tile_range keys, bool causal,
                           long window)
{
  if (causal && keys.most > queries.least) return false;
  return !window ||
         ((long)queries.most - keys.least < window && (long)keys.most - queries.least < window);
}

static inline void hide_unseen(float *score, int key, const int *place, int n, bool causal,
                               long window)
{
  for (int i = 0; i < n; i++) {
    const long ahead = (long)key - place[i];
    const bool near = !window || (ahead < window && ahead > -window);
    score[i] = near && (!causal || ahead <= 0) ? score[i] : -INFINITY;
  }
}

// The same of a row of n scores of one query.
static inline void hide_unseeing(float *score, int query, const int *key, int n, bool causal,
                                 long window)
{
  for (int j = 0; j < n; j++) hide_unseen(&score[j], key[j], &query, 1, causal, window);
}

// In a row of n scores: hides those outside [from, to), or of other documents.
static inline void hide_outside(float *score, long from, long to, int n)
{
  for (long i = 0; i < from && i < n; i++) score[i] = -INFINITY;
  for (long i = to > 0 ? to : 0; i < n; i++) score[i] = -INFINITY;
}

static inline void hide_others(float *score, int document, const int *documents, int n)
{
  for (int i = 0; i < n; i++) score[i] = documents[i] == document ? score[i] : -INFINITY;
}

// Scores s become bound * tanh(s / bound); `steep`, if it is not NULL, how steep that is.
static inline void bound_scores(float *restrict score, float *restrict steep, int n, float bound)
{
  for (int i = 0; i < n; i++) {
    const float part = tile_tanh(score[i] / bound);
    score[i] = bound * part;
    if (steep) steep[i] = 1 - part * part;
  }
}

#endif
