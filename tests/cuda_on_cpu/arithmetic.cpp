// A stand-in for CUDA, for tests only: the arithmetic of device code that <math.h> lacks. Rounding
// is to nearest throughout, as the names with _rn say.
#include "cuda_runtime.h"

#include <climits>

extern "C" {
float rsqrtf(float x) noexcept
{
  return (float)(1 / sqrt((double)x));
}
double rsqrt(double x) noexcept
{
  return 1 / sqrt(x);
}
float __expf(float x) noexcept
{
  return expf(x);
}
float __exp10f(float x) noexcept
{
  return (float)pow(10.0, (double)x);
}
float __logf(float x) noexcept
{
  return logf(x);
}
float __log2f(float x) noexcept
{
  return log2f(x);
}
float __log10f(float x) noexcept
{
  return log10f(x);
}
float __powf(float x, float y) noexcept
{
  return powf(x, y);
}
float __sinf(float x) noexcept
{
  return sinf(x);
}
float __cosf(float x) noexcept
{
  return cosf(x);
}
float __tanf(float x) noexcept
{
  return tanf(x);
}
float __fdividef(float x, float y) noexcept
{
  return x / y;
}
float __frcp_rn(float x) noexcept
{
  return 1 / x;
}
float __fsqrt_rn(float x) noexcept
{
  return sqrtf(x);
}
float __frsqrt_rn(float x) noexcept
{
  return rsqrtf(x);
}
float __fadd_rn(float x, float y) noexcept
{
  return x + y;
}
float __fsub_rn(float x, float y) noexcept
{
  return x - y;
}
float __fmul_rn(float x, float y) noexcept
{
  return x * y;
}
float __fdiv_rn(float x, float y) noexcept
{
  return x / y;
}
float __fmaf_rn(float x, float y, float z) noexcept
{
  return fmaf(x, y, z);
}
float __saturatef(float x) noexcept
{
  return x > 0 ? (x < 1 ? x : 1) : 0; // NaN gives 0
}

// Saturates beyond the range of the result; NaN gives 0.
static int to_int(float x)
{
  if (x != x) return 0;
  return x >= 0x1p31f ? INT_MAX : x < -0x1p31f ? INT_MIN : (int)x;
}

int __float2int_rn(float x) noexcept
{
  return to_int(nearbyintf(x));
}
int __float2int_rz(float x) noexcept
{
  return to_int(truncf(x));
}
int __float2int_rd(float x) noexcept
{
  return to_int(floorf(x));
}
int __float2int_ru(float x) noexcept
{
  return to_int(ceilf(x));
}
unsigned __float2uint_rn(float x) noexcept
{
  const float whole = nearbyintf(x);
  if (!(whole > 0)) return 0;
  return whole >= 0x1p32f ? UINT_MAX : (unsigned)whole;
}
float __int2float_rn(int x) noexcept
{
  return (float)x;
}
float __uint2float_rn(unsigned x) noexcept
{
  return (float)x;
}
float __double2float_rn(double x) noexcept
{
  return (float)x;
}

unsigned __umulhi(unsigned x, unsigned y) noexcept
{
  return (unsigned)((uint64_t)x * y >> 32);
}
int __mulhi(int x, int y) noexcept
{
  return (int)((int64_t)x * y >> 32);
}
unsigned long long __umul64hi(unsigned long long x, unsigned long long y) noexcept
{
  __extension__ typedef unsigned __int128 wide;
  return (unsigned long long)((wide)x * y >> 64);
}
int __popc(unsigned x) noexcept
{
  return __builtin_popcount(x);
}
int __clz(int x) noexcept
{
  return x ? __builtin_clz((unsigned)x) : 32;
}
int __ffs(int x) noexcept
{
  return __builtin_ffs(x);
}
int __popcll(unsigned long long x) noexcept
{
  return __builtin_popcountll(x);
}
int __clzll(long long x) noexcept
{
  return x ? __builtin_clzll((unsigned long long)x) : 64;
}
int __ffsll(long long x) noexcept
{
  return __builtin_ffsll(x);
}
unsigned __brev(unsigned x) noexcept
{
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
  return y;
}
// Each nibble of the selector selects one of the eight bytes of x and y, or its replicated sign.
unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) noexcept
{
  const uint64_t bytes = (uint64_t)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned nibble = selector >> 4 * i & 15, byte = bytes >> 8 * (nibble & 7) & 255;
    result |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return result;
}

unsigned __float_as_uint(float x) noexcept
{
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
float __uint_as_float(unsigned x) noexcept
{
  float value;
  memcpy(&value, &x, sizeof value);
  return value;
}
int __float_as_int(float x) noexcept
{
  return (int)__float_as_uint(x);
}
float __int_as_float(int x) noexcept
{
  return __uint_as_float((unsigned)x);
}
}
