// A stand-in for CUDA that exists for tests only: conversions to float8, in place of <cuda_fp8.h>.
// Codes without their sign are in the order of their numbers, so the nearest is found among them.
#ifndef CUDA_ON_CPU_CUDA_FP8_H
#define CUDA_ON_CPU_CUDA_FP8_H

#include "cuda_runtime.h"

typedef unsigned char __nv_fp8_storage_t;
typedef enum { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

static inline float cuda_on_cpu_float8(unsigned char code, __nv_fp8_interpretation_t type)
{
  const int bits = type == __NV_E4M3 ? 3 : 2, bias = type == __NV_E4M3 ? 7 : 15;
  const int exponent = (code & 127) >> bits, fraction = code & ((1 << bits) - 1);
  const bool is_nan = type == __NV_E4M3 ? (code & 127) == 127 : exponent == 31 && fraction;
  const float one = exponent ? 1.0f : 0.0f,
              last = ldexpf(1, (exponent ? exponent : 1) - bias - bits);
  float x = (one * (float)(1 << bits) + (float)fraction) * last;
  if (type == __NV_E5M2 && exponent == 31) x = INFINITY;
  if (is_nan) x = NAN;
  return code & 128 ? -x : x;
}

// To the nearest, of two as near to the one with the even code.
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(const float x,
                                                       const __nv_saturation_t beyond,
                                                       const __nv_fp8_interpretation_t type)
{
  static_assert(__NV_SATFINITE == 1, "only what saturates is here");
  (void)beyond;
  const unsigned char sign = signbit(x) ? 128 : 0;
  int low = 0, high = type == __NV_E4M3 ? 0x7e : 0x7b;
  const float size = fabsf(x);
  if (x != x) return 0x7f;
  if (size >= cuda_on_cpu_float8((unsigned char)high, type)) return (unsigned char)(sign | high);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (cuda_on_cpu_float8((unsigned char)middle, type) <= size)
      low = middle;
    else
      high = middle;
  }
  const float below = size - cuda_on_cpu_float8((unsigned char)low, type);
  const float above = cuda_on_cpu_float8((unsigned char)high, type) - size;
  const int nearest = below < above || (below == above && low % 2 == 0) ? low : high;
  return (unsigned char)(sign | nearest);
}

#endif
