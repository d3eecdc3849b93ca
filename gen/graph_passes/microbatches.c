/* microbatches.c: a step that goes through its batch in parts. The parts are a dimension of the
   mesh that is in time: each rank holds all of them, one after the other, so that inputs,
   activations and gradients have placements along it as along any other. A value that is pending
   there is a sum over the micro-batches, and whole after the last one. accumulate.c adds it up.

   Some values are needed whole before: the number of targets that count, by which a loss divides.
   Such a value is computed for the whole batch at once, before the first micro-batch, if it depends
   only on inputs. */
#include "graph_passes/graph_passes.h"

void check_microbatches(void)
{
  int dim = time_dimension();
  for (int i = 0; i < graph->nvalue && dim != NONE; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != BATCH || !v->shape.ndim) continue;
    for (int rank = 0; rank < world_size(); rank++) {
      int64_t has = local_shape(i, rank).size[0];
      if (has < microbatches())
        plan_error(plan_options->train_line,
                   "microbatches = %d: rank %d has %lld sample%s of a batch's %s, and each of %d "
                   "micro-batches needs one: say %lld or fewer, or make the batch larger",
                   microbatches(), rank, (long long)has, has == 1 ? "" : "s", printable(v->name),
                   microbatches(), (long long)(has ? has : 1));
    }
  }
}

/* The operation that needs a value, the value, and the order to which the operations that make it
   are added. */
struct need {
  const struct op *user;
  int value;
  struct list *order;
  struct list *whole; /* by value: the same value for the whole batch, or NONE */
};

static _Noreturn void refuse(const struct need *n)
{
  plan_error(
      n->user->line,
      "%s takes %s, which is whole only after the last micro-batch: a forward in microbatches "
      "cannot read what all samples of the batch make together, except for what depends on the "
      "inputs alone",
      printable(op_name(n->user)), printable(value_name(n->value)));
}

/* The operations that make the value, which all micro-batches have, run before the first one. */
static void make_before(int value, const struct need *n)
{
  struct op *op = graph->value[value].op == NONE ? NULL : &graph->op[graph->value[value].op];
  if (graph->value[value].role == PARAMETER) refuse(n);
  if (!op || op->phase == GATHER) return;
  op->phase = GATHER;
  for (int i = 0; i < op->nin; i++) make_before(op->in[i], n);
}

static int made_whole(int value, const struct need *n);

/* Adds the operation that makes `value`, for the whole batch. */
static int computed_whole(int value, const struct need *n)
{
  int maker = graph->value[value].op;
  if (maker == NONE) refuse(n);
  struct op op = graph->op[maker];
  int before = op.out;
  bool moves = op.kind == OP_redistribute;
  for (int i = 0; i < op.nin; i++) op.in[i] = made_whole(op.in[i], n);
  if (moves) op.to = over_time(op.to);
  if (moves && same_layout(graph->value[op.in[0]].layout, over_time(graph->value[value].layout)))
    return op.in[0];
  op.phase = GATHER;
  struct shape shape[MAX_OUTPUTS]; /* whole shapes are those of the whole batch */
  for (int k = 0; k < op.nout; k++) shape[k] = graph->value[before + k].shape;
  int first = make_op_outputs(op, shape, op.nout);
  for (int k = 0; k < op.nout; k++) {
    struct value *v = &graph->value[first + k];
    v->layout = over_time(graph->value[before + k].layout);
    v->name = graph->value[before + k].name;
    v->placed = true;
  }
  add(n->order, graph->value[first].op);
  return first + (value - before);
}

static int made_whole(int value, const struct need *n)
{
  if (!is_of_microbatch(value)) {
    make_before(value, n);
    return value;
  }
  while (n->whole->n <= value) add(n->whole, NONE);
  if (n->whole->at[value] == NONE) {
    int whole = computed_whole(value, n); /* it may move the table */
    n->whole->at[value] = whole;
  }
  return n->whole->at[value];
}

int whole_batch(struct list *whole, int value, const struct op *user, struct list *order)
{
  return made_whole(value, &(struct need){user, value, order, whole});
}
