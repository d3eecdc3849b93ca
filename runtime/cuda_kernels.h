// What generated kernels share.
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

// A pointer to the dynamic shared memory that LAUNCH_SHARED gave the block, aligned to 16 bytes:
// DYNAMIC_SHARED(float, tile);
#ifdef __CUDACC__
#define DYNAMIC_SHARED(type, name)                                                                 \
  extern __shared__ __align__(16) unsigned char dynamic_shared[];                                  \
  type *const name = (type *)dynamic_shared
#endif

template <class T> __device__ static inline T plus(T a, T b)
{
  return a + b;
}
template <class T> __device__ static inline T greater(T a, T b)
{
  return a > b || a != a ? a : b;
}
template <class T> __device__ static inline T less(T a, T b)
{
  return a < b || a != a ? a : b;
}

// One of all x over a block of 256 threads, in every thread; always put together in the same order.
template <class T, T (*two)(T, T)> __device__ static inline T over_block(T x)
{
  __shared__ T part[8];
  for (int d = 16; d; d /= 2) x = two(x, __shfl_xor_sync(0xffffffffu, x, d));
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  T all = part[0];
  for (int i = 1; i < 8; i++) all = two(all, part[i]);
  return all;
}

// The sum, the greatest and the least; NaN where one of them is.
template <class T> __device__ static inline T block_sum(T x)
{
  return over_block<T, plus<T>>(x);
}
template <class T> __device__ static inline T block_max(T x)
{
  return over_block<T, greater<T>>(x);
}
template <class T> __device__ static inline T block_min(T x)
{
  return over_block<T, less<T>>(x);
}

#endif
