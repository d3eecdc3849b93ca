// SPDX-License-Identifier: MIT
// Operations on elements in generated kernels, for C and CUDA.
#ifndef ELEMENTS_H
#define ELEMENTS_H

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __cplusplus
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#endif
#include "base/philox4x32.h"

#ifdef __CUDACC__
#define ELEMENT __host__ __device__ static inline
#else
#define ELEMENT static inline
#endif

// bfloat16, the upper half of a float: stored as such, computed with as a float. Rounded to
// nearest, ties to even; NaN stays NaN.
#ifdef __cplusplus
typedef __nv_bfloat16 bf16;
ELEMENT float bf16_to_float(bf16 x)
{
  return __bfloat162float(x);
}
ELEMENT bf16 float_to_bf16(float x)
{
  return __float2bfloat16_rn(x);
}
#else
typedef uint16_t bf16;
ELEMENT float bf16_to_float(bf16 x)
{
  const uint32_t bits = (uint32_t)x << 16;
  float y;
  memcpy(&y, &bits, sizeof y);
  return y;
}
ELEMENT bf16 float_to_bf16(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
  return (bf16)((x != x ? quiet : nearest) >> 16);
}
#endif

// The maximum of two numbers; NaN if one of them is.
ELEMENT float larger(float a, float b)
{
  return a > b || a != a ? a : b;
}
ELEMENT float smaller(float a, float b)
{
  return a < b || a != a ? a : b;
}
#if defined(_OPENMP) && !defined(__cplusplus)
#pragma omp declare reduction(larger:float                                                         \
                              : omp_out = larger(omp_out, omp_in))                                 \
    initializer(omp_priv = -INFINITY)
#pragma omp declare reduction(smaller:float                                                        \
                              : omp_out = smaller(omp_out, omp_in))                                \
    initializer(omp_priv = INFINITY)
#endif

// float8: E4M3 with three bits after the point, up to 448; wide: E5M2 with two, up to 57344. The
// factor with which numbers up to `largest` fill the range, as torchao has it, rounded down to a
// power of 2 where that is asked for.
ELEMENT float float8_scale(float largest, int wide, int power_of_2)
{
  const float scale = (wide ? 57344.0f : 448.0f) / larger(largest, 1e-12f);
  uint32_t bits;
  float power;
  memcpy(&bits, &scale, sizeof bits);
  bits &= 0x7f800000;
  memcpy(&power, &bits, sizeof power);
  return power_of_2 && scale == scale ? power : scale;
}

// The nearest number of float8, ties to even; numbers beyond the largest become the largest. The
// last bit of `rounder` is the distance between neighbours in float8 at x: adding it rounds.
ELEMENT float to_float8(float x, int wide)
{
  const float most = wide ? 57344.0f : 448.0f, y = x > most ? most : x < -most ? -most : x;
  const uint32_t least = wide ? 0x38800000 : 0x3c800000; // 2^-14, 2^-6
  uint32_t bits;
  float power;
  memcpy(&bits, &y, sizeof bits);
  bits &= 0x7f800000;
  if (bits < least) bits = least;
  memcpy(&power, &bits, sizeof power);
  const float rounder = power * (wide ? 3145728.0f : 1572864.0f); // 1.5 2^21, 1.5 2^20
  return (y + rounder) - rounder;
}
#ifdef __cplusplus
typedef __nv_fp8_storage_t e4m3, e5m2;
ELEMENT e4m3 float_to_e4m3(float x)
{
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
ELEMENT e5m2 float_to_e5m2(float x)
{
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
}
#endif

// The derivative of x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
ELEMENT float gelu_tanh_slope(float x)
{
  const float tanh_u = tanhf(0.79788456f * x * (1 + 0.044715f * x * x));
  const float u_slope = 0.79788456f * (1 + 3 * 0.044715f * x * x);
  return 0.5f * (1 + tanh_u) + 0.5f * x * (1 - tanh_u * tanh_u) * u_slope;
}

// The x whose error function is y: Giles's polynomials.
ELEMENT float inverse_erf(float y)
{
  float w = -log1pf(-y * y);
  if (w < 5) {
    w -= 2.5f;
    float p = 2.81022636e-08f;
    p = 3.43273939e-07f + p * w;
    p = -3.5233877e-06f + p * w;
    p = -4.39150654e-06f + p * w;
    p = 0.00021858087f + p * w;
    p = -0.00125372503f + p * w;
    p = -0.00417768164f + p * w;
    p = 0.246640727f + p * w;
    p = 1.50140941f + p * w;
    return p * y;
  }
  w = sqrtf(w) - 3;
  if (w > 1e30f) return y * INFINITY;
  float p = -0.000200214257f;
  p = 0.000100950558f + p * w;
  p = 0.00134934322f + p * w;
  p = -0.00367342844f + p * w;
  p = 0.00573950773f + p * w;
  p = -0.0076224613f + p * w;
  p = 0.00943887047f + p * w;
  p = 1.00167406f + p * w;
  p = 2.83297682f + p * w;
  return p * y;
}

// The derivative of log(gamma(x)): of large numbers by a series, to which those of smaller ones
// lead; of negative ones by those of 1 - x.
ELEMENT float digamma(float x)
{
  float y = 0;
  if (x == 0) return -1 / x;
  if (x < 0) {
    const float rest = x - floorf(x);
    if (rest == 0) return NAN;
    y = -3.14159265f / tanf(3.14159265f * rest);
    x = 1 - x;
  }
  for (; x < 10; x++) y -= 1 / x;
  const float z = 1 / (x * x);
  float p = 1.0f / 12;
  p = -691.0f / 32760 + p * z;
  p = 1.0f / 132 + p * z;
  p = -1.0f / 240 + p * z;
  p = 1.0f / 252 + p * z;
  p = -1.0f / 120 + p * z;
  p = 1.0f / 12 + p * z;
  return y + logf(x) - 0.5f / x - p * z;
}

// The derivative of digamma.
ELEMENT float trigamma(float x)
{
  float sign = 1, y = 0;
  if (x < 0.5f) {
    const float s = sinf(3.14159265f * (x - floorf(x)));
    sign = -1;
    y = -9.8696044f / (s * s);
    x = 1 - x;
  }
  for (; x < 6; x++) y += 1 / (x * x);
  const float z = 1 / (x * x);
  y += (1 + 0.5f / x + z * (1.0f / 6 - z * (1.0f / 30 - z * (1.0f / 42 - z / 30)))) / x;
  return sign * y;
}

// The derivative of x s, s = 1 / (1 + exp(-x)).
ELEMENT float silu_slope(float x)
{
  const float s = 1 / (1 + expf(-x));
  return s * (1 + x * (1 - s));
}

// Random numbers that depend only on the seed, a number of the stream, the step and an index: not
// on the rank, nor on the order of the calls.
#ifdef __cplusplus
typedef const int *step_number; // in the rank's memory: a launch need not know it
#define NUMBER_OF(step) (*(step))
#else
typedef int step_number;
#define NUMBER_OF(step) (step)
#endif
// Step 0 is a validation.
ELEMENT bool is_training(step_number step)
{
  return NUMBER_OF(step) != 0;
}
struct random_stream {
  uint32_t key[2]; // the seed, low word first
  uint32_t number;
  step_number step;
};
ELEMENT struct random_stream stream_of(unsigned long long seed, long number, step_number step)
{
  struct random_stream s = {{(uint32_t)seed, (uint32_t)(seed >> 32)}, (uint32_t)number, step};
  return s;
}
// The block numbered by the index.
ELEMENT void draw_block(struct random_stream s, long index, uint32_t words[4])
{
  const uint32_t counter[4] = {(uint32_t)index, (uint32_t)((uint64_t)index >> 32), s.number,
                               (uint32_t)NUMBER_OF(s.step)};
  philox4x32(counter, s.key, words);
}
// 0 <= x < 1, in steps of 2^-24: the first word of the block.
ELEMENT float uniform_at(struct random_stream s, long index)
{
  uint32_t words[4];
  draw_block(s, index, words);
  return (float)(words[0] >> 8) * 5.9604645e-8f;
}
// Mean 0 and deviation 1, by Box-Muller of the first two words.
ELEMENT float normal_at(struct random_stream s, long index)
{
  uint32_t words[4];
  draw_block(s, index, words);
  const float x = (float)((words[0] >> 8) + 1) * 5.9604645e-8f;
  return sqrtf(-2 * logf(x)) * cosf((float)(words[1] >> 8) * 3.7450704e-7f);
}
// Of a dropout: as uniform_at; but at step 0, which is not a training step, it is 1: a validation
// drops nothing.
ELEMENT float random_at(struct random_stream s, long index)
{
  return NUMBER_OF(s.step) == 0 ? 1 : uniform_at(s, index);
}
// An element after dropout, by its random number: 0 with the probability p; the others are scaled
// so that the mean stays.
ELEMENT float dropped(float x, float random, float p)
{
  return random < p ? 0 : random < 1 ? x / (1 - p) : x;
}

#endif
