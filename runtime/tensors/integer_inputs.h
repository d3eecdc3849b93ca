// SPDX-License-Identifier: MIT
// The integers of a program's inputs: which file types are accepted, and whether the values are in
// the range of the plan and of their uses as indices.
#ifndef INTEGER_INPUTS_H
#define INTEGER_INPUTS_H

#include "base/failure.h"
#include "base/program.h"
#include "formats/safetensors_set.h"
#include "tensors/tensor_table.h"

// Whether the tensor is an input of integers or booleans; and whether it accepts whole numbers of
// the file's dtype: such an input any integers and booleans, if the values fit, and so a parameter
// or an input of float32, if they are exact in it.
bool numbers_are(const struct tensor *t);
bool numbers_take(const struct tensor *t, const char *dtype);

// Reads the slice's own elements from .. from + count - 1, converted to the tensor's type. `to` has
// room for as many elements of the wider of both types. False, and why, with the element's
// position, if one does not fit the tensor's type.
bool numbers_read(const struct kept *kept, const struct member *m, const struct slice *slice,
                  size_t from, size_t count, void *to, struct failure *why);

// Checks the slice's own elements from .. from + count - 1 of an input, which are in `elements`:
// each must be in the range of randint or tokens, and a valid index if it is used as one. False,
// and why, with the element's position and the plan's line. kept: their file; NULL: they were
// drawn. Sample s of the slice is sample s - shift of the batch.
bool numbers_hold(const struct kept *kept, const struct member *m, const struct slice *slice,
                  long shift, size_t from, size_t count, const void *elements, struct failure *why);

// The first use that ignores a value of an input, as cross_entropy ignores -100; or NULL. That
// value can pad a batch that lacks samples.
const struct index_use *numbers_ignoring(int row);

// Checks the indices that the steps up to t have computed. False, and why, if one was invalid.
bool numbers_computed(int t, struct failure *why);

#endif
