/* clamp_to_capacity.c: the pass `clamp_to_capacity`: no rank exceeds its capacity for rows by
   expert.

   Takes   the flat local program.
   Leaves  where experts are cut, and ranks have less capacity than the possible number of rows
           (ir/rows.c): every operator that takes their count takes a clamped one instead, which is
           at most the capacity. Rows beyond it belong to no expert, as if their places named one of
           another rank. OP_clamp_to_capacity makes the clamped count and records that the rank had
   more rows, which ends the job. */
#include "graph_passes/graph_passes.h"

struct holding {
  struct list order; /* the new one */
  bool *wanted;      /* by value: a count that operators take, and that may exceed a rank's
                        capacity */
  int *held;         /* by value: the clamped count that they take instead, or NONE */
};

static int hold(struct holding *h, int counts)
{
  int maker = graph->value[counts].op;
  const struct op *like = &graph->op[maker];
  struct op op = {.kind = OP_clamp_to_capacity,
                  .phase = like->phase,
                  .module = like->module,
                  .line = like->line,
                  .nin = 2,
                  .in = {counts, made_count(counts)}};
  int first = graph->nop, held = make_op_outputs(op, &graph->value[counts].shape, 1);
  graph->value[held].layout = graph->value[counts].layout;
  graph->value[held].placed = true;
  graph->value[held].name = value_name(counts);
  add(&h->order, graph->value[held].op);
  set_stage_of(first, maker);
  return held;
}

void clamp_to_capacity(void)
{
  struct holding run = {0}, *h = &run;
  bool any = false;
  h->wanted = alloc((size_t)graph->nvalue + 1);
  h->held = alloc((size_t)(graph->nvalue + 1) * sizeof *h->held);
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    int i = counted_operand(op);
    if (i != NONE && has_less_room(op->in[i])) h->wanted[op->in[i]] = true;
  }
  for (int v = 0; v < graph->nvalue; v++) h->held[v] = NONE, any |= h->wanted[v];
  for (int at = 0; at < graph->norder && any; at++) {
    struct op *op = &graph->op[graph->order[at]];
    int i = counted_operand(op), out = op->out, nout = op->nout;
    if (i != NONE && h->held[op->in[i]] != NONE) op->in[i] = h->held[op->in[i]];
    add(&h->order, graph->order[at]);
    for (int v = out; v < out + nout; v++)
      if (h->wanted[v]) h->held[v] = hold(h, v);
  }
  if (!any) return;
  graph->order = h->order.at;
  graph->norder = h->order.n;
  graph->order_room = h->order.room;
}
