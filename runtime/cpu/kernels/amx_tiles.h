// SPDX-License-Identifier: MIT
// The tiles of AMX, a processor's matrix unit. It multiplies tiles of bfloat16, many times as quick
// as vectors multiply floats, and sums floats.
#ifndef CPU_AMX_TILES_H
#define CPU_AMX_TILES_H

#include "base/elements.h"
#include "cpu/kernels/lanes.h"

#include <stdbool.h>

// clang's older names have an underscore less.
#if ((defined(__AMX_TILE__) && defined(__AMX_BF16__)) ||                                           \
     (defined(__AMXTILE__) && defined(__AMXBF16__))) &&                                            \
    defined(__AVX512BW__) && defined(__AVX512BF16__) && defined(__linux__)
#define HAS_AMX 1
#include <sys/syscall.h>
#include <unistd.h>

enum {
  TILE_ROWS = 16,  // also the columns of a result's tile, of floats
  TILE_TERMS = 32, // a row of bfloat16
  TILE_BYTES = 64, // of a row
  AMX_SIDE = 32    // rows and columns of a block, four tiles of a result
};

// Rows of the left operand and their terms. Of the right one: a row has pairs of terms, one for
// each column.
struct amx_tile {
  bf16 at[TILE_ROWS * TILE_TERMS];
} __attribute__((aligned(64)));

// Whether the system lets this process use the unit: it has to be asked.
static inline bool may_use_amx(void)
{
  enum { ASK = 0x1023, TILES = 18 }; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  enum { MAY = 1, MAY_NOT };
  static _Atomic int answer; // 0: not known yet
  if (!answer) answer = syscall(SYS_arch_prctl, ASK, TILES) == 0 ? MAY : MAY_NOT;
  return answer == MAY;
}

// All eight tiles of this thread are whole.
static inline void amx_begin(void)
{
  struct {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } how = {.palette = 1};
  for (int i = 0; i < 8; i++) how.bytes[i] = TILE_BYTES, how.rows[i] = TILE_ROWS;
  __asm__ volatile("" ::: "memory");
  _tile_loadconfig(&how);
}

// gcc does not know that loads of tiles read memory: what was stored is in memory here.
static inline void amx_stored(void)
{
  __asm__ volatile("" ::: "memory");
}

// ---- copies -------------------------------------------------------------------------------------

// A tile of the right operand from rows that each have the terms of a column.
static inline void amx_transpose(struct amx_tile *to, const bf16 *from, long ld)
{
  lanes row[TILE_ROWS];
  for (int i = 0; i < TILE_ROWS; i++) row[i] = (lanes)_mm512_loadu_si512(from + i * ld);
  transpose_lanes(row);
  for (int i = 0; i < TILE_ROWS; i++) *(lanes *)(to->at + i * TILE_TERMS) = row[i];
}

// 32 columns of two rows: the pairs of the first 16 columns, or of the last.
static inline __m512i amx_both(const bf16 *row, const bf16 *next, bool last)
{
  static const uint16_t order[2][32] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  return _mm512_permutex2var_epi16(_mm512_loadu_si512(row), _mm512_loadu_si512(order[last]),
                                   _mm512_loadu_si512(next));
}

// Both tiles of the right operand of 32 terms and 32 columns: rows are terms.
static inline void amx_pair_rows(struct amx_tile *to, const bf16 *from, long ld)
{
  for (int p = 0; p < TILE_ROWS; p++)
    for (int half = 0; half < 2; half++)
      _mm512_store_si512(to[half].at + p * TILE_TERMS,
                         amx_both(from + 2 * p * ld, from + (2 * p + 1) * ld, half));
}

// 32 rows of 32 terms of the left operand from rows that each have a term of all 32.
static inline void amx_turn(bf16 *to, long step, const bf16 *from, long ld)
{
  for (int half = 0; half < 2; half++) {
    lanes row[TILE_ROWS];
    for (int p = 0; p < TILE_ROWS; p++)
      row[p] = (lanes)amx_both(from + 2 * p * ld, from + (2 * p + 1) * ld, half);
    transpose_lanes(row);
    for (int i = 0; i < TILE_ROWS; i++)
      _mm512_storeu_si512(to + (half * TILE_ROWS + i) * step, (__m512i)row[i]);
  }
}

// ---- sums ---------------------------------------------------------------------------------------

// The right operand of a block: rows of pairs of terms are `row` bytes apart, tiles of 32 terms
// `step` bytes, and the tile of the last 16 columns is `right` bytes from that of the first.
struct amx_pairs {
  const void *at;
  long row, step, right;
};

// The panel of 32 columns that amx_transpose or amx_pair_rows pack.
static inline struct amx_pairs amx_panel_pairs(const struct amx_tile *panel)
{
  return (struct amx_pairs){panel, TILE_BYTES, 2 * sizeof *panel, sizeof *panel};
}

// The block of sums in tiles 0 to 3: zeros, or what is in memory if `add` is true, whose rows are
// `row` floats apart. Without `down` there are only 16 rows, without `across` only 16 columns.
static inline __attribute__((always_inline)) void amx_load_sums(const float *sum, long row,
                                                                bool add, bool down, bool across)
{
  const long bytes = row * (long)sizeof *sum;
  const float *const below = sum + TILE_ROWS * row;
  amx_stored();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (!add) return;
  _tile_loadd(0, sum, bytes);
  if (across) _tile_loadd(1, sum + TILE_ROWS, bytes);
  if (down) _tile_loadd(2, below, bytes);
  if (down && across) _tile_loadd(3, below + TILE_ROWS, bytes);
}

// The same back to memory.
static inline __attribute__((always_inline)) void amx_store_sums(float *sum, long row, bool down,
                                                                 bool across)
{
  const long bytes = row * (long)sizeof *sum;
  float *const below = sum + TILE_ROWS * row;
  _tile_stored(0, sum, bytes);
  if (across) _tile_stored(1, sum + TILE_ROWS, bytes);
  if (down) _tile_stored(2, below, bytes);
  if (down && across) _tile_stored(3, below + TILE_ROWS, bytes);
}

// sum = a b, or sum += a b if `add` is true: 32 rows and columns, and 32 * steps terms. Without
// `down` there are only 16 rows, without `across` only 16 columns. Rows of a are `row` elements
// apart, those of sum row_sum.
//
// left: the next call reads other rows of a, and the same columns of b; else it is the other way
// round. The operand that the next call reads again stays in the first cache. The caller has
// constants for the last three.
static inline __attribute__((always_inline)) void amx_sum(float *sum, long row_sum, const bf16 *a,
                                                          long row, struct amx_pairs b, int steps,
                                                          bool add, bool left, bool down,
                                                          bool across)
{
  const long row_a = row * (long)sizeof *a;
  amx_load_sums(sum, row_sum, add, down, across);
  for (int s = 0; s < steps; s++) {
    const bf16 *const rows = a + (long)s * TILE_TERMS;
    const char *const pairs = (const char *)b.at + s * b.step;
    if (left) {
      _tile_stream_loadd(4, rows, row_a);
      if (down) _tile_stream_loadd(5, rows + TILE_ROWS * row, row_a);
      _tile_loadd(6, pairs, b.row);
      if (across) _tile_loadd(7, pairs + b.right, b.row);
    } else {
      _tile_loadd(4, rows, row_a);
      if (down) _tile_loadd(5, rows + TILE_ROWS * row, row_a);
      _tile_stream_loadd(6, pairs, b.row);
      if (across) _tile_stream_loadd(7, pairs + b.right, b.row);
    }
    _tile_dpbf16ps(0, 4, 6);
    if (across) _tile_dpbf16ps(1, 4, 7);
    if (down) _tile_dpbf16ps(2, 5, 6);
    if (down && across) _tile_dpbf16ps(3, 5, 7);
  }
  amx_store_sums(sum, row_sum, down, across);
}
#endif

#endif
