// A stand-in for CUDA, for tests only: a warp's tensor cores, and asynchronous copies from global
// to shared memory. Each lane passes its registers, and the last lane computes for all: the layouts
// are those of PTX's manual (mma.m16n8k16, mma.m16n8k8, ldmatrix), as in
// runtime/cuda/kernels/mma.h.
#include "stand_in.h"

#include <cuda_bf16.h>
#include <cuda_pipeline.h>

#include <cstring>

namespace cuda_on_cpu
{
namespace
{
float as_float(unsigned bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

unsigned as_bits(float x)
{
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// ---- products: d[16, 8] += a[16, terms] b[terms, 8]

struct product {
  float *d;
  const unsigned *a;
  unsigned b[2];
};

// The bfloat16 element in the lower or upper half of a register.
float half_of(unsigned bits, int upper)
{
  return as_float(upper ? bits & 0xffff0000u : bits << 16);
}

// A lane has rows lane / 4 and 8 below it, and two adjacent columns.
void add_products(void *const *lanes, const float (*a)[16], const float (*b)[8], int terms)
{
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float *const d = ((const product *)lanes[lane])->d + i;
      double sum = (double)*d;
      for (int k = 0; k < terms; k++) sum += (double)a[row][k] * (double)b[k][column];
      *d = (float)sum;
    }
}

void multiply_bf16(void *const *lanes)
{
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const product *const p = (const product *)lanes[lane];
    const int group = lane / 4, in = lane % 4;
    for (int i = 0; i < 8; i++)
      a[group + i / 2 % 2 * 8][in * 2 + i % 2 + i / 4 * 8] = half_of(p->a[i / 2], i % 2);
    for (int i = 0; i < 4; i++) b[in * 2 + i % 2 + i / 2 * 8][group] = half_of(p->b[i / 2], i % 2);
  }
  add_products(lanes, a, b, 16);
}

// Tensor cores ignore the 13 lowest bits of a float.
float tf32_of(unsigned bits)
{
  if (rounds_to_tf32() && bits & 0x1fff)
    fail("mma_tf32", "%a is not rounded: to_tf32 does it", (double)as_float(bits));
  return as_float(bits);
}

void multiply_tf32(void *const *lanes)
{
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const product *const p = (const product *)lanes[lane];
    const int group = lane / 4, in = lane % 4;
    for (int i = 0; i < 4; i++) a[group + i % 2 * 8][in + i / 2 * 4] = tf32_of(p->a[i]);
    for (int i = 0; i < 2; i++) b[in + i * 4][group] = tf32_of(p->b[i]);
  }
  add_products(lanes, a, b, 8);
}

// ---- loads: lanes 0 to 7 name the rows of the first matrix, 8 to 15 those of the second, and so
// on

struct loading {
  unsigned *d;
  const char *row;
};

const char *row_of(void *const *lanes, int lane)
{
  const char *const row = ((const loading *)lanes[lane])->row;
  if ((uintptr_t)row % 16) fail("ldmatrix", "lane %d's row is not at a multiple of 16 bytes", lane);
  if (touches_device(row, 16)) fail("ldmatrix", "lane %d's row is not in shared memory", lane);
  return row;
}

void load_rows(void *const *lanes)
{
  for (int i = 0; i < 32; i++)
    for (int j = 0; j < 4; j++) {
      const char *const row = row_of(lanes, j * 8 + i / 4);
      memcpy(((const loading *)lanes[i])->d + j, row + i % 4 * 4, 4);
    }
}

void load_columns(void *const *lanes)
{
  for (int i = 0; i < 32; i++)
    for (int j = 0; j < 4; j++) {
      uint16_t pair[2];
      for (int k = 0; k < 2; k++)
        memcpy(&pair[k], row_of(lanes, j * 8 + i % 4 * 2 + k) + i / 4 * 2, 2);
      ((const loading *)lanes[i])->d[j] = (unsigned)pair[0] | (unsigned)pair[1] << 16;
    }
}

} // namespace
} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, const char *file,
              int line)
{
  const product p = {d, a, {b0, b1}};
  meet_all("mma_bf16", (void *)&p, multiply_bf16, file, line);
}

void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, const char *file,
              int line)
{
  const product p = {d, a, {b0, b1}};
  meet_all("mma_tf32", (void *)&p, multiply_tf32, file, line);
}

void load_matrices(unsigned (&d)[4], const void *row, const char *file, int line)
{
  loading l = {d, (const char *)row};
  meet_all("load_matrices", &l, load_rows, file, line);
}

void load_matrices_transposed(unsigned (&d)[4], const void *row, const char *file, int line)
{
  loading l = {d, (const char *)row};
  meet_all("load_matrices_transposed", &l, load_columns, file, line);
}

void copy_16(void *shared, const void *global, bool filled)
{
  __pipeline_memcpy_async(shared, global, 16, filled ? 0 : 16);
}

void copy_4(void *shared, const void *global, bool filled)
{
  __pipeline_memcpy_async(shared, global, 4, filled ? 0 : 4);
}

void end_copies()
{
  __pipeline_commit();
}

void wait_for_copies(int later)
{
  __pipeline_wait_prior((size_t)later);
}

unsigned bf16_pair(float low, float high)
{
  const __nv_bfloat16 pair[2] = {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
  unsigned bits;
  memcpy(&bits, pair, sizeof bits);
  return bits;
}

// To nearest, ties away from 0.
unsigned to_tf32(float x)
{
  const unsigned bits = as_bits(x);
  if (!rounds_to_tf32()) return bits;
  if (x != x) return 0x7fffe000u;
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000) & ~0x1fffu;
}

float quick_exp2(float x)
{
  const float y = exp2f(x);
  return y < 1.17549435e-38f ? 0 : y;
}
