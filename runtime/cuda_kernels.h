// What generated kernels share.
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

// The sum of x over a block of 256 threads, in every thread; always added in the same order.
__device__ static inline float block_sum(float x)
{
  __shared__ float part[8];
  for (int d = 16; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 8; i++) sum += part[i];
  return sum;
}

#endif
