/* rows.h: values that are stored by rows (rows.c, row_capacity.c). */
#ifndef TPGEN_IR_ROWS_H
#define TPGEN_IR_ROWS_H

#include "ir/op.h"
#include "ir/value.h"

/* The dimensions by rows: e, b, s and k. */
enum { ROW_DIMS = 4 };
/* Tests of rules and gradients look at whole tensors: without it no value is stored by rows. */
extern bool counts_rows;
/* The value that counts the rows of the k-th value that the operation makes, if that is stored by
   rows; else NONE. */
int counts_of(const struct op *op, int k);
/* A fused operation whose space is stored by rows takes their count, because ranks have fewer rows
   than room: that value, or NONE. */
int counts_of_kernel(const struct op *op);
/* The count that the operation takes if its operands are stored by rows in this layout; or NONE. */
int counts_taken(const struct op *op, int counts, struct layout layout);
/* Whether a count is pending over the dimension of the mesh because this dimension of what it
   counts is cut there. */
bool is_counted_along(int value, int mesh_dim, int place);
/* The same for a count that is pending there. */
bool was_counted_along(int value, int mesh_dim, int place);
/* Which input of the operation is a count of places (`+` in its rule), or NONE. */
int counted_operand(const struct op *op);
/* The number of rows that the rank has room for: of a value by rows; of those that
   OP_clamp_to_capacity holds. */
int64_t room_for_rows(int value, int rank);
int64_t room_of_count(const struct op *hold, int rank);
/* The input or output of an exchange that has the rows on ranks with some experts. */
int rows_of_experts(const struct op *exchange);
/* Whether the operation notes that there were more rows than there is room for; all that do; and
   whether a rank may have more, in a pipeline of any stage. */
bool notes_rows(const struct op *op);
struct list row_notes(void);
bool has_row_bounds(void);
/* The most rows that may travel from a rank with tokens to a rank with experts, if the host does
   not know their number. */
int64_t rows_of_slot(int tokens, int ranks);
/* Whether any value is stored by rows. */
bool has_values_by_rows(void);
/* Whether rows travel, along a dimension of the mesh, from ranks with some tokens to ranks with
   some experts, or back; and whether a value by rows can go from one layout to the other at all. */
bool is_row_exchange(struct placement from, struct placement to);
bool can_move_rows(struct layout from, struct layout to);
/* Whether another dimension of ranks cuts the tokens, or the names of their experts, within the cut
   along which the value's rows travel. */
bool is_cut_within_rows(int value, struct layout to);

/* ------------------------------------------------------------------------------ row_capacity.c */

/* Past moves: the count as it was made, by the ranks that have the tokens. */
int made_count(int value);
/* The value that was counted: the names of experts, [b, s, k]; NONE if no operation counted. */
int names_counted(int made);
/* The bound of a count as it was made, or of a value by rows: the room is so many times the rows in
   balance; 0: room for the most possible. */
double bound_of_count(int made);
double bound_of_rows(int value);
/* The places of a part by rows; and the room for rows of some of all experts, each with as many in
   balance. */
int64_t places_of_part(struct shape part);
int64_t rows_within(double bound, int64_t places, int64_t experts, int64_t all);
/* Whether some rank has room for fewer rows than the most possible: of a value by rows, or a count,
   as it is cut. */
bool has_less_room(int value);
/* The number of places of a count, as it was made, that the ranks along these dimensions of the
   mesh have together. */
int64_t places_along(int counts, unsigned dims, int rank);
/* The number of places that can name the experts of the rank's part of a value by rows, which has
   that shape. If the rows come from ranks with other tokens these are the places of all: of parts,
   and of micro-batches of parts, that may differ in size. */
int64_t places_here(int value, int rank, struct shape part);
/* The room that a rank has for its part of a value by rows, of that shape: a row of one expert for
   each place, or fewer. Where that is not the part's shape they are one dimension. */
struct shape room_by_rows(int value, int rank, struct shape part);

#endif
