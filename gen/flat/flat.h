/* flat.h: the passes over the flat program, graph->order. */
#ifndef TPGEN_FLAT_H
#define TPGEN_FLAT_H

#include "base/base.h"
#include "ir/ir.h"
#include "sharding/sharding.h"
#include "target/target.h"

/* -------------------------------------------------------------------------------- accumulate.c */

/* Where a step takes several batches, adds their gradients up; by parameter, which
   value is its gradient then. */
void accumulate_gradients(int *gradient);
/* Products that are added to a gradient are added where it lies, as the product's third input. */
void add_products_in_place(void);

/* -------------------------------------------------------------------------- assign_dim_order.c */

void assign_dim_order(void);
/* Whether the operation takes and makes its values as their dimensions lie in memory. */
bool follows_dim_order(const struct op *op);

/* -------------------------------------------------------------------------------------- drop.c */

/* Takes out of the graph what no function runs. */
void drop_rest(void);

/* ------------------------------------------------------------------------------ fold_upcasts.c */

void fold_upcasts(void);

/* -------------------------------------------------------------------------------- fsdp_units.c */

/* What the passes ask of each other. */
/* Places the parameters of units, whose other cuts are known; tells of an operation that
   comes next in the order; whether a value is a parameter that is to be gathered before it is used;
   whether the operation casts one to the type that the model computes with; the parameter as the
   reader takes it, gathered, by operations that are added to the order where there is none yet. */
void place_units(void);
void note_list(const struct op *op, const struct list *order);
bool is_kept_cut(int value);
bool casts_for_use(const struct op *op);
int gathered(int parameter, const struct op *reader, struct list *order);

/* -------------------------------------------------------------------------------------- grad.c */

void grad(void);

/* --------------------------------------------------------------------------------- gradients.c */

/* Adds the operations that take g, the gradient of what `op` made, to the gradients of its inputs
   that are wanted. Both lists are by value; gradient[value] is NONE where nothing has reached it.
   `op` is a copy: adding operations moves the graph's. */
void write_gradient(const struct op *op, int g, const bool *wanted, int *gradient);
/* Whether it is a redistribution that leaves its value as and where it lies: its gradient too. */
bool stays(const struct op *op);
extern int *stays_at;

/* ---------------------------------------------------------------------------------- optimize.c */

void optimize(void);

/* ----------------------------------------------------------------------------------- outline.c */

void outline(void);
/* The beginning of it: takes out of the order what nothing needs in the end. */
void leave_out_dead(void);
/* The first part of it: makes the functions, and leaves graph->order and all else as it is. */
void fold_modules(void);

/* -------------------------------------------------------------------------------------- plan.c */

void plan(void);

/* --------------------------------------------------------------------------------- propagate.c */

void propagate(void);
/* Gives layouts to the values that operations order[first...] make, adding redistributions. */
void propagate_from(int first);

/* --------------------------------------------------------------------------------- recompute.c */

void recompute(void);
/* Whether it gathers a unit's parameter for the forward, and whether that is given up
   behind it. */
bool gathers(const struct op *op);
bool reshards(const struct op *op);
/* Whether the backward may always run the operation again, if less is kept for it. */
bool is_cheap(const struct op *op);

/* ------------------------------------------------------------------------------ redistribute.c */

void redistribute(void);

#endif
