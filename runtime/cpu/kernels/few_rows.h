// SPDX-License-Identifier: MIT
// Products of a few rows with a large matrix, which is read once, from memory: as when tokens are
// generated one by one. Each element is summed in an order that depends only on the number of
// terms.
#ifndef CPU_FEW_ROWS_H
#define CPU_FEW_ROWS_H

#include <stddef.h>
#include "cpu/kernels/tiles.h"

enum { FEW_ROWS = 4 }; // that share one reading of the matrix

// While some bytes of the matrix are used those that follow soon are asked for: by themselves many
// processors ask for too few to keep the memory busy.
static inline __attribute__((always_inline)) void fetch_ahead(const void *at, size_t bytes)
{
  enum { AHEAD = 3072, LINE = 64 };
  for (size_t i = 0; i < bytes; i += LINE) __builtin_prefetch((const char *)at + AHEAD + i);
}

// The same for rows of floats or bfloat16. AMD's processors do it better themselves.
static inline __attribute__((always_inline)) void fetch_row_ahead(const void *at, size_t bytes)
{
#if defined(__znver1__) || defined(__znver2__) || defined(__znver3__) || defined(__znver4__) ||    \
    defined(__znver5__)
  (void)at, (void)bytes;
#else
  fetch_ahead(at, bytes);
#endif
}

static inline float sum_of_lanes(lanes x)
{
  float part[LANES];
  *(lanes *)part = x;
  for (int n = LANES / 2; n > 0; n /= 2)
    for (int i = 0; i < n; i++) part[i] += part[i + n];
  return part[0];
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

// One column of the result: `rows` (a constant for the caller) sums over k terms. Rows of x are ldx
// apart, those of the result ldo.
static inline __attribute__((always_inline)) void column_of_floats(float *out, long ldo,
                                                                   const float *x, long ldx,
                                                                   const float *w, int rows, long k,
                                                                   bool add)
{
  lanes sum[FEW_ROWS][4] = {{{0}}};
  long c = 0;
  for (; c + 4 * LANES <= k; c += 4 * LANES) {
    fetch_row_ahead(w + c, 4 * LANES * sizeof *w);
    for (int i = 0; i < rows; i++)
      for (int part = 0; part < 4; part++)
        sum[i][part] += *(const lanes *)(w + c + part * LANES) *
                        *(const lanes *)(x + i * ldx + c + part * LANES);
  }
  for (int i = 0; i < rows; i++) {
    float rest = add ? out[i * ldo] : 0;
    for (long d = c; d < k; d++) rest += x[i * ldx + d] * w[d];
    out[i * ldo] = sum_of_lanes((sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3])) + rest;
  }
}

// out[rows, n] = x[rows, k] w[n, k] transposed, or out += if `add` is true; at most FEW_ROWS rows.
static inline void few_rows_product(float *out, long ldo, const float *x, long ldx, const float *w,
                                    long ldw, int rows, long n, long k, bool add)
{
#pragma omp parallel for schedule(static)
  for (long j = 0; j < n; j++) {
#define COLUMN(m) column_of_floats(out + j, ldo, x, ldx, w + j * ldw, m, k, add)
    FOR_FEW_ROWS(rows, COLUMN)
#undef COLUMN
  }
}

#endif
