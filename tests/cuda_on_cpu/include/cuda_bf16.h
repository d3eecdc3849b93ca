// A stand-in for CUDA that exists for tests only: bfloat16 and pairs of it, in place of
// <cuda_bf16.h>. Each operation is done in float and rounded to the nearest, of two as near to the
// even one. What the device does within its instructions alone (approximations, saturation, other
// roundings) is not here and does not compile.
#ifndef CUDA_ON_CPU_CUDA_BF16_H
#define CUDA_ON_CPU_CUDA_BF16_H

#include "cuda_runtime.h"

static inline unsigned short cuda_on_cpu_round_to_bfloat16(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return 0x7fff; // of every NaN the device makes the same
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(cuda_on_cpu_round_to_bfloat16(x))
  {
  }
  __nv_bfloat16(double x) : bits(cuda_on_cpu_round_to_bfloat16((float)x))
  {
  }
  __nv_bfloat16(int x) : bits(cuda_on_cpu_round_to_bfloat16((float)x))
  {
  }
  __nv_bfloat16(const __nv_bfloat16_raw &raw) : bits(raw.x)
  {
  }
  operator __nv_bfloat16_raw() const
  {
    return {bits};
  }
  operator float() const
  {
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
  }

private:
  unsigned short bits;
};
static_assert(sizeof(__nv_bfloat16) == 2, "bfloat16 has two bytes");

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(const __nv_bfloat16 &low, const __nv_bfloat16 &high) : x(low), y(high)
  {
  }
};
static_assert(sizeof(__nv_bfloat162) == 4, "a pair of bfloat16 has four bytes");

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

// ---- from and to other types

static inline float __bfloat162float(const __nv_bfloat16 x)
{
  return (float)x;
}
static inline __nv_bfloat16 __float2bfloat16(const float x)
{
  return __nv_bfloat16(x);
}
static inline __nv_bfloat16 __float2bfloat16_rn(const float x)
{
  return __nv_bfloat16(x);
}
static inline __nv_bfloat16 __int2bfloat16_rn(const int x)
{
  return __nv_bfloat16(x);
}
static inline unsigned short __bfloat16_as_ushort(const __nv_bfloat16 x)
{
  return ((__nv_bfloat16_raw)x).x;
}
static inline __nv_bfloat16 __ushort_as_bfloat16(const unsigned short bits)
{
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
static inline __nv_bfloat162 make_bfloat162(const __nv_bfloat16 x, const __nv_bfloat16 y)
{
  return {x, y};
}
static inline __nv_bfloat162 __halves2bfloat162(const __nv_bfloat16 x, const __nv_bfloat16 y)
{
  return {x, y};
}
static inline __nv_bfloat162 __bfloat162bfloat162(const __nv_bfloat16 x)
{
  return {x, x};
}
static inline __nv_bfloat162 __float2bfloat162_rn(const float x)
{
  return {x, x};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(const float x, const float y)
{
  return {x, y};
}
static inline __nv_bfloat162 __float22bfloat162_rn(const float2 x)
{
  return {x.x, x.y};
}
static inline float2 __bfloat1622float2(const __nv_bfloat162 x)
{
  return {(float)x.x, (float)x.y};
}
static inline float __low2float(const __nv_bfloat162 x)
{
  return (float)x.x;
}
static inline float __high2float(const __nv_bfloat162 x)
{
  return (float)x.y;
}
static inline __nv_bfloat16 __low2bfloat16(const __nv_bfloat162 x)
{
  return x.x;
}
static inline __nv_bfloat16 __high2bfloat16(const __nv_bfloat162 x)
{
  return x.y;
}

// ---- arithmetic and comparison, of one and of pairs

#define CUDA_ON_CPU_BINARY(one, pair, result)                                                      \
  static inline __nv_bfloat16 one(const __nv_bfloat16 a_, const __nv_bfloat16 b_)                  \
  {                                                                                                \
    const float a = a_, b = b_;                                                                    \
    return __nv_bfloat16(result);                                                                  \
  }                                                                                                \
  static inline __nv_bfloat162 pair(const __nv_bfloat162 a, const __nv_bfloat162 b)                \
  {                                                                                                \
    return {one(a.x, b.x), one(a.y, b.y)};                                                         \
  }
CUDA_ON_CPU_BINARY(__hadd, __hadd2, a + b)
CUDA_ON_CPU_BINARY(__hsub, __hsub2, a - b)
CUDA_ON_CPU_BINARY(__hmul, __hmul2, a *b)
CUDA_ON_CPU_BINARY(__hadd_rn, __hadd2_rn, a + b)
CUDA_ON_CPU_BINARY(__hsub_rn, __hsub2_rn, a - b)
CUDA_ON_CPU_BINARY(__hmul_rn, __hmul2_rn, a *b)
CUDA_ON_CPU_BINARY(__hdiv, __h2div, a / b)
CUDA_ON_CPU_BINARY(__hmax, __hmax2, fmaxf(a, b))
CUDA_ON_CPU_BINARY(__hmin, __hmin2, fminf(a, b))
CUDA_ON_CPU_BINARY(__hmax_nan, __hmax2_nan, a > b || a != a ? a : b)
CUDA_ON_CPU_BINARY(__hmin_nan, __hmin2_nan, a < b || a != a ? a : b)
#undef CUDA_ON_CPU_BINARY

static inline __nv_bfloat16 __hneg(const __nv_bfloat16 x)
{
  return __ushort_as_bfloat16(__bfloat16_as_ushort(x) ^ 0x8000);
}
static inline __nv_bfloat16 __habs(const __nv_bfloat16 x)
{
  return __ushort_as_bfloat16(__bfloat16_as_ushort(x) & 0x7fff);
}
static inline __nv_bfloat162 __hneg2(const __nv_bfloat162 x)
{
  return {__hneg(x.x), __hneg(x.y)};
}
static inline __nv_bfloat162 __habs2(const __nv_bfloat162 x)
{
  return {__habs(x.x), __habs(x.y)};
}

// Rounded to float first; that this changes the last bit is so rare that no test may lean on it.
static inline __nv_bfloat16 __hfma(const __nv_bfloat16 a, const __nv_bfloat16 b,
                                   const __nv_bfloat16 c)
{
  return __nv_bfloat16(fmaf((float)a, (float)b, (float)c));
}
static inline __nv_bfloat162 __hfma2(const __nv_bfloat162 a, const __nv_bfloat162 b,
                                     const __nv_bfloat162 c)
{
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

static inline bool __hisnan(const __nv_bfloat16 x)
{
  return (float)x != (float)x;
}

#define CUDA_ON_CPU_COMPARE(name, operation)                                                       \
  static inline bool name(const __nv_bfloat16 a, const __nv_bfloat16 b)                            \
  {                                                                                                \
    return (float)a operation(float) b;                                                            \
  }                                                                                                \
  static inline bool operator operation(const __nv_bfloat16 &a, const __nv_bfloat16 &b)            \
  {                                                                                                \
    return (float)a operation(float) b;                                                            \
  }
CUDA_ON_CPU_COMPARE(__heq, ==)
CUDA_ON_CPU_COMPARE(__hne, !=)
CUDA_ON_CPU_COMPARE(__hlt, <)
CUDA_ON_CPU_COMPARE(__hle, <=)
CUDA_ON_CPU_COMPARE(__hgt, >)
CUDA_ON_CPU_COMPARE(__hge, >=)
#undef CUDA_ON_CPU_COMPARE

#define CUDA_ON_CPU_OPERATOR(operation, one, pair)                                                 \
  static inline __nv_bfloat16 operator operation(const __nv_bfloat16 &a, const __nv_bfloat16 &b)   \
  {                                                                                                \
    return one(a, b);                                                                              \
  }                                                                                                \
  static inline __nv_bfloat16 &operator operation##=(__nv_bfloat16 &a, const __nv_bfloat16 &b)     \
  {                                                                                                \
    return a = one(a, b);                                                                          \
  }                                                                                                \
  static inline __nv_bfloat162 operator operation(const __nv_bfloat162 &a,                         \
                                                  const __nv_bfloat162 &b)                         \
  {                                                                                                \
    return pair(a, b);                                                                             \
  }                                                                                                \
  static inline __nv_bfloat162 &operator operation##=(__nv_bfloat162 &a, const __nv_bfloat162 &b)  \
  {                                                                                                \
    return a = pair(a, b);                                                                         \
  }
CUDA_ON_CPU_OPERATOR(+, __hadd, __hadd2)
CUDA_ON_CPU_OPERATOR(-, __hsub, __hsub2)
CUDA_ON_CPU_OPERATOR(*, __hmul, __hmul2)
CUDA_ON_CPU_OPERATOR(/, __hdiv, __h2div)
#undef CUDA_ON_CPU_OPERATOR

static inline __nv_bfloat16 operator-(const __nv_bfloat16 &x)
{
  return __hneg(x);
}
static inline __nv_bfloat162 operator-(const __nv_bfloat162 &x)
{
  return __hneg2(x);
}

// ---- shuffles

#define CUDA_ON_CPU_SHUFFLE(name, call, T, by)                                                     \
  static inline T name(unsigned mask, T value, by argument, int width = 32,                        \
                       const char *file = __builtin_FILE(), int line = __builtin_LINE())           \
  {                                                                                                \
    return cuda_on_cpu::shuffle_any(cuda_on_cpu::warp_call::call, mask, value, (int)argument,      \
                                    width, file, line);                                            \
  }
CUDA_ON_CPU_SHUFFLE(__shfl_sync, shfl, __nv_bfloat16, int)
CUDA_ON_CPU_SHUFFLE(__shfl_up_sync, shfl_up, __nv_bfloat16, unsigned)
CUDA_ON_CPU_SHUFFLE(__shfl_down_sync, shfl_down, __nv_bfloat16, unsigned)
CUDA_ON_CPU_SHUFFLE(__shfl_xor_sync, shfl_xor, __nv_bfloat16, int)
CUDA_ON_CPU_SHUFFLE(__shfl_sync, shfl, __nv_bfloat162, int)
CUDA_ON_CPU_SHUFFLE(__shfl_up_sync, shfl_up, __nv_bfloat162, unsigned)
CUDA_ON_CPU_SHUFFLE(__shfl_down_sync, shfl_down, __nv_bfloat162, unsigned)
CUDA_ON_CPU_SHUFFLE(__shfl_xor_sync, shfl_xor, __nv_bfloat162, int)
#undef CUDA_ON_CPU_SHUFFLE

#endif
