// SPDX-License-Identifier: MIT
// By the processor's instruction if it has one, else by tables for eight bytes at a time.
//
// A state is a polynomial over GF(2), its highest power in the lowest bit, modulo the Castagnoli
// polynomial. Appending n zero bytes multiplies it by x^(8n).
#include "formats/crc32c.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

static const uint32_t POLYNOMIAL = 0x82f63b78; // without x^32
static const uint32_t ONE = 0x80000000;

// ---- polynomials -------------------------------------------------------------------------------

static uint32_t multiply(uint32_t a, uint32_t b)
{
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; bit--) {
    product ^= b & (0 - (a >> bit & 1));
    b = b >> 1 ^ (POLYNOMIAL & (0 - (b & 1)));
  }
  return product;
}

// x^(8n)
static uint32_t power(uint64_t n)
{
  uint32_t result = ONE, square = ONE >> 8;
  for (; n > 0; n >>= 1) {
    if (n & 1) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

// ---- bytes -------------------------------------------------------------------------------------

static uint32_t add_by_tables(uint32_t state, const unsigned char *bytes, size_t count)
{
  static uint32_t tables[8][256];
  for (uint32_t i = 0; i < 256 && !tables[0][255]; i++) {
    uint32_t x = i;
    for (int k = 0; k < 8; k++) {
      for (int bit = 0; bit < 8; bit++) x = x >> 1 ^ (POLYNOMIAL & (0 - (x & 1)));
      tables[k][i] = x;
    }
  }
  for (; count >= 8; count -= 8, bytes += 8) {
    uint32_t next = 0;
    for (int k = 0; k < 8; k++)
      next ^= tables[7 - k][k < 4 ? (bytes[k] ^ state >> 8 * k) & 255 : bytes[k]];
    state = next;
  }
  for (; count > 0; count--) state = state >> 8 ^ tables[0][(*bytes++ ^ state) & 255];
  return state;
}

#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)

#if defined(__x86_64__)
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define ADD_8(state, x)  (uint32_t) _mm_crc32_u64(state, x)
#define ADD_1(state, x)  _mm_crc32_u8(state, x)
#else
#define WITH_INSTRUCTION
#define ADD_8(state, x) __crc32cd(state, x)
#define ADD_1(state, x) __crc32cb(state, x)
#endif

WITH_INSTRUCTION static inline uint32_t add_8(uint32_t state, const unsigned char *bytes)
{
  uint64_t x;
  memcpy(&x, bytes, sizeof x);
  return ADD_8(state, x);
}

// Three at a time: the instruction has a latency of three cycles and a throughput of one a cycle.
WITH_INSTRUCTION static uint32_t add_by_instruction(uint32_t state, const unsigned char *bytes,
                                                    size_t count)
{
  enum { LANE = 4096 };
  static uint32_t over_one, over_two;
  if (count >= 3 * (size_t)LANE && !over_two) {
    over_one = power(LANE);
    over_two = power(2 * LANE);
  }
  for (; count >= 3 * (size_t)LANE; count -= 3 * (size_t)LANE, bytes += 3 * (size_t)LANE) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < LANE; i += 8) {
      state = add_8(state, bytes + i);
      second = add_8(second, bytes + LANE + i);
      third = add_8(third, bytes + 2 * (size_t)LANE + i);
    }
    state = multiply(state, over_two) ^ multiply(second, over_one) ^ third;
  }
  for (; count >= 8; count -= 8, bytes += 8) state = add_8(state, bytes);
  for (; count > 0; count--) state = ADD_1(state, *bytes++);
  return state;
}

static bool has_instruction(void)
{
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2");
#else
  return true;
#endif
}

static uint32_t add(uint32_t state, const unsigned char *bytes, size_t count)
{
  return has_instruction() ? add_by_instruction(state, bytes, count)
                           : add_by_tables(state, bytes, count);
}

#else

static uint32_t add(uint32_t state, const unsigned char *bytes, size_t count)
{
  return add_by_tables(state, bytes, count);
}

#endif

// ---- checksums ---------------------------------------------------------------------------------

// Rows of a slice are equally far apart: the factor of one gap is reused for the next.
static void leave_out(struct checksum *sum, uint64_t gap)
{
  if (gap == 0) return;
  if (gap != sum->gap) sum->factor = power(gap);
  sum->gap = gap;
  sum->state = multiply(sum->state, sum->factor);
  sum->at += gap;
}

void checksum_add(struct checksum *sum, uint64_t at, const void *bytes, size_t count)
{
  leave_out(sum, at - sum->at);
  sum->state = add(sum->state, bytes, count);
  sum->at += count;
}

uint32_t checksum_share(struct checksum *sum, uint64_t size)
{
  leave_out(sum, size - sum->at);
  return sum->state;
}

// A CRC-32C begins with all bits set, and is complemented at the end.
uint32_t checksum_whole(uint32_t shares, uint64_t size)
{
  return ~(shares ^ multiply(UINT32_MAX, power(size)));
}

uint32_t crc32c(const void *bytes, size_t count)
{
  return ~add(UINT32_MAX, bytes, count);
}
