// SPDX-License-Identifier: MIT
// Registers of floats.
#ifndef CPU_LANES_H
#define CPU_LANES_H

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#include <stdint.h>

// The floats of a register, and the block of a result that is kept in registers.
#if defined(__AVX512F__)
enum { LANES = 16, DOWN = 8, ACROSS = 2 };
#elif defined(__AVX__)
enum { LANES = 8, DOWN = 4, ACROSS = 2 };
#else
enum { LANES = 4, DOWN = 4, ACROSS = 2 };
#endif
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef uint32_t lane_bits
    __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

#if defined(__AVX512F__)
// Swaps the off-diagonal blocks of each 2 x 2 group of blocks of step x step.
static inline __attribute__((always_inline)) void transpose_blocks(lanes row[16], int step)
{
  const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __mmask16 odd = _mm512_test_epi32_mask(count, _mm512_set1_epi32(step));
  const __m512i ahead = _mm512_add_epi32(count, _mm512_set1_epi32(step));
  const __m512i low = _mm512_mask_add_epi32(count, odd, count, _mm512_set1_epi32(16 - step));
  const __m512i high = _mm512_mask_add_epi32(ahead, odd, count, _mm512_set1_epi32(16));
  for (int pair = 0; pair < 8; pair++) {
    const int i = pair / step * 2 * step + pair % step;
    const __m512 a = (__m512)row[i], b = (__m512)row[i + step];
    row[i] = (lanes)_mm512_permutex2var_ps(a, low, b);
    row[i + step] = (lanes)_mm512_permutex2var_ps(a, high, b);
  }
}

// Transposes a block of LANES rows.
static inline __attribute__((always_inline)) void transpose_lanes(lanes row[LANES])
{
  transpose_blocks(row, 8);
  transpose_blocks(row, 4);
  transpose_blocks(row, 2);
  transpose_blocks(row, 1);
}
#elif defined(__AVX2__)
// Transposes a block of LANES rows.
static inline __attribute__((always_inline)) void transpose_lanes(lanes row[LANES])
{
  __m256 pair[8], four[8];
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps((__m256)row[i], (__m256)row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps((__m256)row[i], (__m256)row[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; k++) {
      four[i + 2 * k] = _mm256_shuffle_ps(pair[i + k], pair[i + k + 2], 0x44);
      four[i + 2 * k + 1] = _mm256_shuffle_ps(pair[i + k], pair[i + k + 2], 0xee);
    }
  for (int i = 0; i < 4; i++) {
    row[i] = (lanes)_mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
    row[i + 4] = (lanes)_mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
  }
}
#else
// Transposes a block of LANES rows.
static inline void transpose_lanes(lanes row[LANES])
{
  for (int i = 0; i < LANES; i++)
    for (int k = 0; k < i; k++) {
      const float kept = row[i][k];
      row[i][k] = row[k][i];
      row[k][i] = kept;
    }
}
#endif

#endif
