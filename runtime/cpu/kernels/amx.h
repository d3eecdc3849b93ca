// SPDX-License-Identifier: MIT
// Products of floats and stored weights on AMX (cpu/kernels/amx_tiles.h). A float is exactly the
// sum of three bfloat16, and a weight of a block of 8 bits that of two: so the products lose
// nothing that those of floats keep. The order in which an element is summed depends only on the
// number of terms.
#ifndef CPU_AMX_H
#define CPU_AMX_H

#include "base/weight_blocks.h"
#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/products.h"

// A matrix of weights as it is stored, for products of k terms with n columns.
struct weights {
  const void *at;
  long n, k;
};

#ifdef HAS_AMX
#include <float.h>

enum {
  X_PARTS = 3,       // a float is the sum of so many bfloat16,
  WEIGHT_PARTS = 2,  // and a weight, at most
  CHUNK_ROWS = 256,  // of x that are packed at a time,
  CHUNK_TERMS = 512, // and their terms: all parts fit a core's cache
  CHUNK_TILES = CHUNK_ROWS / TILE_ROWS * (CHUNK_TERMS / TILE_TERMS)
};

// ---- copies -------------------------------------------------------------------------------------

// Cuts the lower bits off, so that the rest is exact; infinity has no rest.
static inline float amx_cut(float *x)
{
  uint32_t bits;
  float upper;
  memcpy(&bits, x, sizeof bits);
  bits &= 0xffff0000;
  memcpy(&upper, &bits, sizeof upper);
  *x = fabsf(*x) <= FLT_MAX ? *x - upper : 0;
  return upper;
}

static inline bf16 amx_upper(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bf16)(bits >> 16);
}

// n numbers as the sums of X_PARTS bfloat16: row i of each tile.
static inline __attribute__((always_inline)) void amx_split(struct amx_tile *restrict to, int i,
                                                            const float *restrict x, int n)
{
  for (int d = 0; d < n; d++) {
    float rest = x[d];
    for (int p = 0; p < X_PARTS; p++) to[p].at[i * TILE_TERMS + d] = amx_upper(amx_cut(&rest));
  }
}

// Some rows and terms of x: a tile for each part.
static inline void amx_pack(struct amx_tile *restrict to, const float *restrict x, long ld,
                            int rows, int terms)
{
  if (rows < TILE_ROWS || terms < TILE_TERMS) memset(to, 0, X_PARTS * sizeof *to);
  for (int i = 0; i < rows; i++)
    if (terms == TILE_TERMS)
      amx_split(to, i, x + i * ld, TILE_TERMS);
    else
      amx_split(to, i, x + i * ld, terms);
}

// A row of a tile, of two terms of sixteen columns, the lower halves of `first` and `second`.
static inline void amx_pair(struct amx_tile *to, int row, __m512i first, __m512i second)
{
  const __m512i pairs = _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
  _mm512_storeu_si512(to->at + row * TILE_TERMS, pairs);
}

// Sixteen numbers of a block as the sums of WEIGHT_PARTS bfloat16, the lower halves of `part`.
static inline __attribute__((always_inline)) void amx_halves(const struct weight_block *block,
                                                             int first, __m512i part[WEIGHT_PARTS])
{
  const __m128i bytes = _mm_loadu_si128((const void *)(block->q + first));
  const __m512 scale = _mm512_set1_ps(bf16_to_float(block->scale));
  const __m512 number = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
  const __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(number), 16);
  const __m512 rest = _mm512_sub_ps(number, _mm512_castsi512_ps(_mm512_slli_epi32(upper, 16)));
  part[0] = upper;
  part[1] = _mm512_srli_epi32(_mm512_castps_si512(rest), 16);
}

// Makes the tiles, one for each part, of the columns from j on and the terms from c on.
typedef void amx_fill(struct amx_tile *to, struct weights w, long j, long c);

static inline void amx_from_bf16(struct amx_tile *to, struct weights w, long j, long c)
{
  const bf16 *const from = (const bf16 *)w.at + j * w.k + c;
  if (j + TILE_ROWS <= w.n && c + TILE_TERMS <= w.k) {
    amx_transpose(to, from, w.k);
    return;
  }
  struct amx_tile rows = {{0}};
  for (int i = 0; i < TILE_ROWS && j + i < w.n; i++)
    for (int d = 0; d < TILE_TERMS && c + d < w.k; d++)
      rows.at[i * TILE_TERMS + d] = from[i * w.k + d];
  amx_transpose(to, rows.at, TILE_TERMS);
}

// A term of the columns from j on, in lower halves.
static inline __m512i amx_term(struct weights w, long j, long term)
{
  bf16 some[TILE_ROWS] = {0};
  const bf16 *from = (const bf16 *)w.at + term * w.n + j;
  if (term >= w.k || j >= w.n) return _mm512_setzero_si512();
  if (j + TILE_ROWS > w.n) {
    memcpy(some, from, (size_t)(w.n - j) * sizeof *some);
    from = some;
  }
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from));
}

static inline void amx_from_bf16_transposed(struct amx_tile *to, struct weights w, long j, long c)
{
  for (int p = 0; p < TILE_ROWS; p++)
    amx_pair(to, p, amx_term(w, j, c + 2 * p), amx_term(w, j, c + 2 * p + 1));
}

static inline void amx_from_int8(struct amx_tile *to, struct weights w, long j, long c)
{
  struct amx_tile rows[WEIGHT_PARTS];
  const long blocks = w.k / BLOCK_NUMBERS;
  for (int i = 0; i < TILE_ROWS; i++)
    for (int half = 0; half < TILE_TERMS; half += TILE_ROWS) {
      const struct weight_block *const block =
          (const struct weight_block *)w.at + (j + i) * blocks + c / BLOCK_NUMBERS;
      __m512i part[WEIGHT_PARTS] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      if (j + i < w.n) amx_halves(block, half, part);
      for (int p = 0; p < WEIGHT_PARTS; p++)
        _mm256_storeu_si256((void *)(rows[p].at + i * TILE_TERMS + half),
                            _mm512_cvtepi32_epi16(part[p]));
    }
  for (int p = 0; p < WEIGHT_PARTS; p++) amx_transpose(&to[p], rows[p].at, TILE_TERMS);
}

static inline void amx_from_int8_transposed(struct amx_tile *to, struct weights w, long j, long c)
{
  const long blocks = w.n / BLOCK_NUMBERS;
  for (int d = 0; d < TILE_TERMS; d += 2) {
    __m512i part[2][WEIGHT_PARTS];
    for (int i = 0; i < 2; i++) {
      const struct weight_block *const block =
          (const struct weight_block *)w.at + (c + d + i) * blocks + j / BLOCK_NUMBERS;
      part[i][0] = part[i][1] = _mm512_setzero_si512();
      if (c + d + i < w.k && j < w.n) amx_halves(block, (int)(j % BLOCK_NUMBERS), part[i]);
    }
    for (int p = 0; p < WEIGHT_PARTS; p++) amx_pair(&to[p], d / 2, part[0][p], part[1][p]);
  }
}

// ---- sums ---------------------------------------------------------------------------------------

// out[32, 32] = x w, of `steps` tiles of terms, or out += x w if `add` is true; of only 16 rows
// unless `two` is true. Of x the second rows follow the first; of w each tile of the second columns
// follows that of the first. The products of the second parts of weights and the last parts of x
// are below the precision of a float.
static inline __attribute__((always_inline)) void amx_block(float *out, long ld,
                                                            const struct amx_tile *x,
                                                            const struct amx_tile *w, int steps,
                                                            int parts, bool two, bool add)
{
  const struct amx_tile *const below = x + (long)steps * X_PARTS;
  amx_load_sums(out, ld, add, two, true);
  for (int s = 0; s < steps; s++)
    for (int q = 0; q < parts; q++) {
      _tile_loadd(6, w + 2L * s * parts + q, TILE_BYTES);
      _tile_loadd(7, w + (2L * s + 1) * parts + q, TILE_BYTES);
      for (int p = 0; p < X_PARTS - q; p++) {
        _tile_loadd(4, x + (long)s * X_PARTS + p, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (!two) continue;
        _tile_loadd(5, below + (long)s * X_PARTS + p, TILE_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  amx_store_sums(out, ld, two, true);
}

static inline __attribute__((always_inline)) void amx_block_of(float *out, long ld,
                                                               const struct amx_tile *x,
                                                               const struct amx_tile *w, int steps,
                                                               int parts, int rows, bool add)
{
  if (rows > TILE_ROWS)
    amx_block(out, ld, x, w, steps, parts, true, add);
  else
    amx_block(out, ld, x, w, steps, parts, false, add);
}

// The same of a result with fewer rows or columns.
static inline __attribute__((always_inline)) void
amx_edge(float *out, long ld, const struct amx_tile *x, const struct amx_tile *w, int steps,
         int parts, int rows, int columns, bool add)
{
  float block[2 * TILE_ROWS][2 * TILE_ROWS];
  if (add) memset(block, 0, sizeof block);
  for (int i = 0; i < rows && add; i++)
    for (int j = 0; j < columns; j++) block[i][j] = out[i * ld + j];
  amx_block_of(block[0], 2 * TILE_ROWS, x, w, steps, parts, rows, add);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) out[i * ld + j] = block[i][j];
}

// Columns j to j + 31 of some rows of the result; x is packed.
static inline __attribute__((always_inline)) void amx_columns(float *out, const struct amx_tile *x,
                                                              struct weights w, long j, long c,
                                                              int rows, int steps, amx_fill *fill,
                                                              int parts)
{
  struct amx_tile panel[CHUNK_TERMS / TILE_TERMS * 2 * WEIGHT_PARTS];
  const int columns = w.n - j < 2 * TILE_ROWS ? (int)(w.n - j) : 2 * TILE_ROWS;
  for (int s = 0; s < steps; s++)
    for (int k = 0; k < 2; k++)
      fill(panel + (2L * s + k) * parts, w, j + k * TILE_ROWS, c + (long)s * TILE_TERMS);
  for (int i = 0; i < rows; i += 2 * TILE_ROWS) {
    const int some = rows - i < 2 * TILE_ROWS ? rows - i : 2 * TILE_ROWS;
    const struct amx_tile *const from = x + (long)(i / TILE_ROWS) * steps * X_PARTS;
    float *const to = out + i * w.n + j;
    if (columns == 2 * TILE_ROWS && some % TILE_ROWS == 0)
      amx_block_of(to, w.n, from, panel, steps, parts, some, c > 0);
    else
      amx_edge(to, w.n, from, panel, steps, parts, some, columns, c > 0);
  }
}

// out[rows, n] = x[rows, k] w; false: the system does not let this process use the unit. fill and
// parts, the number of tiles that it makes: constants for the caller.
static inline __attribute__((always_inline)) bool amx_product(float *restrict out,
                                                              const float *restrict x,
                                                              struct weights w, long rows,
                                                              amx_fill *fill, int parts)
{
  static _Thread_local struct amx_tile room[CHUNK_TILES * X_PARTS];
  struct amx_tile *const packed = room; // of the calling thread, for all of its team
  if (!may_use_amx()) return false;
#pragma omp parallel
  {
    amx_begin();
    for (long i = 0; i < rows; i += CHUNK_ROWS)
      for (long c = 0; c < w.k; c += CHUNK_TERMS) {
        const int here = rows - i < CHUNK_ROWS ? (int)(rows - i) : CHUNK_ROWS;
        const int terms = w.k - c < CHUNK_TERMS ? (int)(w.k - c) : CHUNK_TERMS;
        const int steps = (terms + TILE_TERMS - 1) / TILE_TERMS;
        const int tiles = (here + TILE_ROWS - 1) / TILE_ROWS;
#pragma omp for schedule(static)
        for (int t = 0; t < tiles * steps; t++) {
          const int row = t / steps * TILE_ROWS, term = t % steps * TILE_TERMS;
          amx_pack(packed + (long)t * X_PARTS, x + (i + row) * w.k + c + term, w.k,
                   here - row < TILE_ROWS ? here - row : TILE_ROWS,
                   terms - term < TILE_TERMS ? terms - term : TILE_TERMS);
        }
#pragma omp for schedule(static)
        for (long j = 0; j < w.n; j += 2 * TILE_ROWS)
          amx_columns(out + i * w.n, packed, w, j, c, here, steps, fill, parts);
      }
    _tile_release();
  }
  return true;
}
#define AMX_PRODUCT(out, x, w, rows, stored, parts)                                                \
  amx_product(out, x, w, rows, amx_from_##stored, parts)
#else
#define AMX_PRODUCT(out, x, w, rows, stored, parts) false
#endif

#endif
