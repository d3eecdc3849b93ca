// SPDX-License-Identifier: MIT
// Weights of 8 bits: blocks of 32 numbers, which are side by side in a row, and their scale.
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
