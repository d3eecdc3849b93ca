// SPDX-License-Identifier: MIT
// Tiles of matrices in shared memory, and a warp's products of them on the tensor cores: of
// bfloat16, or of float, computed as TF32. For kernels that work tile by tile.
//
// A tile's rows are padded, so that the rows that a warp loads at once are in different banks. All
// sizes are multiples of 16. A warp's sums, [16 STRIPS, COLUMNS], are in each lane
// float[STRIPS][COLUMNS / 8][4]: for every 16 rows and 8 columns the four elements that mma assigns
// to the lane (cuda/kernels/mma.h): i = 0, 1 of row lane / 4, i = 2, 3 of the row 8 below it,
// columns 2 (lane % 4) and the next.
#ifndef CUDA_TILES_H
#define CUDA_TILES_H

#include <type_traits>

#include "base/elements.h"

#include "cuda/kernels/mma.h"

// The elements in 16 bytes, the terms that one instruction sums, and the distance of a tile's rows
// in elements.
template <class T> constexpr int UNIT = 16 / (int)sizeof(T);
template <class T> constexpr int TERMS = 32 / (int)sizeof(T);
template <class T, int COLUMNS> constexpr int PITCH = COLUMNS + UNIT<T>;
template <int N> constexpr int WHOLE = (N + 15) / 16 * 16;
constexpr int ALL_ROUNDS = 1 << 10; // of a loop: it is unrolled

// Begins to copy ROWS rows of COLUMNS elements, `step` apart, to a tile; the block has THREADS
// threads. Rows from `rows` on, and columns from `columns` on, become zeros. The rows of both
// matrices are aligned to 16 bytes. AT_ONCE of a thread's copies are unrolled: fewer take fewer
// registers.
template <class T, int ROWS, int COLUMNS, int THREADS, int AT_ONCE = ALL_ROUNDS>
__device__ static inline void copy_tile(T *to, const T *from, long step, int rows, int columns)
{
  constexpr int UNITS = COLUMNS / UNIT<T>;
  UNROLL_BY(AT_ONCE)
  for (int i = 0; i < (ROWS * UNITS + THREADS - 1) / THREADS; i++) {
    const int at = i * THREADS + (int)threadIdx.x, row = at / UNITS, c = at % UNITS * UNIT<T>;
    const bool inside = row < rows && c < columns;
    if (ROWS * UNITS % THREADS == 0 || row < ROWS)
      copy_16(to + row * PITCH<T, COLUMNS> + c, inside ? from + row * step + c : from, inside);
  }
}

template <class T> __device__ static inline void round_loaded(unsigned (&x)[4])
{
  if constexpr (std::is_same_v<T, float>) {
    UNROLL_FOR (int i = 0; i < 4; i++) x[i] = to_tf32(__uint_as_float(x[i]));
  }
}

// 16 rows of TERMS elements of a tile, as the left operand of a product.
template <class T>
__device__ static inline void load_left(unsigned (&a)[4], const T *tile, int pitch)
{
  const int lane = (int)threadIdx.x % 32;
  load_matrices(a, tile + lane % 16 * pitch + lane / 16 * UNIT<T>);
  round_loaded<T>(a);
}

// The same as the right operand: two times 8 columns, which are rows of the tile.
template <class T>
__device__ static inline void load_right(unsigned (&b)[4], const T *tile, int pitch)
{
  const int lane = (int)threadIdx.x % 32;
  load_matrices(b, tile + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * UNIT<T>);
  round_loaded<T>(b);
}

// TERMS rows of 16 elements of a tile as the right operand: two times 8 columns. For floats the
// order of the terms is that of sums_as_left.
template <class T>
__device__ static inline void load_right_transposed(unsigned (&b)[4], const T *tile, int pitch)
{
  const int lane = (int)threadIdx.x % 32;
  if constexpr (std::is_same_v<T, float>) {
    UNROLL_FOR (int i = 0; i < 4; i++)
      b[i] = to_tf32(tile[(lane % 4 * 2 + i % 2) * pitch + lane / 4 + i / 2 * 8]);
  } else {
    load_matrices_transposed(b, tile + lane % 16 * pitch + lane / 16 * 8);
  }
}

// TERMS columns of a warp's sums, from the k-th on, as the left operand of a product. For bfloat16
// the lane holds what mma requires. For floats it holds columns 2 in and 2 in + 1, and mma requires
// in and in + 4: the terms are permuted, here and in load_right_transposed.
template <class T, int N>
__device__ static inline void sums_as_left(unsigned (&a)[4], const float (&sum)[N][4], int k)
{
  if constexpr (std::is_same_v<T, float>) {
    UNROLL_FOR (int i = 0; i < 4; i++) a[i] = to_tf32(sum[k / 8][i % 2 * 2 + i / 2]);
  } else {
    UNROLL_FOR (int i = 0; i < 4; i++)
      a[i] = bf16_pair(sum[k / 8 + i / 2][i % 2 * 2], sum[k / 8 + i / 2][i % 2 * 2 + 1]);
  }
}

template <class T>
__device__ static inline void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                       unsigned b1)
{
  if constexpr (std::is_same_v<T, float>)
    mma_tf32(d, a, b0, b1);
  else
    mma_bf16(d, a, b0, b1);
}

// The rows of a warp, 16 STRIPS of a tile of COLUMNS, as the left operand of many products. KEPT:
// in registers, from keep() on; else they are loaded again each time.
template <class T, int STRIPS, int COLUMNS, bool KEPT> struct left_rows {
  const T *tile;
  unsigned kept[KEPT ? COLUMNS / TERMS<T> : 1][STRIPS][4];

  __device__ void load(unsigned (&a)[STRIPS][4], int k) const
  {
    UNROLL_FOR (int m = 0; m < STRIPS; m++)
      load_left(a[m], tile + m * 16 * PITCH<T, COLUMNS> + k, PITCH<T, COLUMNS>);
  }
  __device__ void keep()
  {
    if constexpr (KEPT) {
      UNROLL_FOR (int k = 0; k < COLUMNS; k += TERMS<T>) load(kept[k / TERMS<T>], k);
    }
  }
  __device__ void get(unsigned (&a)[STRIPS][4], int k) const
  {
    if constexpr (KEPT) {
      UNROLL_FOR (int m = 0; m < STRIPS; m++) {
        UNROLL_FOR (int i = 0; i < 4; i++) a[m][i] = kept[k / TERMS<T>][m][i];
      }
    } else {
      load(a, k);
    }
  }
};

// sum += rows * right^T, where the right operand is a tile [8 N, COLUMNS]. AT_ONCE of its rounds
// are unrolled.
template <int AT_ONCE = ALL_ROUNDS, class T, int STRIPS, int N, int COLUMNS, bool KEPT>
__device__ static inline void add_product(float (&sum)[STRIPS][N][4],
                                          const left_rows<T, STRIPS, COLUMNS, KEPT> &rows,
                                          const T *right)
{
  UNROLL_BY(AT_ONCE)
  for (int k = 0; k < COLUMNS; k += TERMS<T>) {
    unsigned a[STRIPS][4];
    rows.get(a, k);
    UNROLL_FOR (int n = 0; n < N; n += 2) {
      unsigned b[4];
      load_right(b, right + 8 * n * PITCH<T, COLUMNS> + k, PITCH<T, COLUMNS>);
      UNROLL_FOR (int m = 0; m < STRIPS; m++) {
        multiply<T>(sum[m][n], a[m], b[0], b[1]);
        multiply<T>(sum[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// sum += left * right, where the left operand is the warp's sums, [16 STRIPS, 8 K], and the right
// operand the first 8 N columns of a tile [8 K, COLUMNS].
template <class T, int COLUMNS, int STRIPS, int K, int N>
__device__ static inline void add_product_of_sums(float (&sum)[STRIPS][N][4],
                                                  const float (&left)[STRIPS][K][4], const T *right)
{
  UNROLL_FOR (int k = 0; k < 8 * K; k += TERMS<T>) {
    unsigned a[STRIPS][4];
    UNROLL_FOR (int m = 0; m < STRIPS; m++) sums_as_left<T>(a[m], left[m], k);
    UNROLL_FOR (int n = 0; n < N; n += 2) {
      unsigned b[4];
      load_right_transposed(b, right + k * PITCH<T, COLUMNS> + 8 * n, PITCH<T, COLUMNS>);
      UNROLL_FOR (int m = 0; m < STRIPS; m++) {
        multiply<T>(sum[m][n], a[m], b[0], b[1]);
        multiply<T>(sum[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Stores two adjacent elements at an even index.
__device__ static inline void store_two(bf16 *to, float x, float y)
{
  *(__nv_bfloat162 *)to = __floats2bfloat162_rn(x, y);
}
__device__ static inline void store_two(float *to, float x, float y)
{
  *(float2 *)to = make_float2(x, y);
}

// 16 bytes of elements, aligned to 16 bytes.
template <class T> struct alignas(16) unit {
  T at[UNIT<T>];
};

#endif
