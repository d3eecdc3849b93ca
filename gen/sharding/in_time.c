/* in_time.c: how an operation runs along the dimension of the mesh that is in time: micro-batch by
   micro-batch.

   Values do not move in time. What is whole, all micro-batches have: each may take its part of it,
   or the first one give it as its term of a sum. What is cut or pending becomes whole after the
   last micro-batch. An operation that needs it before is computed for the whole batch at once, if
   it can be (graph_passes/microbatches.c). So the choice is by what it asks of the inputs, and not
   by bytes. */
#include "sharding/sharding.h"

enum { TAKES_PART = 1, GIVES_TERM = 4, NEEDS_WHOLE = 1 << 8, NEVER = 1 << 16 };

static int effort(struct placement from, struct placement to)
{
  if (same_placement(from, to)) return 0;
  if (to.kind == REPLICATE) return NEEDS_WHOLE;
  if (from.kind != REPLICATE) return NEVER;
  return to.kind == SHARD ? TAKES_PART : GIVES_TERM;
}

struct placement suits_in_time(const struct op *op)
{
  int dim = time_dimension();
  const struct op *next = taken_next(op);
  int of = op->nout ? graph->value[op->out].of : NONE;
  if (of != NONE && graph->value[of].layout.on[dim].kind == SHARD)
    return graph->value[of].layout.on[dim];
  for (int i = 0; next && i < next->nin; i++) {
    const struct value *v = &graph->value[next->in[i]];
    if (next->in[i] != op->out && same_shape(v->shape, graph->value[op->out].shape))
      return v->layout.on[dim];
  }
  return (struct placement){0};
}

int choice_of_time(const struct op *op, const struct placement *in, struct placement like,
                   const struct choice *list, int n)
{
  int best = 0, least = 2 * NEVER * MAX_INPUTS;
  for (int c = 0; c < n; c++) {
    int sum = 0;
    for (int i = 0; i < op->nin; i++) sum += 2 * effort(in[i], list[c].in[i]);
    sum += op->nout && !same_placement(list[c].out[0], like);
    if (sum < least) {
      least = sum;
      best = c;
    }
  }
  return best;
}

int choice_in_time(const struct op *op, const struct choice *list, int n)
{
  struct placement in[MAX_INPUTS];
  int dim = time_dimension();
  for (int i = 0; i < op->nin; i++) in[i] = graph->value[op->in[i]].layout.on[dim];
  return choice_of_time(op, in, suits_in_time(op), list, n);
}
