// A stand-in for CUDA that exists for tests only: the arithmetic that nvcc gives to device
// code beyond what <math.h> has. Included by cuda_runtime.h.
#ifndef CUDA_ON_CPU_ARITHMETIC_H
#define CUDA_ON_CPU_ARITHMETIC_H

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
int __float2int_rn(float x) noexcept;
int __float2int_rz(float x) noexcept;
int __float2int_rd(float x) noexcept;
int __float2int_ru(float x) noexcept;
unsigned __float2uint_rn(float x) noexcept;
float __int2float_rn(int x) noexcept;
float __uint2float_rn(unsigned x) noexcept;
float __double2float_rn(double x) noexcept;
unsigned __umulhi(unsigned x, unsigned y) noexcept;
int __mulhi(int x, int y) noexcept;
unsigned long long __umul64hi(unsigned long long x, unsigned long long y) noexcept;
int __popc(unsigned x) noexcept;
int __clz(int x) noexcept;
int __ffs(int x) noexcept;
int __popcll(unsigned long long x) noexcept;
int __clzll(long long x) noexcept;
int __ffsll(long long x) noexcept;
unsigned __brev(unsigned x) noexcept;
unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) noexcept;
unsigned __float_as_uint(float x) noexcept;
float __uint_as_float(unsigned x) noexcept;
int __float_as_int(float x) noexcept;
float __int_as_float(int x) noexcept;
}

// Loads and stores that tell a cache what to do; there is none to tell.
#define CUDA_ON_CPU_LOAD(name)                                                                     \
  template <class T> static inline T name(const T *pointer)                                        \
  {                                                                                                \
    return *pointer;                                                                               \
  }
CUDA_ON_CPU_LOAD(__ldg)
CUDA_ON_CPU_LOAD(__ldca)
CUDA_ON_CPU_LOAD(__ldcg)
CUDA_ON_CPU_LOAD(__ldcs)
CUDA_ON_CPU_LOAD(__ldlu)
#undef CUDA_ON_CPU_LOAD
#define CUDA_ON_CPU_STORE(name)                                                                    \
  template <class T> static inline void name(T *pointer, T value)                                  \
  {                                                                                                \
    *pointer = value;                                                                              \
  }
CUDA_ON_CPU_STORE(__stwb)
CUDA_ON_CPU_STORE(__stcg)
CUDA_ON_CPU_STORE(__stcs)
CUDA_ON_CPU_STORE(__stwt)
#undef CUDA_ON_CPU_STORE

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
