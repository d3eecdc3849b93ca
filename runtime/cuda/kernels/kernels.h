// SPDX-License-Identifier: MIT
// Shared by the generated kernels.
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include "cuda/kernels/squares.h"
#include "cuda/kernels/tiles.h"

// A pointer to the dynamic shared memory of LAUNCH_SHARED, aligned to 16 bytes:
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

// Adjacent elements that a thread loads or stores at once: 16 bytes in one instruction.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) vec {
  T element[N];
  __device__ T &operator[](int i)
  {
    return element[i];
  }
  __device__ const T &operator[](int i) const
  {
    return element[i];
  }
};
template <int N, class T> __device__ static inline vec<T, N> load(const T *from)
{
  return *(const vec<T, N> *)from;
}
template <int N, class T> __device__ static inline void store(T *to, const vec<T, N> &x)
{
  *(vec<T, N> *)to = x;
}

// Reduces x over a warp, for each of its threads; always in the same order.
template <class T, T (*two)(T, T)> __device__ static inline T over_warp(T x)
{
  for (int d = 16; d; d /= 2) x = two(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

// The same over a block.
template <int THREADS, class T, T (*two)(T, T)> __device__ static inline T over_block(T x)
{
  __shared__ T part[THREADS / 32];
  x = over_warp<T, two>(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  T all = part[0];
  for (int i = 1; i < THREADS / 32; i++) all = two(all, part[i]);
  return all;
}

// The sum, the maximum and the minimum; NaN if one of the values is.
template <class T> __device__ static inline T warp_sum(T x)
{
  return over_warp<T, plus<T>>(x);
}
template <class T> __device__ static inline T warp_max(T x)
{
  return over_warp<T, greater<T>>(x);
}
template <class T> __device__ static inline T warp_min(T x)
{
  return over_warp<T, less<T>>(x);
}
template <int THREADS = 256, class T> __device__ static inline T block_sum(T x)
{
  return over_block<THREADS, T, plus<T>>(x);
}
template <int THREADS = 256, class T> __device__ static inline T block_max(T x)
{
  return over_block<THREADS, T, greater<T>>(x);
}
template <int THREADS = 256, class T> __device__ static inline T block_min(T x)
{
  return over_block<THREADS, T, less<T>>(x);
}

// The number of rows in all groups: for all threads of a warp.
__device__ static inline int all_rows(const int *counts, int groups)
{
  int rows = 0;
  for (int i = (int)threadIdx.x % 32; i < groups; i += 32) rows += counts[i];
  return warp_sum(rows);
}

// For a block of 32 warps: the sum over the warps of the threads in the same lane, in each thread
// of the first warp.
__device__ static inline float columns_sum(float x)
{
  __shared__ float part[32][32];
  part[threadIdx.x / 32][threadIdx.x % 32] = x;
  __syncthreads();
  x = 0;
  if (threadIdx.x < 32)
    for (int i = 0; i < 32; i++) x += part[i][threadIdx.x];
  return x;
}

// The least and the greatest of some numbers of documents.
struct document_range {
  int least, most;
};

__device__ static inline document_range range_of(const int *document, int n)
{
  document_range r = {document[0], document[0]};
  for (int i = 1; i < n; i++) {
    r.least = min(r.least, document[i]);
    r.most = max(r.most, document[i]);
  }
  return r;
}

// Whether one of n documents is in the range: the same for all threads of a warp, which all ask.
__device__ static inline bool any_within(const int *document, int n, document_range r)
{
  bool any = false;
  for (int i = (int)threadIdx.x % 32; i < n; i += 32)
    any |= r.least <= document[i] && document[i] <= r.most;
  return __any_sync(0xffffffffu, any);
}

// By its place in the sequence: whether a query sees a key. reach 0: there is no window.
__device__ static inline bool is_seen(int key, int query, bool causal, long reach)
{
  const long ahead = (long)key - query;
  return (!causal || ahead <= 0) && (!reach || (ahead < reach && ahead > -reach));
}

// Whether the queries of a tile, whose places are in the range, see one of n keys; and whether one
// of n queries sees keys in the range: the same for all threads of a warp, which all ask.
__device__ static inline bool any_seen(const int *key, int n, document_range r, bool causal,
                                       long reach)
{
  bool any = false;
  for (int i = (int)threadIdx.x % 32; i < n; i += 32)
    any |= (!causal || key[i] <= r.most) &&
           (!reach || ((long)key[i] - r.most < reach && (long)r.least - key[i] < reach));
  return __any_sync(0xffffffffu, any);
}

__device__ static inline bool any_seeing(const int *query, int n, document_range r, bool causal,
                                         long reach)
{
  bool any = false;
  for (int i = (int)threadIdx.x % 32; i < n; i += 32)
    any |= (!causal || r.least <= query[i]) &&
           (!reach || ((long)r.least - query[i] < reach && (long)query[i] - r.most < reach));
  return __any_sync(0xffffffffu, any);
}

#endif
