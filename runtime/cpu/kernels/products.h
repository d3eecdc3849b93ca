// SPDX-License-Identifier: MIT
// Products of large bfloat16 matrices on one thread, with float32 sums.
//
// Both operands are packed, a part at a time, in the order in which they are read, and converted to
// float32: a into panels of some rows, b into strips of some columns. A block of the result, a
// panel times a strip, is summed in registers over the terms of a part. The order in which an
// element is summed depends only on the number of terms.
#ifndef CPU_PRODUCTS_H
#define CPU_PRODUCTS_H

#include "base/elements.h"
#include "cpu/kernels/tiles.h"

// Rows of a panel, and columns of a strip: the registers hold a block of the result of this size.
#if defined(__AVX512F__)
enum { PANEL = 14, STRIP = 2 * LANES };
#elif defined(__AVX__)
enum { PANEL = 6, STRIP = 2 * LANES };
#else
enum { PANEL = 4, STRIP = 2 * LANES };
#endif

// Terms, and rows of a, that are packed at a time: both copies fit a core's cache.
enum { PART_TERMS = 352, PART_ROWS = 518 / PANEL * PANEL };

// A stored matrix; ld is the distance of its rows in elements.
struct stored {
  const bf16 *at;
  long ld;
  bool transposed; // stored transposed
};

static inline struct stored stored_from(struct stored s, long row, long column)
{
  s.at += s.transposed ? column * s.ld + row : row * s.ld + column;
  return s;
}

struct bf16_product {
  char a_is, b_is; // 't': stored transposed, 'n': not
  const bf16 *a, *b;
  bf16 *c;     // the result; NULL: it is
  float *wide; // this one, of float32
  long lda, ldb, ldc;
  int m, n, k, batch;
  long step_a, step_b, step_c;
  bool add;
};

// ---- copies -------------------------------------------------------------------------------------

// Copies n lines to rows of `wide` elements, one row for each term; pads with zeros.
static inline __attribute__((always_inline)) void copy_lines(float *to, int wide, const bf16 *from,
                                                             long ld, int n, int terms)
{
  for (int k = 0; k < terms; k++)
    for (int i = 0; i < wide; i++) to[k * wide + i] = i < n ? bf16_to_float(from[k * ld + i]) : 0;
}

// The same from n rows that each hold the terms of a line, from the term `first` on.
static inline void transpose_some(float *to, int wide, const bf16 *from, long ld, int n, int first,
                                  int terms)
{
  for (int i = 0; i < wide; i++)
    for (int k = first; k < terms; k++)
      to[k * wide + i] = i < n ? bf16_to_float(from[i * ld + k]) : 0;
}

#ifdef __AVX512F__
static inline lanes load_lanes(const bf16 *from)
{
  const __m256i half = _mm256_loadu_si256((const void *)from);
  return (lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

#elif defined(__AVX2__)
static inline lanes load_lanes(const bf16 *from)
{
  const __m128i half = _mm_loadu_si128((const void *)from);
  return (lanes)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

#else
static inline lanes load_lanes(const bf16 *from)
{
  float number[LANES];
  for (int i = 0; i < LANES; i++) number[i] = bf16_to_float(from[i]);
  return *(lanes *)number;
}

#endif

// Blocks of LANES terms and lines at a time. The excess of a row is overwritten by the next one;
// there is room after the last.
static inline void turn_lines(float *to, int wide, const bf16 *from, long ld, int n, int terms)
{
  int k = 0;
  for (; k + LANES <= terms; k += LANES)
    for (int first = 0; first < wide; first += LANES) {
      lanes row[LANES];
      for (int i = 0; i < LANES; i++)
        row[i] = first + i < n ? load_lanes(from + (first + i) * ld + k) : (lanes){0};
      transpose_lanes(row);
      for (int i = 0; i < LANES; i++) *(lanes *)(to + (k + i) * wide + first) = row[i];
    }
  transpose_some(to, wide, from, ld, n, k, terms);
}

// Packs n rows of a, or columns of b, `wide` of them side by side. along: the terms of each are
// contiguous in memory.
static inline __attribute__((always_inline)) void
copy_operand(float *to, int wide, struct stored from, int n, int terms, bool along)
{
  if (along)
    turn_lines(to, wide, from.at, from.ld, n, terms);
  else if (n == wide) // a constant after inlining
    copy_lines(to, wide, from.at, from.ld, wide, terms);
  else
    copy_lines(to, wide, from.at, from.ld, n, terms);
}

static inline void copy_panel(float *to, struct stored a, int rows, int terms)
{
  copy_operand(to, PANEL, a, rows, terms, !a.transposed);
}

static inline void copy_strip(float *to, struct stored b, int columns, int terms)
{
  copy_operand(to, STRIP, b, columns, terms, b.transposed);
}

// ---- sums ---------------------------------------------------------------------------------------

// A panel times a strip.
static inline void block_of(float *c, long ldc, const float *a, const float *b, int terms, bool add)
{
  lanes sum[PANEL][2] = {{{0}}};
  for (int i = 0; i < PANEL; i++) {
    __builtin_prefetch(c + i * ldc, 1);
    __builtin_prefetch(c + i * ldc + LANES, 1);
  }
  for (int k = 0; k < terms; k++, a += PANEL, b += STRIP) {
    const lanes left = *(const lanes *)b, right = *(const lanes *)(b + LANES);
    for (int i = 0; i < PANEL; i++) {
      sum[i][0] += a[i] * left;
      sum[i][1] += a[i] * right;
    }
  }
  for (int i = 0; i < PANEL; i++) {
    lanes *const left = (lanes *)(c + i * ldc), *const right = (lanes *)(c + i * ldc + LANES);
    if (add) sum[i][0] += *left, sum[i][1] += *right;
    *left = sum[i][0], *right = sum[i][1];
  }
}

// The same for a result with fewer rows or columns.
static inline void edge_of(float *c, long ldc, const float *a, const float *b, int terms, bool add,
                           int rows, int columns)
{
  float block[PANEL * STRIP];
  block_of(block, STRIP, a, b, terms, false);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++)
      c[i * ldc + j] = block[i * STRIP + j] + (add ? c[i * ldc + j] : 0);
}

// All panels times a strip; a panel has room for `room` terms.
static inline void strip_of(float *c, long ldc, const float *panels, const float *strip, int m,
                            int columns, int terms, bool add)
{
  for (int i = 0; i < m; i += PANEL, panels += PANEL * terms, c += PANEL * ldc) {
    const int rows = m - i < PANEL ? m - i : PANEL;
    if (rows == PANEL && columns == STRIP)
      block_of(c, ldc, panels, strip, terms, add);
    else
      edge_of(c, ldc, panels, strip, terms, add, rows, columns);
  }
}

// For at most PART_ROWS rows.
static inline void product_of_rows(float *c, long ldc, struct stored a, struct stored b, int m,
                                   int n, int k, bool add)
{
  static _Thread_local float panels[PART_ROWS * PART_TERMS + LANES], strip[PART_TERMS * STRIP];
  const int parts = k / PART_TERMS + 1;
  const int each = ((k + parts - 1) / parts + LANES - 1) / LANES * LANES;
  int first = 0;
  do {
    const int terms = k - first < each ? k - first : each;
    for (int i = 0; i < m; i += PANEL)
      copy_panel(panels + (long)i * terms, stored_from(a, i, first), m - i < PANEL ? m - i : PANEL,
                 terms);
    for (int j = 0; j < n; j += STRIP) {
      const int columns = n - j < STRIP ? n - j : STRIP;
      copy_strip(strip, stored_from(b, first, j), columns, terms);
      strip_of(c + j, ldc, panels, strip, m, columns, terms, add || first > 0);
    }
    first += each;
  } while (first < k);
}

// c[m, n] = a[m, k] b[k, n], or c += a b if `add` is true.
static inline void product_on_one_thread(float *c, long ldc, struct stored a, struct stored b,
                                         int m, int n, int k, bool add)
{
  for (int i = 0; i < m; i += PART_ROWS)
    product_of_rows(c + i * ldc, ldc, stored_from(a, i, 0), b,
                    m - i < PART_ROWS ? m - i : PART_ROWS, n, k, add);
}

#endif
