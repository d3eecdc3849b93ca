/* rows.h: values that stand by rows (rows.c). */
#ifndef TPGEN_IR_ROWS_H
#define TPGEN_IR_ROWS_H

#include "ir/op.h"

/* The dimensions by rows: e, b, s and k. */
enum { ROW_DIMS = 4 };
/* Tests of rules and gradients look at whole tensors: without it no value stands by rows. */
extern bool counts_rows;
/* The value that counts the rows of the k-th value that the operation makes, if that stands by
   rows; else NONE. */
int counts_of(const struct op *op, int k);
/* A fused operation whose space stands by rows, of which ranks have fewer than there is room for,
   takes their count: that value, or NONE. */
int counts_of_kernel(const struct op *op);
/* Of the operands of an operation that stand by rows in this layout, the count that it takes; or
   NONE. */
int counts_taken(const struct op *op, int counts, struct layout layout);
/* Whether a count is pending over the dimension of the mesh because this dimension of what it
   counts is cut there. */
bool is_counted_along(int value, int mesh_dim, int place);
/* Whether any value stands by rows. */
bool has_values_by_rows(void);
/* Whether rows travel, along a dimension of the mesh, from ranks with some tokens to ranks with
   some experts, or back; and whether a value by rows can go from one layout to the other at all. */
bool is_row_exchange(struct placement from, struct placement to);
bool can_move_rows(struct layout from, struct layout to);

#endif
