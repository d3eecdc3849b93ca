// SPDX-License-Identifier: MIT
// Weights in blocks (base/weight_blocks.h): made of the floats of files, and floats again.
#ifndef STORED_BLOCKS_H
#define STORED_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include "base/failure.h"
#include "tensors/tensor_table.h"

// Of a parameter of NF4_BLOCKS: its tensor "NAME_nested"; of that tensor: the parameter. NULL: `m`
// is neither, or there is none.
const struct member *blocks_nested(const struct members *members, const struct member *m);
const struct member *blocks_of_nested(const struct members *members, const struct member *nested);

// A copy of the tables of the blocks of `m`, from this rank's memory, which the caller frees.
// False, and why, if out of memory. Of other types than NF4_BLOCKS: NULL.
bool blocks_tables(const struct members *members, const struct member *m, float **nested,
                   struct failure *why);

// The size of each block of NF4 numbers: the largest number's.
void nf4_sizes(const float *numbers, size_t count, float *sizes);

// Fills the tables of a tensor: `sizes` of all blocks of the files' tensor, which are changed; the
// program's tensor begins with block number `begin`, and its tables have room for `groups`.
void nf4_make_tables(float *sizes, size_t blocks, size_t begin, size_t groups, float *nested);

// The bytes of so many numbers, whole blocks, as a parameter of the type is stored.
size_t blocks_bytes(enum type type, size_t numbers);

// Packs floats, as 16 bits or in whole blocks, in place, and unpacks: of the shard's own numbers
// from `from` on. `nested`: as blocks_tables gives it. Packing returns the bytes.
size_t blocks_pack(const struct member *m, size_t from, size_t count, const float *nested,
                   void *numbers);
void blocks_unpack(const struct member *m, size_t from, size_t count, const float *nested,
                   const void *stored, float *numbers);

#endif
