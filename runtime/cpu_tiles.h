// Products of small matrices, which lie in the cache: for kernels that work tile by tile.
#ifndef CPU_TILES_H
#define CPU_TILES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

// As many floats as a register holds, and the block of a result that is kept in registers.
#if defined(__AVX512F__)
enum { LANES = 16, DOWN = 8, ACROSS = 2 };
#elif defined(__AVX__)
enum { LANES = 8, DOWN = 4, ACROSS = 2 };
#else
enum { LANES = 4, DOWN = 4, ACROSS = 2 };
#endif
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

// A block of tile_product's result, of `down` rows and `across` registers: constants for the
// caller.
static inline __attribute__((always_inline)) void tile_block(int down, int across, float *c,
                                                             long step_c, const float *a, long row,
                                                             long column, const float *b,
                                                             long step_b, int terms, bool add)
{
  lanes sum[DOWN][ACROSS] = {{{0}}};
  for (int i = 0; i < down && add; i++)
    for (int j = 0; j < across; j++) sum[i][j] = *(const lanes *)(c + i * step_c + j * LANES);
  for (int k = 0; k < terms; k++)
    for (int i = 0; i < down; i++)
      for (int j = 0; j < across; j++)
        sum[i][j] += a[i * row + k * column] * *(const lanes *)(b + k * step_b + j * LANES);
  for (int i = 0; i < down; i++)
    for (int j = 0; j < across; j++) *(lanes *)(c + i * step_c + j * LANES) = sum[i][j];
}

// All rows of some of its columns.
static inline __attribute__((always_inline)) void
tile_columns(int across, float *c, long step_c, const float *a, long row, long column,
             const float *b, long step_b, int m, int terms, bool add)
{
  int i = 0;
  for (; i + DOWN <= m; i += DOWN)
    tile_block(DOWN, across, c + i * step_c, step_c, a + i * row, row, column, b, step_b, terms,
               add);
  for (; i < m; i++)
    tile_block(1, across, c + i * step_c, step_c, a + i * row, row, column, b, step_b, terms, add);
}

// c[m, n] = a[m, terms] b[terms, n], or c += a b where `add` is true. The rows of c and of b are
// step_c and step_b elements apart; a's element i, k lies at i * row + k * column.
static inline void tile_product(float *c, long step_c, const float *a, long row, long column,
                                const float *b, long step_b, int m, int n, int terms, bool add)
{
  int j = 0;
  for (; j + ACROSS * LANES <= n; j += ACROSS * LANES)
    tile_columns(ACROSS, c + j, step_c, a, row, column, b + j, step_b, m, terms, add);
  for (; j + LANES <= n; j += LANES)
    tile_columns(1, c + j, step_c, a, row, column, b + j, step_b, m, terms, add);
  for (; j < n; j++)
    for (int i = 0; i < m; i++) {
      float sum = add ? c[i * step_c + j] : 0;
      for (int k = 0; k < terms; k++) sum += a[i * row + k * column] * b[k * step_b + j];
      c[i * step_c + j] = sum;
    }
}

// The exponential, within a unit in the last place; 0 where it is less than 1e-37, and never more
// than that of 88. In line, so that a loop over scores needs no calls.
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

#endif
