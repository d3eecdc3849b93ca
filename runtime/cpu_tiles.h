// Products of small matrices, which lie in the cache: for kernels that work tile by tile.
#ifndef CPU_TILES_H
#define CPU_TILES_H

#include <stdbool.h>

// As many floats as a register holds, and the block of a result that is kept in registers.
#if defined(__AVX512F__)
enum { LANES = 16, DOWN = 4, ACROSS = 4 };
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

#endif
