// Kernels on the stand-in for CUDA: bfloat16, dynamic shared memory, copies to shared memory beside
// the work, reductions over a warp, conversions and bit operations.
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "check.h"
#include "on_device.h"

#include <cmath>
#include <vector>

#define FULL 0xffffffffu

// ---- bfloat16

__global__ static void combine(__nv_bfloat16 *y, float *f, const __nv_bfloat16 *a,
                               const __nv_bfloat162 *pairs)
{
  const int i = threadIdx.x;
  const __nv_bfloat16 b = __float2bfloat16(2.5f);
  if (i == 0) y[0] = a[0] + b;
  if (i == 1) y[1] = a[0] * b;
  if (i == 2) y[2] = __hfma(a[0], b, a[1]);
  if (i == 3) y[3] = -a[0];
  if (i == 4) y[4] = __hmax(a[0], b);
  if (i == 5) y[5] = __low2bfloat16(pairs[0] + pairs[1]);
  if (i == 6) y[6] = __high2bfloat16(__hmul2(pairs[0], pairs[1]));
  if (i == 7) y[7] = __shfl_xor_sync(1u << i, a[0], 0);
  if (i == 0) {
    const float2 both = __bfloat1622float2(__floats2bfloat162_rn(1.00390625f, 1.01171875f));
    f[0] = both.x; // halfway between 1 and 1.0078125: to the even one
    f[1] = both.y; // halfway between 1.0078125 and 1.015625: likewise
    f[2] = __bfloat162float(__ushort_as_bfloat16(0x4049));
    f[3] = a[0] < b && a[0] != a[1] && a[1] >= a[1] ? 1.0f : 0.0f;
    f[4] = __bfloat162float(__float2bfloat16_rn(INFINITY));
    f[5] = __bfloat162float(__float2bfloat16_rn(NAN));
    __nv_bfloat16 sum = a[0];
    sum += a[1];
    f[6] = __bfloat162float(sum);
  }
}

static void test_bfloat16()
{
  const float at_first[] = {1.5f, -0.75f};
  on_device<__nv_bfloat16> y(std::vector<__nv_bfloat16>(8)), a({at_first[0], at_first[1]});
  on_device<__nv_bfloat162> pairs({{1.0f, 2.0f}, {3.0f, 4.0f}});
  on_device<float> f(std::vector<float>(7));
  LAUNCH(combine, 1, 8, 0)(y.at, f.at, a.at, pairs.at);
  CHECK(cudaGetLastError() == cudaSuccess);
  const float expected[] = {4.0f, 3.75f, 3.0f, -1.5f, 2.5f, 4.0f, 8.0f, 1.5f};
  const std::vector<__nv_bfloat16> got = y.read();
  for (size_t i = 0; i < 8; i++) CHECK((float)got[i] == expected[i]);
  const std::vector<float> g = f.read();
  CHECK(g[0] == 1.0f && g[1] == 1.015625f && g[2] == 3.140625f && g[3] == 1.0f);
  CHECK(std::isinf(g[4]) && std::isnan(g[5]) && g[6] == 0.75f);
}

// ---- dynamic shared memory

__global__ static void reverse(float *y, const float *x, int n)
{
  DYNAMIC_SHARED(float, tile);
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = tile[n - 1 - i];
}

static void test_dynamic_shared()
{
  for (int n : {1, 100, 12288, 40000}) {
    std::vector<float> x((size_t)n);
    for (int i = 0; i < n; i++) x[(size_t)i] = (float)i;
    on_device<float> in(x), out(x);
    const size_t bytes = (size_t)n * sizeof(float);
    if (bytes > 48 * 1024)
      CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)bytes) == cudaSuccess);
    LAUNCH_SHARED(reverse, 1, 256, bytes, 0)(out.at, in.at, n);
    CHECK(cudaGetLastError() == cudaSuccess);
    const std::vector<float> y = out.read();
    for (int i = 0; i < n; i++) CHECK(y[(size_t)i] == (float)(n - 1 - i));
  }
}

__global__ static void sum_in_stages(float *y, const float *x, int stages)
{
  __shared__ __align__(16) float part[2][128];
  float sum = 0;
  const int i = threadIdx.x * 4;
  __pipeline_memcpy_async(&part[0][i], &x[i], 16);
  __pipeline_commit();
  for (int s = 0; s < stages; s++) {
    if (s + 1 < stages) __pipeline_memcpy_async(&part[(s + 1) % 2][i], &x[(s + 1) * 128 + i], 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    for (int k = 0; k < 128; k++) sum += part[s % 2][k];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}

static void test_pipeline()
{
  const std::vector<float> x(5 * 128, 1.0f);
  on_device<float> in(x), out(std::vector<float>(32));
  LAUNCH(sum_in_stages, 1, 32, 0)(out.at, in.at, 5);
  for (float sum : out.read()) CHECK(sum == 640.0f);
}

// ---- warps and bits

__global__ static void meet(unsigned *y, int *z)
{
  const unsigned lane = threadIdx.x;
  const unsigned sum = __reduce_add_sync(FULL, lane), most = __reduce_max_sync(FULL, lane ^ 5);
  const int least = __reduce_min_sync(FULL, (int)lane - 20);
  const unsigned all = __reduce_or_sync(FULL, 1u << lane), same = __match_any_sync(FULL, lane % 4);
  const int odd = __syncthreads_count(lane % 2);
  if (lane == 3) {
    y[0] = sum;
    y[1] = most;
    y[2] = all;
    y[3] = same;
    y[4] = __brev(1u);
    y[5] = __byte_perm(0x33221100u, 0x77665544u, 0x7250u);
    y[6] = (unsigned)(__popcll(~0ull) + __ffsll(8) + __clzll(1));
    z[0] = least;
    z[1] = odd;
    z[2] = __float2int_rn(2.5f) + __float2int_rz(-2.9f);
    z[3] = __float2int_rd(-0.5f) + __float2int_ru(0.5f);
  }
}

static void test_warps()
{
  on_device<unsigned> y(std::vector<unsigned>(7));
  on_device<int> z(std::vector<int>(4));
  LAUNCH(meet, 1, 32, 0)(y.at, z.at);
  const std::vector<unsigned> u = y.read();
  const std::vector<int> i = z.read();
  CHECK(u[0] == 496 && u[1] == 31 && u[2] == FULL && u[3] == 0x88888888u);
  CHECK(u[4] == 0x80000000u && u[5] == 0x77225500u && u[6] == 64 + 4 + 63);
  CHECK(i[0] == -20 && i[1] == 16 && i[2] == 0 && i[3] == 0);
}

// Many shuffles in a row, of which some lanes can have what they need long before others; then some
// of all lanes, some of half the warp.
__global__ static void exchange(unsigned *y, int rounds)
{
  const unsigned lane = threadIdx.x % 32, half = lane < 16 ? 0xffffu : 0xffff0000u;
  unsigned x = threadIdx.x * 2654435761u;
  for (int r = 0; r < rounds; r++) {
    x = x * 5 + __shfl_sync(FULL, x, r % 32);
    x ^= __shfl_up_sync(FULL, x, 1);
    x += __shfl_xor_sync(FULL, x >> 3, 1 << r % 5);
    if (r % 7 == 3) x += __reduce_add_sync(FULL, x);
    if (r % 11 == 5) x ^= __shfl_xor_sync(half, x, 3);
    if (r % 50 == 49) __syncthreads();
  }
  y[threadIdx.x] = x;
}

static std::vector<unsigned> exchanged(int rounds)
{
  std::vector<unsigned> x(64);
  for (unsigned t = 0; t < 64; t++) x[t] = t * 2654435761u;
  for (int r = 0; r < rounds; r++) {
    std::vector<unsigned> was = x;
    for (unsigned t = 0; t < 64; t++) x[t] = was[t] * 5 + was[t / 32 * 32 + (unsigned)r % 32];
    was = x;
    for (unsigned t = 0; t < 64; t++) x[t] ^= t % 32 ? was[t - 1] : was[t];
    was = x;
    for (unsigned t = 0; t < 64; t++) x[t] += was[t ^ 1u << r % 5] >> 3;
    was = x;
    unsigned sum[2] = {};
    for (unsigned t = 0; t < 64; t++) sum[t / 32] += was[t];
    for (unsigned t = 0; t < 64 && r % 7 == 3; t++) x[t] += sum[t / 32];
    was = x;
    for (unsigned t = 0; t < 64 && r % 11 == 5; t++) x[t] ^= was[t ^ 3];
  }
  return x;
}

static void test_exchange()
{
  const char *const orders[] = {"forward", "backward"};
  for (const char *order : orders) {
    setenv("CUDA_ON_CPU_ORDER", order, 1);
    on_device<unsigned> y(std::vector<unsigned>(64));
    LAUNCH(exchange, 3, 64, 0)(y.at, 200);
    CHECK(y.read() == exchanged(200));
  }
}

int main()
{
  test_exchange();
  test_bfloat16();
  test_dynamic_shared();
  test_pipeline();
  test_warps();
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  puts("bfloat16: ok");
}
