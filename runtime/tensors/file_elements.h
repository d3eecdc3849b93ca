// SPDX-License-Identifier: MIT
// Converts elements of files to the types of the program's tensors.
#ifndef FILE_ELEMENTS_H
#define FILE_ELEMENTS_H

#include "base/program.h"
#include "formats/safetensors_set.h"
#include "tensors/checksums.h"
#include "tensors/tensor_table.h"

// The type in which a tensor's elements are read or drawn: its own, but float32 for a parameter
// that is stored narrower, because it is only read.
enum type elements_type(const struct tensor *t);

// Whether the file has the tensor's blocks themselves, as checkpoints do.
bool elements_are_blocks(const struct tensor *t, const struct entry *e);

// Whether a tensor accepts elements of a file's dtype: its own type, and lossless or usual
// conversions: BF16 and F16 to a float32, F64 to a float32 input, any integers and booleans to an
// input of integers or booleans, or to a parameter or an input of float32 that holds them exactly.
bool elements_take(const struct tensor *t, const char *dtype);

// The message that it does not, or that the shape is not that of the whole tensor that `slice` is
// of. Returns false.
bool elements_misfit(const struct kept *kept, const struct tensor *t, const struct slice *slice,
                     struct failure *why);

// Bytes of an element in the file or in memory, whichever is wider. kept: its file; NULL: none.
size_t elements_staged(const struct kept *kept, const struct tensor *t);

// Reads the slice's own elements from .. from + count - 1, converted to elements_type. `to` has
// room for as many elements of elements_staged bytes. Adds them to the checksum, unless it is NULL
// or they are integers of an input.
bool elements_read(const struct kept *kept, const struct member *m, const struct slice *slice,
                   size_t from, size_t count, void *to, struct checksum *sum, struct failure *why);

#endif
