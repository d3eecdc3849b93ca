/* bucket_kinds.c: the conditions for sharing a bucket: the collectives that are of one kind, and
   those that are small. */
#include "function_passes/function_passes.h"

/* Whether, in a step of several batches, the value is the sum over some ranks of a gradient
   accumulated in its own place: memory.c does not give it that place. */
static bool is_summed_in_part(int value)
{
  if (graph->value[value].role != ACTIVATION) return false;
  while (graph->value[value].role == ACTIVATION && graph->value[value].op != NONE) {
    const struct op *op = &graph->op[graph->value[value].op];
    if ((op->phase != UPDATE && !op->last_batch) || op->nin != 1) return false;
    value = op->in[0];
  }
  return graph->value[value].role == GRADIENT;
}

bool is_gradient_sum(const struct op *op)
{
  return op->kind == OP_all_reduce && !op->nbody && graph->value[op->out].role == GRADIENT &&
         !is_summed_in_part(op->in[0]);
}

bool same_kind(int a, int b)
{
  const struct op *x = &graph->op[a], *y = &graph->op[b];
  return x->kind == y->kind && x->group == y->group && x->reduction == y->reduction &&
         moved_type(x) == moved_type(y) && x->last_batch == y->last_batch;
}

/* Units that keep nothing sharded have no bounds: all gradients of a model are reduced in the
   same way. */
static int bounds_of(const struct op *op)
{
  int unit = unit_of(op);
  return unit == NONE || !graph->unit[unit].shards ? NONE : unit;
}

bool may_share(int a, int b)
{
  return bounds_of(&graph->op[a]) == bounds_of(&graph->op[b]);
}

bool is_small(int group, int64_t bytes)
{
  struct link link = link_of(group);
  return (double)bytes < link.latency * link.bandwidth;
}

int64_t most_of_small(void)
{
  int64_t most = 25 << 20;
  for (int i = 0; i < plan_options->ncap; i++)
    if (plan_options->cap[i] < most) most = plan_options->cap[i];
  return most;
}
