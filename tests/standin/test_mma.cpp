// A warp's products of small matrices, the loads that bring them, and copies beside a thread: the
// place of each element in the lanes' registers, as PTX's manual has it. Runs on the stand-in, and
// is ordinary CUDA for nvcc.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "../../runtime/cuda/kernels/mma.h"
#include "check.h"
#include "on_device.h"

#include <cstring>
#include <vector>

// ---- products of matrices that lie in global memory, row by row

__global__ static void product_bf16(float *d, const float *a, const float *b)
{
  const int group = (int)threadIdx.x / 4, in = (int)threadIdx.x % 4;
  unsigned left[4], right[2];
  for (int i = 0; i < 4; i++) {
    const float *const from = a + (group + i % 2 * 8) * 16 + 2 * in + i / 2 * 8;
    left[i] = bf16_pair(from[0], from[1]);
  }
  for (int i = 0; i < 2; i++) {
    const float *const from = b + (2 * in + i * 8) * 8 + group;
    right[i] = bf16_pair(from[0], from[8]);
  }
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = d[(group + i / 2 * 8) * 8 + 2 * in + i % 2];
  mma_bf16(sum, left, right[0], right[1]);
  for (int i = 0; i < 4; i++) d[(group + i / 2 * 8) * 8 + 2 * in + i % 2] = sum[i];
}

__global__ static void product_tf32(float *d, const float *a, const float *b)
{
  const int group = (int)threadIdx.x / 4, in = (int)threadIdx.x % 4;
  unsigned left[4], right[2];
  for (int i = 0; i < 4; i++) left[i] = to_tf32(a[(group + i % 2 * 8) * 8 + in + i / 2 * 4]);
  for (int i = 0; i < 2; i++) right[i] = to_tf32(b[(in + i * 4) * 8 + group]);
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = d[(group + i / 2 * 8) * 8 + 2 * in + i % 2];
  mma_tf32(sum, left, right[0], right[1]);
  for (int i = 0; i < 4; i++) d[(group + i / 2 * 8) * 8 + 2 * in + i % 2] = sum[i];
}

// Small whole numbers: every sum is exact, in bfloat16 and in TF32.
static std::vector<float> numbers(size_t n, unsigned seed)
{
  std::vector<float> x(n);
  for (float &y : x) y = (float)((int)((seed = seed * 1664525u + 1013904223u) >> 24) % 17 - 8);
  return x;
}

static void test_products()
{
  for (int terms = 8; terms <= 16; terms += 8) {
    std::vector<float> a = numbers((size_t)(16 * terms), 1), b = numbers((size_t)(terms * 8), 2);
    std::vector<float> sum = numbers(16 * 8, 3);
    on_device<float> to(sum), left(a), right(b);
    if (terms == 16)
      LAUNCH(product_bf16, 1, 32, 0)(to.at, left.at, right.at);
    else
      LAUNCH(product_tf32, 1, 32, 0)(to.at, left.at, right.at);
    CHECK(cudaGetLastError() == cudaSuccess);
    std::vector<float> d = to.read();
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 8; j++) {
        float expected = sum[(size_t)(i * 8 + j)];
        for (int k = 0; k < terms; k++)
          expected += a[(size_t)(i * terms + k)] * b[(size_t)(k * 8 + j)];
        CHECK(d[(size_t)(i * 8 + j)] == expected);
      }
  }
}

// ---- loads: of a table of numbers of two bytes, which are their own places in it

__global__ static void load_some(unsigned *out, int transposed)
{
  __shared__ __align__(16) unsigned short table[4][8][8];
  const int lane = (int)threadIdx.x;
  for (int i = lane; i < 256; i += 32) table[i / 64][i / 8 % 8][i % 8] = (unsigned short)i;
  __syncwarp();
  unsigned d[4];
  if (transposed)
    load_matrices_transposed(d, table[lane / 8][lane % 8]);
  else
    load_matrices(d, table[lane / 8][lane % 8]);
  for (int i = 0; i < 4; i++) out[lane * 4 + i] = d[i];
}

static void test_loads()
{
  for (unsigned transposed = 0; transposed < 2; transposed++) {
    on_device<unsigned> out(std::vector<unsigned>(128));
    LAUNCH(load_some, 1, 32, 0)(out.at, (int)transposed);
    std::vector<unsigned> d = out.read();
    for (unsigned lane = 0; lane < 32; lane++)
      for (unsigned i = 0; i < 4; i++)
        for (unsigned half = 0; half < 2; half++) {
          const unsigned group = lane / 4, in = 2 * (lane % 4) + half;
          const unsigned expected = i * 64 + (transposed ? in * 8 + group : group * 8 + in);
          CHECK((d[lane * 4 + i] >> 16 * half & 0xffff) == expected);
        }
  }
}

// ---- copies: two stages, of which one arrives while the other is summed up

__global__ static void sum_stages(float *out, const float *in, int stages)
{
  DYNAMIC_SHARED(float4, stage);
  const int t = (int)threadIdx.x, threads = (int)blockDim.x;
  copy_16(stage + t, in + 4 * t, true);
  end_copies();
  float sum = 0;
  for (int i = 0; i < stages; i++) {
    const bool more = i + 1 < stages;
    copy_16(stage + (i + 1) % 2 * threads + t, in + 4 * ((more ? i + 1 : 0) * threads + t), more);
    end_copies();
    wait_for_copies<1>();
    __syncthreads();
    const float4 x = stage[i % 2 * threads + (t + 1) % threads];
    sum += x.x + x.y + x.z + x.w;
    __syncthreads();
  }
  out[t] = sum;
  wait_for_copies<0>();
  __syncthreads();
  if (stage[stages % 2 * threads + t].x != 0) out[t] = -1; // nothing was there to copy
  copy_4((float *)stage + t, in + t, true);
  end_copies();
  wait_for_copies<0>();
  __syncthreads();
  out[threads + t] = ((float *)stage)[t];
}

static void test_copies()
{
  const int threads = 64, stages = 5;
  std::vector<float> x = numbers((size_t)(4 * threads * stages), 7);
  on_device<float> in(x), out(std::vector<float>((size_t)(2 * threads)));
  LAUNCH_SHARED(sum_stages, 1, threads, 2 * threads * 16, 0)(out.at, in.at, stages);
  std::vector<float> y = out.read();
  for (int t = 0; t < threads; t++) {
    float expected = 0;
    for (int i = 0; i < stages; i++)
      for (int c = 0; c < 4; c++)
        expected += x[(size_t)(4 * (i * threads + (t + 1) % threads) + c)];
    CHECK(y[(size_t)t] == expected && y[(size_t)(threads + t)] == x[(size_t)t]);
  }
}

// ---- conversions

__global__ static void convert(unsigned *out, const float *in)
{
  out[0] = bf16_pair(in[0], in[1]);
  out[1] = to_tf32(in[2]);
  out[2] = to_tf32(in[3]);
  out[3] = (unsigned)quick_exp2(in[4]);
  out[4] = quick_exp2(-INFINITY) == 0;
}

static void test_conversions()
{
  on_device<float> in({1, -2, 1 + 0x1p-11f, 1 + 0x1.8p-10f, 10});
  on_device<unsigned> out(std::vector<unsigned>(5));
  LAUNCH(convert, 1, 1, 0)(out.at, in.at);
  CHECK((out.read() == std::vector<unsigned>{0xc0003f80u, 0x3f802000u, 0x3f804000u, 1024, 1}));
}

// ---- what only the stand-in shows

#ifndef __CUDACC__
// Of numbers that TF32 would round: the sums are float32's where the environment forbids TF32.
static void test_products_of_float32()
{
  std::vector<float> a(16 * 8), b(8 * 8, 0);
  for (size_t i = 0; i < a.size(); i++) a[i] = 1 + (float)i * 0x1p-20f;
  for (size_t i = 0; i < 8; i++) b[i * 8 + i] = 1;
  setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  on_device<float> to(std::vector<float>(16 * 8)), left(a), right(b);
  LAUNCH(product_tf32, 1, 32, 0)(to.at, left.at, right.at);
  CHECK(to.read() == a);
  unsetenv("NVIDIA_TF32_OVERRIDE");
}

// Bytes that nobody has waited for are not there.
__global__ static void impatient(float *out, const float *in)
{
  DYNAMIC_SHARED(float, stage);
  copy_16(stage, in, true);
  end_copies();
  copy_16(stage + 4, in + 4, true);
  end_copies();
  wait_for_copies<1>();
  out[0] = stage[0];
  out[1] = stage[4];
}

static void test_what_is_not_waited_for()
{
  on_device<float> in({1, 2, 3, 4, 5, 6, 7, 8}), out({0, 0});
  LAUNCH_SHARED(impatient, 1, 1, 32, 0)(out.at, in.at);
  const std::vector<float> y = out.read();
  CHECK(y[0] == 1 && y[1] != y[1]);
}
#else
static void test_products_of_float32()
{
}

static void test_what_is_not_waited_for()
{
}
#endif

int main()
{
  for (const char *order : {"forward", "backward"}) {
    setenv("CUDA_ON_CPU_ORDER", order, 1);
    test_products();
    test_loads();
    test_copies();
    test_conversions();
    test_products_of_float32();
    test_what_is_not_waited_for();
  }
  puts("mma: ok");
}
