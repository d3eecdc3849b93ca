// SPDX-License-Identifier: MIT
// Weights in blocks: of 32 numbers of 8 bits, which are side by side in a row, and their scale; and
// of 64 numbers of 4 bits.
#ifndef WEIGHT_BLOCKS_H
#define WEIGHT_BLOCKS_H

#include <stdint.h>
#include "base/elements.h"

enum { BLOCK_NUMBERS = 32 };

// A number is scale * q. The scale is the largest number's size / 127, rounded up to a bfloat16, so
// that each q is at most 127; q is rounded to the nearest, ties to even.
struct weight_block {
  bf16 scale;
  int8_t q[BLOCK_NUMBERS];
};

// NF4 with double quantization, as QLoRA and bitsandbytes store it. A number is its value, one of
// 16, times the block's size, which is one of 256 sizes times the size of the group of 256 blocks,
// plus an offset. These tables, of floats, are beside the blocks: the NESTED_ of a tensor.
enum { NF4_NUMBERS = 64, NF4_GROUP = 256 };
struct nf4_block {
  uint8_t size, two[NF4_NUMBERS / 2]; // the first of two numbers is in the upper four bits
};
enum {
  NESTED_OFFSET,
  NESTED_SHIFT,       // the first block's place in its group
  NESTED_VALUES,      // 16
  NESTED_SIZES = 18,  // 256
  NESTED_GROUPS = 274 // of each group
};

// The size of block number `at` of the tensor; number i of a block of this size.
ELEMENT float nf4_size(const struct nf4_block *block, const float *nested, long at)
{
  const long group = (at + (long)nested[NESTED_SHIFT]) / NF4_GROUP;
  const float size = nested[NESTED_SIZES + block->size] * nested[NESTED_GROUPS + group];
  return size + nested[NESTED_OFFSET];
}
ELEMENT float nf4_number(const struct nf4_block *block, const float *nested, float size, int i)
{
  const int two = block->two[i / 2];
  return nested[NESTED_VALUES + (i % 2 ? two & 15 : two >> 4)] * size;
}

#ifndef __cplusplus
static inline void weight_block_pack(struct weight_block *to, const float *x)
{
  float most = 0;
  for (int i = 0; i < BLOCK_NUMBERS; i++) most = larger(fabsf(x[i]), most);
  to->scale = float_to_bf16(most / 127);
  if (bf16_to_float(to->scale) * 127 < most) to->scale++;
  const float scale = bf16_to_float(to->scale), per = scale > 0 && scale <= 3e38f ? 1 / scale : 0;
  for (int i = 0; i < BLOCK_NUMBERS; i++) {
    const float q = rintf(x[i] * per);
    to->q[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q == q ? q : 0);
  }
}
#endif

#endif
