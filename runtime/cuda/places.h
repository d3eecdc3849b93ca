// SPDX-License-Identifier: MIT
// The row of a token's place, among rows by expert, as rows_of_places() of cpu/kernels/groups.h
// finds it.
#ifndef CUDA_PLACES_H
#define CUDA_PLACES_H

#include <cuda_runtime.h>

// The row of a place: those of earlier experts, and of earlier places of its own, come before it.
// -1: this rank does not have the expert, or no row for the place. All threads of a block of 256
// get it.
__device__ static inline long row_of_place(const int *expert, const int *counts, long experts,
                                           long place, long first)
{
  __shared__ long sum[256], own_sum[256];
  const long e = expert[place] - first, t = (long)threadIdx.x;
  const bool here = e >= 0 && e < experts;
  long before = 0, own = 0;
  for (long i = t; here && i < e; i += 256) before += counts[i];
  for (long i = t; here && i < place; i += 256) own += expert[i] == expert[place];
  __syncthreads();
  sum[t] = before, own_sum[t] = own;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) sum[t] += sum[t + half], own_sum[t] += own_sum[t + half];
    __syncthreads();
  }
  return here && own_sum[0] < counts[e] ? sum[0] + own_sum[0] : -1;
}

#endif
