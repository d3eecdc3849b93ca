// SPDX-License-Identifier: MIT
// Batches by division; shuffled orders by a Feistel network whose rounds are Philox.
#include "data/shuffle.h"

#include "base/philox4x32.h"

// ---- batches -----------------------------------------------------------------------------------

// The batches of an epoch from this sample on.
static uint64_t batches_from(const struct order *o, uint64_t sample)
{
  const uint64_t left = o->samples - sample;
  return left / o->batch + (!o->drops && left % o->batch > 0);
}

bool order_has_batches(const struct order *o)
{
  return batches_from(o, 0) > 0;
}

struct sample_range order_batch(const struct order *o, long batch)
{
  struct sample_range s = {.epoch = o->epoch, .sample = o->sample};
  uint64_t n = (uint64_t)(batch - o->first), here = batches_from(o, s.sample);
  if (n >= here) {
    const uint64_t each = batches_from(o, 0);
    n -= here;
    s.epoch += 1 + n / each;
    s.sample = 0;
    n %= each;
  }
  s.sample += n * o->batch;
  const uint64_t left = o->samples - s.sample;
  s.count = left < o->batch ? left : o->batch;
  return s;
}

// ---- shuffling ---------------------------------------------------------------------------------

enum { ROUNDS = 8 };

// A permutation of the numbers of 2 * half bits: each round adds to one half Philox of the other
// half, the round, the epoch and the seed.
static uint64_t permuted(const struct order *o, uint64_t epoch, int half, uint64_t x)
{
  const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
  const uint64_t mask = (UINT64_C(1) << half) - 1;
  uint64_t left = x >> half, right = x & mask;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    const uint32_t counter[4] = {(uint32_t)right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
    uint32_t words[4];
    philox4x32(counter, key, words);
    const uint64_t next = (left ^ words[0]) & mask;
    left = right;
    right = next;
  }
  return left << half | right;
}

// The permutation is of up to four times as many numbers: a number that is no sample is permuted
// again (cycle walking).
uint64_t order_sample(const struct order *o, uint64_t epoch, uint64_t place)
{
  int half = 1;
  if (!o->shuffles) return place;
  while (half < 31 && UINT64_C(1) << 2 * half < o->samples) half++;
  do place = permuted(o, epoch, half, place);
  while (place >= o->samples);
  return place;
}
