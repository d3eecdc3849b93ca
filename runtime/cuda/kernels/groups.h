// SPDX-License-Identifier: MIT
// Products of bfloat16 matrices whose rows are in groups of sizes known at run time, a matrix for
// each group, on the tensor cores: the experts of a mixture. The rows of the first group come
// first. All begin at multiples of 16 bytes, and so does each row.
//
// A block makes a tile of the result, each of its warps a part of that. It copies some terms of
// both operands to shared memory, in stages: while it multiplies one, the next ones arrive. There
// are blocks for as many tiles as the groups can have; those without a tile end at once.
#ifndef CUDA_GROUPS_H
#define CUDA_GROUPS_H

#include "cuda/kernels/tiles.h"

// Rows and columns of a block's tile, the terms of a stage, the stages, and the threads; of a
// warp's part the strips of 16 rows, and the columns.
constexpr int GROUP_TILE = 128, GROUP_TERMS = 32, GROUP_STAGES = 3, GROUP_THREADS = 256;
constexpr int GROUP_STRIPS = 2, GROUP_COLUMNS = 64;

// The rows of a tile of the result; each group has its own tiles.
struct group_rows {
  long group, first;
  int rows; // 0: there are fewer tiles
};

__device__ static inline group_rows rows_of_tile(const int *counts, long groups, long tile)
{
  long first = 0;
  for (long g = 0; g < groups; g++) {
    const long here = tile * GROUP_TILE;
    if (here < counts[g]) return {g, first + here, (int)(counts[g] - here)};
    tile -= (counts[g] + GROUP_TILE - 1) / GROUP_TILE;
    first += counts[g];
  }
  return {groups, first, 0};
}

__device__ static inline long first_of_group(const int *counts, long group)
{
  long first = 0;
  for (long g = 0; g < group; g++) first += counts[g];
  return first;
}

// A stage of an operand, [GROUP_TILE, GROUP_TERMS], or transposed, [GROUP_TERMS, GROUP_TILE].
template <bool TRANSPOSED>
constexpr int GROUP_PITCH = PITCH<bf16, TRANSPOSED ? GROUP_TILE : GROUP_TERMS>;
template <bool TRANSPOSED>
constexpr int GROUP_ROOM = (TRANSPOSED ? GROUP_TERMS : GROUP_TILE) * GROUP_PITCH<TRANSPOSED>;
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED>
constexpr int GROUP_BYTES = GROUP_STAGES *(GROUP_ROOM<LEFT_TRANSPOSED> +
                                           GROUP_ROOM<RIGHT_TRANSPOSED>)*(int)sizeof(bf16);

// A matrix in memory: [lines, terms], or transposed, [terms, lines]. From `lines` and `terms` on it
// is taken for zeros.
struct group_operand {
  const bf16 *at;
  int step, lines, terms;
};

__device__ static inline int at_most(int n, int most)
{
  return n < most ? n : most;
}

template <bool TRANSPOSED>
__device__ static inline void copy_stage(bf16 *to, const group_operand &from, int term)
{
  const int lines = at_most(from.lines, GROUP_TILE);
  const int terms = at_most(from.terms - term, GROUP_TERMS);
  if constexpr (TRANSPOSED)
    copy_tile<bf16, GROUP_TERMS, GROUP_TILE, GROUP_THREADS>(to, from.at + (long)term * from.step,
                                                            from.step, terms, lines);
  else
    copy_tile<bf16, GROUP_TILE, GROUP_TERMS, GROUP_THREADS>(to, from.at + term, from.step, lines,
                                                            terms);
}

// 16 columns of 16 rows of a tile, as the left operand of a product: transposed.
__device__ static inline void load_left_transposed(unsigned (&a)[4], const bf16 *tile, int pitch)
{
  const int lane = (int)threadIdx.x % 32;
  load_matrices_transposed(a, tile + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8);
}

// A warp's sums += its lines of a stage of the left operand, times those of the right one. Loops
// that are not unrolled leave registers for a second block on a multiprocessor.
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED>
__device__ static inline void multiply_stage(float (&sum)[GROUP_STRIPS][GROUP_COLUMNS / 8][4],
                                             const bf16 *left, const bf16 *right)
{
  constexpr int LEFT = GROUP_PITCH<LEFT_TRANSPOSED>, RIGHT = GROUP_PITCH<RIGHT_TRANSPOSED>;
  ROLLED_FOR (int k = 0; k < GROUP_TERMS; k += 16) {
    unsigned a[GROUP_STRIPS][4];
    UNROLL_FOR (int m = 0; m < GROUP_STRIPS; m++) {
      if constexpr (LEFT_TRANSPOSED)
        load_left_transposed(a[m], left + k * LEFT + 16 * m, LEFT);
      else
        load_left(a[m], left + 16 * m * LEFT + k, LEFT);
    }
    UNROLL_FOR (int n = 0; n < GROUP_COLUMNS / 8; n += 2) {
      unsigned b[4];
      if constexpr (RIGHT_TRANSPOSED)
        load_right_transposed(b, right + k * RIGHT + 8 * n, RIGHT);
      else
        load_right(b, right + 8 * n * RIGHT + k, RIGHT);
      UNROLL_FOR (int m = 0; m < GROUP_STRIPS; m++) {
        mma_bf16(sum[m][n], a[m], b[0], b[1]);
        mma_bf16(sum[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// A tile of the result: the sums over the terms of products of the left operand's lines and the
// right one's. There are GROUP_THREADS threads, and GROUP_BYTES of shared memory.
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, class OUT>
__device__ static inline void multiply_tile(OUT *out, int step, const group_operand &left,
                                            const group_operand &right, bf16 *shared)
{
  constexpr int ROOM = GROUP_ROOM<LEFT_TRANSPOSED> + GROUP_ROOM<RIGHT_TRANSPOSED>;
  constexpr int ACROSS = GROUP_TILE / GROUP_COLUMNS;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const int row = warp / ACROSS * 16 * GROUP_STRIPS, column = warp % ACROSS * GROUP_COLUMNS;
  const int left_at = LEFT_TRANSPOSED ? row : row * GROUP_PITCH<false>;
  const int right_at = RIGHT_TRANSPOSED ? column : column * GROUP_PITCH<false>;
  float sum[GROUP_STRIPS][GROUP_COLUMNS / 8][4] = {};
  const auto begin_copy = [&](int term, int stage) {
    bf16 *const to = shared + stage * ROOM;
    if (term < left.terms) {
      copy_stage<LEFT_TRANSPOSED>(to, left, term);
      copy_stage<RIGHT_TRANSPOSED>(to + GROUP_ROOM<LEFT_TRANSPOSED>, right, term);
    }
    end_copies();
  };

  for (int i = 0; i < GROUP_STAGES - 1; i++) begin_copy(i * GROUP_TERMS, i);
  ROLLED_FOR (int term = 0, stage = 0; term < left.terms; term += GROUP_TERMS) {
    const bf16 *const from = shared + stage * ROOM;
    wait_for_copies<GROUP_STAGES - 2>();
    __syncthreads(); // no thread reads the previous stage any more: it is the next copy's place
    begin_copy(term + (GROUP_STAGES - 1) * GROUP_TERMS, stage == 0 ? GROUP_STAGES - 1 : stage - 1);
    stage = stage == GROUP_STAGES - 1 ? 0 : stage + 1;
    multiply_stage<LEFT_TRANSPOSED, RIGHT_TRANSPOSED>(
        sum, from + left_at, from + GROUP_ROOM<LEFT_TRANSPOSED> + right_at);
  }
  wait_for_copies<0>();

  UNROLL_FOR (int m = 0; m < GROUP_STRIPS; m++) {
    UNROLL_FOR (int h = 0; h < 2; h++) {
      const int line = row + 16 * m + 8 * h + lane / 4;
      UNROLL_FOR (int n = 0; n < GROUP_COLUMNS / 8; n++) {
        const int at = column + 8 * n + lane % 4 * 2;
        if (line < left.lines && at < right.lines)
          store_two(out + (long)line * step + at, sum[m][n][2 * h], sum[m][n][2 * h + 1]);
      }
    }
  }
}

#endif
