// SPDX-License-Identifier: MIT
// The initial values of tensors that no file has (enum how): functions of the seed, the tensor's
// name and an element's place in the whole tensor, so that they are the same on every mesh.
#ifndef INITIAL_VALUES_H
#define INITIAL_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/failure.h"
#include "tensors/tensor_table.h"

// A tensor whose elements are drawn. Of those whose elements depend on each other, all of them.
struct drawn {
  const struct member *m;
  double *whole;  // NULL: each element is drawn by itself
  size_t columns; // not 0: a matrix stored by columns
};

// Begins to draw. False, and why, if out of memory. draw_end() frees what it holds, also of zeros.
bool draw_begin(struct drawn *d, const struct member *m, struct failure *why);
void draw_end(struct drawn *d);

// Makes elements first .. first + count - 1 of the whole tensor in `to`.
void draw(const struct drawn *d, uint64_t first, size_t count, void *to);

// The nearest float, or bfloat16, that is below the limit.
float draw_below(enum type type, double x, double limit);

#endif
