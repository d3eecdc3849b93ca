// SPDX-License-Identifier: MIT
// Products of squares of 64 x 64 floats by a block of 256 threads, without tensor cores: for
// kernels that work square by square. The sums are in registers: a thread has 4 rows and 4 columns,
// those from 4 (t / 16) and from 4 (t % 16) on. In shared memory a square's rows are 68 floats
// apart, so that threads store columns side by side without bank conflicts and load four floats at
// once.
#ifndef CUDA_SQUARES_H
#define CUDA_SQUARES_H

#include "base/elements.h"

#include "cuda/kernels/mma.h"

constexpr int SQUARE = 64, HALF_SQUARE = 32;
typedef float square_row[SQUARE + 4];

__device__ static inline float to_float(float x)
{
  return x;
}
__device__ static inline float to_float(bf16 x)
{
  return bf16_to_float(x);
}
__device__ static inline void put_float(float *to, float x)
{
  *to = x;
}
__device__ static inline void put_float(bf16 *to, float x)
{
  *to = float_to_bf16(x);
}

// 32 columns of 64 rows, transposed: to[column][row]; zeros beyond `rows` and `columns`.
template <class T>
__device__ static inline void load_transposed(square_row *to, const T *from, long step, long rows,
                                              int columns)
{
  const int t = (int)threadIdx.x;
  UNROLL_FOR (int i = 0; i < 8; i++) {
    const int row = t / 8 + i / 4 * 32, c = t % 8 + i % 4 * 8;
    to[c][row] = row < rows && c < columns ? to_float(from[row * step + c]) : 0;
  }
}

// 64 columns of 32 rows: to[row][column].
template <class T>
__device__ static inline void load_straight(square_row *to, const T *from, long step, long rows,
                                            int columns)
{
  const int t = (int)threadIdx.x, c = t % SQUARE;
  UNROLL_FOR (int i = 0; i < 8; i++) {
    const int row = t / SQUARE + i * 4;
    to[row][c] = row < rows && c < columns ? to_float(from[row * step + c]) : 0;
  }
}

// sum[i][j] += the products of a[n][i] and b[n][j] for 32 n.
__device__ static inline void add_outer(float (&sum)[4][4], const square_row *a,
                                        const square_row *b)
{
  const int t = (int)threadIdx.x, row = t / 16 * 4, column = t % 16 * 4;
  UNROLL_FOR (int n = 0; n < HALF_SQUARE; n++) {
    const float4 x = *(const float4 *)&a[n][row], y = *(const float4 *)&b[n][column];
    const float left[4] = {x.x, x.y, x.z, x.w}, right[4] = {y.x, y.y, y.z, y.w};
    UNROLL_FOR (int i = 0; i < 4; i++) {
      UNROLL_FOR (int j = 0; j < 4; j++) sum[i][j] += left[i] * right[j];
    }
  }
}

// Rows of a matrix: `rows` of `columns` elements, `step` apart.
template <class T> struct matrix_rows {
  const T *at;
  long step, rows;
  int columns;
};

// sum += a b^T for 64 rows of each, with the same number of columns. `room`: two halves of a
// square.
template <class T>
__device__ static inline void add_rows_by_rows(float (&sum)[4][4], matrix_rows<T> a,
                                               matrix_rows<T> b, square_row *room)
{
  for (int c = 0; c < a.columns; c += HALF_SQUARE) {
    __syncthreads();
    load_transposed(room, a.at + c, a.step, a.rows, a.columns - c);
    load_transposed(room + HALF_SQUARE, b.at + c, b.step, b.rows, b.columns - c);
    __syncthreads();
    add_outer(sum, room, room + HALF_SQUARE);
  }
}

// Stores the threads' sums as a square, transposed.
__device__ static inline void store_transposed(square_row *to, const float (&sum)[4][4])
{
  const int t = (int)threadIdx.x, row = t / 16 * 4, column = t % 16 * 4;
  UNROLL_FOR (int j = 0; j < 4; j++)
    *(float4 *)&to[column + j][row] = make_float4(sum[0][j], sum[1][j], sum[2][j], sum[3][j]);
}

// sum[n] += a b for the n-th 64 columns of b, over 64 rows of b; a is stored transposed.
template <class T, int N>
__device__ static inline void add_square_by_rows(float (&sum)[N][4][4], const square_row *a,
                                                 matrix_rows<T> b, square_row *room)
{
  UNROLL_FOR (int n = 0; n < N; n++) {
    for (int from = 0; from < SQUARE && from < b.rows; from += HALF_SQUARE) {
      __syncthreads();
      load_straight(room, b.at + from * b.step + n * SQUARE, b.step, b.rows - from,
                    b.columns - n * SQUARE);
      __syncthreads();
      add_outer(sum[n], a + from, room);
    }
  }
}

#endif
