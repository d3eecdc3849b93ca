// SPDX-License-Identifier: MIT
// The numbers of a name, one block of four after the other.
#include "base/philox.h"

#include <math.h>

uint64_t philox_hash(const char *name)
{
  uint64_t hash = 0xcbf29ce484222325;
  for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
  return hash;
}

struct philox philox_named(unsigned long long seed, const char *name)
{
  uint64_t hash = philox_hash(name);
  return (struct philox){
      .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
      .name = {(uint32_t)hash, (uint32_t)(hash >> 32)},
  };
}

static void block_of(const struct philox *of, uint64_t block, uint32_t out[4])
{
  uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), of->name[0], of->name[1]};
  philox4x32(counter, of->key, out);
}

static void uniform_block(const struct philox *of, uint64_t block, double out[4])
{
  uint32_t bits[4];
  block_of(of, block, bits);
  for (int i = 0; i < 4; i++) out[i] = bits[i] * 0x1p-32;
}

static void normal_block(const struct philox *of, uint64_t block, double out[4])
{
  const double circle = 6.283185307179586476925;
  uint32_t bits[4];
  block_of(of, block, bits);
  for (int i = 0; i < 4; i += 2) {
    double radius = sqrt(-2 * log((bits[i] + 1.0) * 0x1p-32)); // above 0, at most 1
    double angle = circle * (bits[i + 1] * 0x1p-32);
    out[i] = radius * cos(angle);
    out[i + 1] = radius * sin(angle);
  }
}

static void fill(void (*make)(const struct philox *, uint64_t, double[4]), const struct philox *of,
                 uint64_t first, size_t count, double *to)
{
  double four[4];
  uint64_t made = UINT64_MAX;
  for (size_t i = 0; i < count; i++) {
    uint64_t element = first + i;
    if (element / 4 != made) make(of, made = element / 4, four);
    to[i] = four[element % 4];
  }
}

void philox_uniform(const struct philox *of, uint64_t first, size_t count, double *to)
{
  fill(uniform_block, of, first, count, to);
}

void philox_normal(const struct philox *of, uint64_t first, size_t count, double *to)
{
  fill(normal_block, of, first, count, to);
}
