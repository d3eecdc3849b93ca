// A stand-in for CUDA that exists for tests only: the vector types and the arithmetic that nvcc
// gives to device code beyond what <math.h> has. Included by cuda_runtime.h.
#ifndef CUDA_ON_CPU_ARITHMETIC_H
#define CUDA_ON_CPU_ARITHMETIC_H

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
  {
  }
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
  {
  }
};

struct alignas(8) float2 {
  float x, y;
};
struct float3 {
  float x, y, z;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

static inline float2 make_float2(float x, float y)
{
  return {x, y};
}
static inline float3 make_float3(float x, float y, float z)
{
  return {x, y, z};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
  return {x, y, z, w};
}
static inline double2 make_double2(double x, double y)
{
  return {x, y};
}
static inline int2 make_int2(int x, int y)
{
  return {x, y};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
  return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
  return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
  return {x, y, z, w};
}

// The quick variants are computed exactly here: a test must not lean on their last bits. They are
// C functions because <math.h> of some C libraries already declares a few of the names.
extern "C" {
float rsqrtf(float x) noexcept;
double rsqrt(double x) noexcept;
float __expf(float x) noexcept;
float __exp10f(float x) noexcept;
float __logf(float x) noexcept;
float __log2f(float x) noexcept;
float __log10f(float x) noexcept;
float __powf(float x, float y) noexcept;
float __sinf(float x) noexcept;
float __cosf(float x) noexcept;
float __tanf(float x) noexcept;
float __fdividef(float x, float y) noexcept;
float __frcp_rn(float x) noexcept;
float __fsqrt_rn(float x) noexcept;
float __frsqrt_rn(float x) noexcept;
float __fadd_rn(float x, float y) noexcept;
float __fsub_rn(float x, float y) noexcept;
float __fmul_rn(float x, float y) noexcept;
float __fdiv_rn(float x, float y) noexcept;
float __fmaf_rn(float x, float y, float z) noexcept;
float __saturatef(float x) noexcept;
unsigned __umulhi(unsigned x, unsigned y) noexcept;
int __mulhi(int x, int y) noexcept;
unsigned long long __umul64hi(unsigned long long x, unsigned long long y) noexcept;
int __popc(unsigned x) noexcept;
int __clz(int x) noexcept;
int __ffs(int x) noexcept;
unsigned __float_as_uint(float x) noexcept;
float __uint_as_float(unsigned x) noexcept;
int __float_as_int(float x) noexcept;
float __int_as_float(int x) noexcept;
}

template <class T> static inline T __ldg(const T *pointer)
{
  return *pointer;
}

// The pairs that nvcc knows; any other pair is ambiguous there too.
#define CUDA_ON_CPU_MIN_MAX(result, a, b)                                                          \
  static inline result max(a x, b y)                                                               \
  {                                                                                                \
    return (result)x > (result)y ? (result)x : (result)y;                                          \
  }                                                                                                \
  static inline result min(a x, b y)                                                               \
  {                                                                                                \
    return (result)x < (result)y ? (result)x : (result)y;                                          \
  }
CUDA_ON_CPU_MIN_MAX(int, int, int)
CUDA_ON_CPU_MIN_MAX(unsigned, unsigned, unsigned)
CUDA_ON_CPU_MIN_MAX(unsigned, int, unsigned)
CUDA_ON_CPU_MIN_MAX(unsigned, unsigned, int)
CUDA_ON_CPU_MIN_MAX(long, long, long)
CUDA_ON_CPU_MIN_MAX(unsigned long, unsigned long, unsigned long)
CUDA_ON_CPU_MIN_MAX(unsigned long, long, unsigned long)
CUDA_ON_CPU_MIN_MAX(unsigned long, unsigned long, long)
CUDA_ON_CPU_MIN_MAX(long long, long long, long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, long long, unsigned long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef CUDA_ON_CPU_MIN_MAX

static inline float max(float x, float y)
{
  return fmaxf(x, y);
}
static inline float min(float x, float y)
{
  return fminf(x, y);
}
static inline double max(double x, double y)
{
  return fmax(x, y);
}
static inline double min(double x, double y)
{
  return fmin(x, y);
}
static inline double max(float x, double y)
{
  return fmax((double)x, y);
}
static inline double min(float x, double y)
{
  return fmin((double)x, y);
}
static inline double max(double x, float y)
{
  return fmax(x, (double)y);
}
static inline double min(double x, float y)
{
  return fmin(x, (double)y);
}

#endif
