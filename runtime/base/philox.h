// SPDX-License-Identifier: MIT
// Random numbers by Philox4x32-10: a function of seed, name and index, with no state.
//
// Key: the seed. Counter: the low half is the block, the high half is the FNV-1a hash of the
// tensor's name. A block has four numbers of 32 bits: element i of a tensor takes number i % 4 of
// block i / 4. So an element's value depends only on seed, name and its global index.
#ifndef PHILOX_H
#define PHILOX_H

#include <stddef.h>
#include <stdint.h>
#include "base/philox4x32.h"

struct philox {
  uint32_t key[2];  // the seed, low word first
  uint32_t name[2]; // the hash of the name, low word first
};

// FNV-1a of the name's bytes, 64 bits.
uint64_t philox_hash(const char *name);

// The random numbers of a tensor, by its name.
struct philox philox_named(unsigned long long seed, const char *name);

// Elements first .. first + count - 1: 0 <= x < 1, in steps of 2^-32.
void philox_uniform(const struct philox *of, uint64_t first, size_t count, double *to);

// The same elements, mean 0 and deviation 1, by Box-Muller: numbers 0 and 1 of a block give
// elements 0 (the cosine) and 1 (the sine), numbers 2 and 3 give elements 2 and 3.
void philox_normal(const struct philox *of, uint64_t first, size_t count, double *to);

#endif
