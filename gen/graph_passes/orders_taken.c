/* orders_taken.c: a part of the pass `assign_dim_order`: the orders in memory that an operation
   takes of its operands. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* Whether the order of any operand is not the written one. */
bool has_other_orders(const struct op *op)
{
  for (int i = 0; i < operand_count(op); i++)
    if (lies_in_other_order(nth_operand(op, i))) return true;
  return false;
}

/* Whether it moves or reduces elements without a rule and keeps its dimensions. */
bool keeps_dimensions(const struct op *op)
{
  return op_row[op->kind].step == PACKING || op_row[op->kind].step == LOCAL_STEP ||
         (is_collective(op->kind) && op->kind != OP_exchange);
}

/* Whether operand i (NONE: any) may have another order in memory. */
bool takes_other_orders(const struct op *op, int i)
{
  if (has_kernel(op->kind)) return i == NONE || takes_steps(op, i);
  return is_pointwise(op->kind) || is_reduce(op->kind) || op->kind == OP_matmul ||
         op->kind == OP_view || keeps_dimensions(op);
}

/* The letters of a value's dimensions in their order in memory. */
int letters_in_memory(const struct axis *axis, int value, int *letter)
{
  int n = 0;
  for (int at = 0; at < graph->value[value].shape.ndim; at++) {
    const struct axis *a = &axis[dimension_at(value, at)];
    for (int k = 0; k < a->n; k++) letter[n++] = a->letter[k];
  }
  return n;
}

/* ------------------------------------------------------------------------------ possible orders */

bool is_same_bytes(const struct op *view)
{
  struct letters l;
  int in[MAX_LETTERS], out[MAX_LETTERS];
  if (graph->value[view->in[0]].type != graph->value[view->out].type) return false;
  op_letters(view, &l);
  int n = letters_in_memory(l.in[0], view->in[0], in);
  return n == letters_in_memory(l.out[0], view->out, out) &&
         !memcmp(in, out, (size_t)n * sizeof *in);
}

/* Whether the parts along `dim` that a collective reads or writes are contiguous in the value. If
   they are not in the written order, a packing makes them so in any order. */
static bool has_parts(int value, int dim)
{
  if (!lies_in_other_order(value) || dimension_at(value, 0) == dim) return true;
  struct shape here = local_shape(value, 0);
  for (int d = 0; d < dim; d++)
    if (here.size[d] != 1) return true;
  return false;
}

bool follows_dim_order(const struct op *op)
{
  if (!has_other_orders(op) || is_pointwise(op->kind) || is_reduce(op->kind) ||
      op->kind == OP_matmul)
    return true;
  if (op->kind == OP_view) return is_same_bytes(op);
  if (has_kernel(op->kind)) {
    /* Whether a kernel from a file, which asks for the strides of some operands, takes all orders.
     */
    for (int i = 0; i < operand_count(op); i++) {
      int last = graph->value[nth_operand(op, i)].shape.ndim - 1;
      if (lies_in_other_order(nth_operand(op, i)) &&
          (!takes_steps(op, i) || dimension_at(nth_operand(op, i), last) != last))
        return false;
    }
    return true;
  }
  if (!keeps_dimensions(op) || graph->value[op->in[0]].order != graph->value[op->out].order)
    return false;
  if (!is_collective(op->kind)) return true;
  bool cut = collective_row[op->kind].from == SHARD, cuts = collective_row[op->kind].to == SHARD;
  return (!cuts || has_parts(op->in[0], cut ? op->dim_to : op->dim)) &&
         (!cut || has_parts(op->out, op->dim));
}
