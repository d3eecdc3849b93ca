/* microbatch_choice.c: how an operation runs along the micro-batch axis of the mesh.

   Values do not move between micro-batches. A replicated value exists in every micro-batch. Each
   may use a slice of it, or only the first micro-batch may contribute it to a sum. A value that is
   cut or pending becomes whole after the last micro-batch. An operation that needs it before is
   computed for the whole batch at once, if it can be (graph_passes/microbatches.c). So the choice
   depends on its requirements on the inputs, and not on bytes. */
#include "sharding/sharding.h"

enum { TAKES_PART = 1, GIVES_TERM = 4, NEEDS_WHOLE = 1 << 8, NEVER = 1 << 16 };

static int effort(struct placement from, struct placement to)
{
  if (same_placement(from, to)) return 0;
  if (to.kind == REPLICATE) return NEEDS_WHOLE;
  if (from.kind != REPLICATE) return NEVER;
  return to.kind == SHARD ? TAKES_PART : GIVES_TERM;
}

struct placement microbatch_preference(const struct chooser *c, const struct op *op)
{
  int dim = time_dimension();
  const struct op *next = next_user(c, op);
  int of = op->nout ? graph->value[op->out].of : NONE;
  if (of != NONE && layout_in(c, of)->on[dim].kind == SHARD) return layout_in(c, of)->on[dim];
  for (int i = 0; next && i < next->nin; i++) {
    const struct value *v = &graph->value[next->in[i]];
    if (next->in[i] != op->out && same_shape(v->shape, graph->value[op->out].shape))
      return layout_in(c, next->in[i])->on[dim];
  }
  return (struct placement){0};
}

int choice_by_inputs(const struct op *op, const struct placement *in, struct placement like,
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

int microbatch_choice(const struct chooser *c, const struct op *op, const struct choice *list,
                      int n)
{
  struct placement in[MAX_INPUTS];
  int dim = time_dimension();
  for (int i = 0; i < op->nin; i++) in[i] = layout_in(c, op->in[i])->on[dim];
  return choice_by_inputs(op, in, microbatch_preference(c, op), list, n);
}
