// Kernels on the stand-in for CUDA: the grid, barriers, shuffles, shared memory, atomics,
// arithmetic. Every check runs with threads in order and again with threads from the last to the
// first.
#include <cuda_runtime.h>

#include "check.h"
#include "on_device.h"

#include <cmath>
#include <vector>

#define FULL 0xffffffffu

// ---- sums over a block

__device__ static inline float block_sum(float x, int warps)
{
  __shared__ float part[32];
  for (int d = 16; d; d /= 2) x += __shfl_xor_sync(FULL, x, d);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < warps; i++) sum += part[i];
  return sum;
}

__global__ static void sum_by_warps(float *y, const float *x)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = block_sum(x[i], blockDim.x / 32);
  float twice = block_sum(sum, blockDim.x / 32); // the same shared variable, at once again
  y[i] = twice / blockDim.x;
}

__global__ static void sum_by_tree(float *y, const float *x, int n)
{
  __shared__ float part[1024];
  int t = threadIdx.x;
  part[t] = x[blockIdx.x * n + t];
  __syncthreads();
  for (int d = 512; d; d /= 2) {
    if (t < d && t + d < n) part[t] += part[t + d];
    __syncthreads();
  }
  y[blockIdx.x * n + t] = part[0];
}

static void test_block_sums()
{
  const int sizes[] = {32, 128, 256, 1000, 1024}, blocks = 5;
  for (int n : sizes) {
    std::vector<float> x((size_t)(blocks * n));
    for (size_t i = 0; i < x.size(); i++) x[i] = (float)(i * 7 % 13);
    on_device<float> in(x), out(std::vector<float>(x.size(), -1.0f));
    for (int tree = n % 32 != 0; tree < 2; tree++) {
      if (tree)
        LAUNCH(sum_by_tree, blocks, n, 0)(out.at, in.at, n);
      else
        LAUNCH(sum_by_warps, blocks, n, 0)(out.at, in.at);
      CHECK(cudaGetLastError() == cudaSuccess);
      std::vector<float> y = out.read();
      for (int b = 0; b < blocks; b++) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += x[(size_t)(b * n + i)];
        for (int i = 0; i < n; i++) CHECK(y[(size_t)(b * n + i)] == sum);
      }
    }
  }
}

// ---- threads that end early

__global__ static void sum_of_those_left(int *y, int left)
{
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if ((int)threadIdx.x >= left) return;
  atomicAdd(&sum, 1);
  __syncthreads();
  y[threadIdx.x] = sum;
}

static void test_early_end()
{
  on_device<int> y(std::vector<int>(100, -1));
  LAUNCH(sum_of_those_left, 1, 100, 0)(y.at, 70);
  std::vector<int> got = y.read();
  for (size_t i = 0; i < 100; i++) CHECK(got[i] == (i < 70 ? 70 : -1));
}

// ---- shuffles

template <class T> __global__ static void shuffle_all(T *y, int width)
{
  int lane = threadIdx.x % 32, n = blockDim.x, t = threadIdx.x;
  T x = (T)(1000 * (t / 32) + lane);
  y[0 * n + t] = __shfl_sync(FULL, x, 5, width);
  y[1 * n + t] = __shfl_up_sync(FULL, x, 3, width);
  y[2 * n + t] = __shfl_down_sync(FULL, x, 3, width);
  y[3 * n + t] = __shfl_xor_sync(FULL, x, 6, width);
  y[4 * n + t] = __shfl_sync(FULL, x, lane / 2, width);
}

template <class T> static void test_shuffles_of()
{
  const int n = 96;
  for (int width = 8; width <= 32; width *= 2) {
    on_device<T> out(std::vector<T>(5 * n));
    LAUNCH(shuffle_all<T>, 1, n, 0)(out.at, width);
    std::vector<T> y = out.read();
    for (int t = 0; t < n; t++) {
      int lane = t % 32, first = lane / width * width, in = lane % width;
      int from[5] = {first + 5, in < 3 ? lane : lane - 3, in + 3 >= width ? lane : lane + 3,
                     lane ^ 6, first + lane / 2 % width};
      for (int i = 0; i < 5; i++) CHECK(y[(size_t)(i * n + t)] == (T)(1000 * (t / 32) + from[i]));
    }
  }
}

// An exclusive-or that leads into the group before takes its value, into the group behind one's
// own.
__global__ static void xor_across(int *y)
{
  y[threadIdx.x] = __shfl_xor_sync(FULL, (int)threadIdx.x, 8, 8);
}

__global__ static void halves_apart(int *y)
{
  int t = threadIdx.x;
  if (t < 16)
    y[t] = __shfl_down_sync(0x0000ffffu, t, 1, 16);
  else
    y[t] = __shfl_up_sync(0xffff0000u, t, 1, 16) + 100;
  __syncwarp();
  y[t] += y[t ^ 31] < 0; // reads only
}

__global__ static void votes(unsigned *y)
{
  int t = threadIdx.x;
  y[t] = __ballot_sync(FULL, t % 3 == 0);
  y[32 + t] = (unsigned)__any_sync(FULL, t == 17);
  y[64 + t] = (unsigned)__all_sync(FULL, t < 32) + 2u * (unsigned)__all_sync(FULL, t < 31);
}

static void test_shuffles()
{
  test_shuffles_of<int>();
  test_shuffles_of<unsigned>();
  test_shuffles_of<long>();
  test_shuffles_of<unsigned long long>();
  test_shuffles_of<float>();
  test_shuffles_of<double>();

  on_device<int> x(std::vector<int>(32));
  LAUNCH(xor_across, 1, 32, 0)(x.at);
  std::vector<int> got = x.read();
  for (int t = 0; t < 32; t++) CHECK(got[(size_t)t] == (t / 8 % 2 ? t - 8 : t));

  on_device<int> h(std::vector<int>(32));
  LAUNCH(halves_apart, 1, 32, 0)(h.at);
  got = h.read();
  for (int t = 0; t < 32; t++)
    CHECK(got[(size_t)t] == (t < 15 ? t + 1 : t == 15 ? 15 : t == 16 ? 116 : t + 99));

  on_device<unsigned> v(std::vector<unsigned>(96));
  LAUNCH(votes, 1, 32, 0)(v.at);
  std::vector<unsigned> vote = v.read();
  for (size_t t = 0; t < 32; t++)
    CHECK(vote[t] == 0x49249249u && vote[32 + t] == 1 && vote[64 + t] == 1);
}

// ---- shared memory

__global__ static void reverse(int *x)
{
  __shared__ int row[64];
  __shared__ int marks[2][32];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  row[t] = x[i];
  marks[t / 32][t % 32] = t;
  __syncthreads();
  x[i] = row[63 - t] + marks[1 - t / 32][31 - t % 32] - (63 - t);
}

static void test_shared()
{
  std::vector<int> x(64 * 3);
  for (size_t i = 0; i < x.size(); i++) x[i] = (int)(i * i);
  on_device<int> d(x);
  LAUNCH(reverse, 3, 64, 0)(d.at);
  std::vector<int> y = d.read();
  for (size_t i = 0; i < x.size(); i++) CHECK(y[i] == x[i / 64 * 64 + 63 - i % 64]);
}

// ---- atomics

__global__ static void count_all(int *n, unsigned *u, unsigned long long *l, float *f, double *d)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&n[0], 1);
  atomicAdd(&n[1], -i);
  atomicMax(&n[2], i);
  atomicMin(&n[3], -i);
  atomicAdd(u, 3u);
  atomicAdd(l, 1ull << 33);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  for (int old = n[4], seen; (seen = atomicCAS(&n[4], old, old + 2)) != old;) old = seen;
  atomicExch(&n[5], 42);
}

static void test_atomics()
{
  const int threads = 96, blocks = 7, all = threads * blocks;
  on_device<int> n(std::vector<int>(6));
  on_device<unsigned> u(std::vector<unsigned>(1));
  on_device<unsigned long long> l(std::vector<unsigned long long>(1));
  on_device<float> f(std::vector<float>(1));
  on_device<double> d(std::vector<double>(1));
  LAUNCH(count_all, blocks, threads, 0)(n.at, u.at, l.at, f.at, d.at);
  std::vector<int> y = n.read();
  CHECK(y[0] == all && y[1] == -all * (all - 1) / 2 && y[2] == all - 1 && y[3] == 1 - all);
  CHECK(y[4] == 2 * all && y[5] == 42 && u.read()[0] == 3u * all);
  CHECK(l.read()[0] == (unsigned long long)all << 33);
  CHECK(f.read()[0] == 0.5f * all && d.read()[0] == 0.25 * all);
}

// ---- the grid

struct sizes {
  int x, y, z;
};

__global__ static void number(int *at, sizes of, double scale)
{
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
      z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x >= of.x || y >= of.y || z >= of.z) return;
  at[(z * of.y + y) * of.x + x] += (int)((10000 * z + 100 * y + x) * scale);
}

__global__ static void describe_grid(unsigned *y)
{
  if (threadIdx.x | threadIdx.y | threadIdx.z) return;
  unsigned *at = y + 6 * ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
  at[0] = gridDim.x, at[1] = gridDim.y, at[2] = gridDim.z;
  at[3] = blockDim.x, at[4] = blockDim.y, at[5] = blockDim.z;
}

static void test_grid()
{
  sizes of = {20, 9, 5};
  on_device<int> d(std::vector<int>(20 * 9 * 5));
  LAUNCH(number, dim3(3, 2, 3), dim3(8, 5, 2), 0)(d.at, of, 2); // 2 is made a double
  std::vector<int> y = d.read();
  for (int i = 0; i < 20 * 9 * 5; i++)
    CHECK(y[(size_t)i] == 2 * (10000 * (i / 180) + 100 * (i / 20 % 9) + i % 20));

  on_device<unsigned> g(std::vector<unsigned>(6 * 24));
  LAUNCH(describe_grid, dim3(2, 3, 4), dim3(5, 6, 7), 0)(g.at);
  std::vector<unsigned> u = g.read();
  const unsigned want[6] = {2, 3, 4, 5, 6, 7};
  for (size_t i = 0; i < u.size(); i++) CHECK(u[i] == want[i % 6]);
}

// ---- arithmetic

__global__ static void compute(float *y, unsigned *u, float four)
{
  y[0] = rsqrtf(four);
  y[1] = __expf(four);
  y[2] = __logf(four);
  y[3] = fmaxf(four, 0);
  y[4] = max(four, 5.0f);
  y[5] = min(four, -INFINITY);
  y[6] = __int_as_float(0x40800000);
  y[7] = __fdividef(four, 8);
  y[8] = (float)max(3, 7) + (float)min(3u, 7u);
  y[9] = sqrtf(four) + fabsf(-four) + tanhf(0) + erff(0) + powf(four, 2) + fmaf(four, 2, 1);
  y[10] = __saturatef(four) + __powf(four, 0.5f);
  float4 v = make_float4(1, 2, 3, four);
  *reinterpret_cast<float4 *>(y + 12) = v;
  u[0] = __umulhi(0xd2511f53u, 0xffffffffu);
  u[1] = __float_as_uint(four);
  u[2] = (unsigned)__popc(0xf0f0u) + 100u * (unsigned)__clz(1) + 10000u * (unsigned)__ffs(8);
  u[3] = (unsigned)(__umul64hi(1ull << 63, 6) + (four == __ldg(&four)));
}

static void test_arithmetic()
{
  on_device<float> f(std::vector<float>(16));
  on_device<unsigned> w(std::vector<unsigned>(4));
  LAUNCH(compute, 1, 1, 0)(f.at, w.at, 4);
  std::vector<float> y = f.read();
  std::vector<unsigned> u = w.read();
  const float want[11] = {0.5f, expf(4), logf(4), 4, 5, -INFINITY, 4, 0.5f, 10, 2 + 4 + 16 + 9, 3};
  for (size_t i = 0; i < 11; i++)
    CHECK(y[i] == want[i] || fabsf(y[i] - want[i]) < 1e-5f * fabsf(want[i]));
  for (size_t i = 0; i < 4; i++) CHECK(y[12 + i] == (float)(i + 1));
  CHECK(u[0] == 0xd2511f52u && u[1] == 0x40800000u && u[2] == 43108 && u[3] == 4);
}

// ---- only on the stand-in: mistakes that show in the result

#ifndef __CUDACC__
__device__ static inline float hasty_sum(float x)
{
  __shared__ float part[4];
  for (int d = 16; d; d /= 2) x += __shfl_xor_sync(FULL, x, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x; // no barrier since the last use
  __syncthreads();
  return part[0] + part[1] + part[2] + part[3];
}

__global__ static void use_hasty_sum(float *y)
{
  float a = hasty_sum(1), b = hasty_sum(2);
  y[threadIdx.x] = a;
  y[128 + threadIdx.x] = b;
}

static bool all_are(const std::vector<float> &y, size_t begin, size_t end, float value)
{
  for (size_t i = begin; i < end; i++)
    if (y[i] != value) return false;
  return true;
}

// The address sanitizer's guards and the poison of shared memory exclude each other.
#if defined(__SANITIZE_ADDRESS__)
#define SHARED_IS_POISONED 0
#elif defined(__has_feature)
#define SHARED_IS_POISONED !__has_feature(address_sanitizer)
#else
#define SHARED_IS_POISONED 1
#endif

__global__ static void read_unset(float *y, int n)
{
  __shared__ float part[32];
  if ((int)threadIdx.x < n) part[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = part[threadIdx.x];
}

static void test_unset_shared()
{
  on_device<float> r(std::vector<float>(32));
  LAUNCH(read_unset, 1, 32, 0)(r.at, 32);
  LAUNCH(read_unset, 1, 32, 0)(r.at, 20);
  std::vector<float> y = r.read();
  for (size_t i = 0; i < 32 && SHARED_IS_POISONED; i++)
    CHECK(i < 20 ? y[i] == 1 : std::isnan(y[i]));
}

static void test_mistakes_show()
{
  on_device<float> h(std::vector<float>(256));
  LAUNCH(use_hasty_sum, 1, 128, 0)(h.at);
  std::vector<float> y = h.read();
  CHECK(!all_are(y, 0, 128, 128) || !all_are(y, 128, 256, 256));

  // Small and large memory is made in two ways.
  for (size_t elements : {size_t(10), size_t(20 << 20)}) {
    float *fresh;
    CHECK(cudaMalloc((void **)&fresh, elements * sizeof *fresh) == cudaSuccess);
    for (size_t from : {size_t(0), elements / 2, elements - 5}) {
      std::vector<float> unset(5);
      cudaMemcpy(unset.data(), fresh + from, 5 * sizeof *fresh, cudaMemcpyDeviceToHost);
      for (float x : unset) CHECK(std::isnan(x));
    }
    cudaFree(fresh);
  }
  test_unset_shared();
}
#else
static void test_mistakes_show()
{
}
#endif

int main()
{
  for (const char *order : {"forward", "backward"}) {
    setenv("CUDA_ON_CPU_ORDER", order, 1);
    test_block_sums();
    test_early_end();
    test_shuffles();
    test_shared();
    test_atomics();
    test_grid();
    test_arithmetic();
    test_mistakes_show();
  }
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  puts("kernels: ok");
}
