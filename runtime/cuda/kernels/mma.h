// SPDX-License-Identifier: MIT
// The instructions by which a warp multiplies small matrices on the tensor cores, and those that
// load their operands: one function each, with the place of every element in the registers of the
// 32 lanes as in PTX's manual. All lanes of the warp must take part. Below, group = lane / 4 and in
// = lane % 4; a bfloat16 element takes half a register, the lower half first.
//
// They need sm_80. Without nvcc the CUDA stand-in declares the same functions.
#ifndef CUDA_MMA_H
#define CUDA_MMA_H

// A loop with a known trip count, unrolled, so that arrays stay in registers; and one that is not,
// which takes fewer of them. With UNROLL_BY(n) before it, n rounds of a loop are unrolled.
#ifdef __CUDACC__
#define PRAGMA_OF(text) _Pragma(#text)
#define UNROLL_FOR        _Pragma("unroll") for
#define ROLLED_FOR        _Pragma("unroll 1") for
#define UNROLL_BY(rounds) PRAGMA_OF(unroll(rounds))
#else
#define UNROLL_FOR        for
#define ROLLED_FOR        for
#define UNROLL_BY(rounds)
#endif

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <stdint.h>

// d[16, 8] += a[16, 16] b[16, 8] of bfloat16, summed in float (mma.m16n8k16).
//   d[0], d[1]  row group,     columns 2 in, + 1
//   d[2], d[3]  row group + 8, columns 2 in, + 1
//   a[0]        row group,     columns 2 in, + 1
//   a[1]        row group + 8, columns 2 in, + 1
//   a[2]        row group,     columns 2 in + 8, + 9
//   a[3]        row group + 8, columns 2 in + 8, + 9
//   b0          rows 2 in, + 1,     column group
//   b1          rows 2 in + 8, + 9, column group
static __device__ __forceinline__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1)
{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d[16, 8] += a[16, 8] b[8, 8] of TF32 (from to_tf32), summed in float (mma.m16n8k8).
//   d           as above
//   a[0]        row group,     column in
//   a[1]        row group + 8, column in
//   a[2]        row group,     column in + 4
//   a[3]        row group + 8, column in + 4
//   b0          row in,        column group
//   b1          row in + 4,    column group
static __device__ __forceinline__ void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1)
{
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ unsigned address_in_shared(const void *p)
{
  return (unsigned)__cvta_generic_to_shared(p);
}

// Loads four matrices of 8 rows of 16 bytes from shared memory (ldmatrix). Lane l passes the
// address of row l % 8 of matrix l / 8, a multiple of 16 bytes. d[i] is of matrix i: row group,
// bytes 4 in to 4 in + 3.
static __device__ __forceinline__ void load_matrices(unsigned (&d)[4], const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address_in_shared(row))
               : "memory");
}

// The same for elements of two bytes, transposed: d[i] is rows 2 in and 2 in + 1, column group.
static __device__ __forceinline__ void load_matrices_transposed(unsigned (&d)[4], const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address_in_shared(row))
               : "memory");
}

// Copies 16 bytes, or 4, asynchronously from global to shared memory (cp.async), both aligned to
// that size; if not `filled`, writes zeros and does not read the source.
static __device__ __forceinline__ void copy_16(void *shared, const void *global, bool filled)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_in_shared(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(filled ? 16 : 0)
               : "memory");
}
static __device__ __forceinline__ void copy_4(void *shared, const void *global, bool filled)
{
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address_in_shared(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(filled ? 4 : 0)
               : "memory");
}

// Ends a group of this thread's copies.
static __device__ __forceinline__ void end_copies()
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all of this thread's groups but the last LATER have arrived. Copies of other threads
// are visible after a barrier that follows their waits.
template <int LATER> static __device__ __forceinline__ void wait_for_copies()
{
  asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

// Two floats rounded to bfloat16 in a register.
static __device__ __forceinline__ unsigned bf16_pair(float low, float high)
{
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

static __device__ __forceinline__ unsigned to_tf32(float x)
{
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

// 2^x, to 2 units in the last place; denormal results are 0.
static __device__ __forceinline__ float quick_exp2(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif
#endif
