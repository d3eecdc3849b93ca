// A stand-in for CUDA that exists for tests only: bfloat16, which is kept in memory and made of a
// float and a float of it, in place of <cuda_bf16.h>. It has no arithmetic: an expression that
// computes with it, or makes one unasked, does not compile.
#ifndef CUDA_ON_CPU_CUDA_BF16_H
#define CUDA_ON_CPU_CUDA_BF16_H

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  unsigned short bits;
};
static_assert(sizeof(__nv_bfloat16) == 2, "bfloat16 has two bytes");

static inline float __bfloat162float(__nv_bfloat16 x)
{
  const uint32_t bits = (uint32_t)x.bits << 16;
  float y;
  memcpy(&y, &bits, sizeof y);
  return y;
}
// To the nearest, of two as near to the even one. Of every NaN the device makes the same.
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return {0x7fff};
  return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

#endif
