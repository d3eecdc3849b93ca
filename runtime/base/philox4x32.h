// SPDX-License-Identifier: MIT
// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// for the host and for kernels.
#ifndef PHILOX4X32_H
#define PHILOX4X32_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX __host__ __device__ static inline
#else
#define PHILOX static inline
#endif

// Ten rounds: Random123's philox4x32.
PHILOX void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53 * c0;
    uint64_t b = (uint64_t)0xCD9E8D57 * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

#endif
