/* balance_buffers.c: the update of a buffer that balances counts (`running` in ops.h) by a rate.
   The sum of the counts over the batches of a step is its gradient. After the last batch the buffer
   grows by the rate where the sum is below the mean of all sums, and shrinks where it is above; its
   own mean stays. These are operations of the phase UPDATE, which propagate places. */
#include "graph_passes/graph_passes.h"

/* A buffer, and the operation `running` that has it. */
struct balanced {
  int buffer;
  const struct op *running;
};

static struct op in_update(const struct balanced *b, enum op_kind kind, int input)
{
  struct op op = {.kind = kind, .phase = UPDATE, .module = b->running->module};
  op.line = b->running->line;
  op.nin = 1;
  op.in[0] = input;
  return op;
}

static int append_named(const struct balanced *b, struct op op, const char *what)
{
  int out = append_op(op);
  graph->value[out].name = text("%s.%s", graph->value[b->buffer].name, what);
  return out;
}

/* The sum of all elements, times `by`. */
static int sum_of(const struct balanced *b, int value, double by, const char *what)
{
  struct op op = in_update(b, OP_sum, value);
  op.dims = (1u << graph->value[value].shape.ndim) - 1;
  op.scalar = by;
  return append_named(b, op, what);
}

static int less(const struct balanced *b, int from, int value, const char *what)
{
  struct op op = in_update(b, OP_sub, from);
  op.in[op.nin++] = value;
  return append_named(b, op, what);
}

static int number(const struct balanced *b, double x)
{
  struct op op = in_update(b, OP_full, NONE);
  op.nin = 0;
  op.type = F32;
  op.scalar = x;
  return append_op_shaped(op, (struct shape){0});
}

/* Each count times the number of counts, minus the sum of all counts: whole numbers, so that a
   count that equals the mean is neither above nor below it. */
static int above_mean(const struct balanced *b, int counts)
{
  struct op times = in_update(b, OP_scale, counts);
  times.scalar = (double)elements(graph->value[counts].shape);
  return less(b, append_named(b, times, "times"), sum_of(b, counts, 1, "sum"), "above");
}

int way_back_to_balance(int buffer, int counts, const struct op *running)
{
  const struct balanced balanced = {buffer, running}, *b = &balanced;
  struct op sign = in_update(b, OP_abs_back, number(b, running->scalar));
  sign.in[sign.nin++] = above_mean(b, counts);
  int step = append_named(b, sign, "step");
  double each = 1 / (double)elements(graph->value[counts].shape);
  struct op op =
      in_update(b, OP_redistribute, less(b, step, sum_of(b, step, each, "mean"), "back"));
  op.type = op.backward_type = F32;
  op.to = graph->value[buffer].layout;
  op.asked = (1u << graph->mesh.ndim) - 1;
  op.why = "the buffer's update";
  return append_named(b, op, "back");
}
