/* grad.c: the pass `grad`: the backward program.

   Takes   the forward graph, every value placed.
   Leaves  after it, for each parameter that the loss depends on, the operations that make its
           gradient, in the layout of the parameter: a value with the role GRADIENT. In a step of
           several batches, the loss is their mean.

   Reverse mode: from the loss backwards, each operation's gradient function (gradients.c) adds the
   operations from the gradient of its output to the gradients of its inputs. */
#include "graph_passes/graph_passes.h"

/* The state of the pass. */
struct backward {
  int *gradient;      /* of each value: a value, or NONE while nothing has reached it */
  bool *has_gradient; /* the value depends on a parameter, so it has a gradient */
  int *readers;       /* of each value: operations that may still add to its gradient */
  struct list late;   /* parameters whose gradient is whole when the current scan is done */
};

/* From parameters on, in the order of the forward. */
static void mark_what_follows(struct backward *b)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    bool any = false;
    for (int k = 0; k < op->nin; k++) any |= b->has_gradient[op->in[k]];
    for (int k = 0; k < op->nout; k++)
      b->has_gradient[op->out + k] |=
          any && !op->constant && is_floating(graph->value[op->out + k].type);
  }
}

/* If the plan asked for a value's layout, its gradient gets the same layout: pending sums in it are
   reduced here, once, however many operations read the value. */
static int finished(struct backward *b, int value)
{
  if (stays_at[value] == NONE) return b->gradient[value];
  const struct op *by = &graph->op[stays_at[value]];
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {b->gradient[value]},
                  .type = graph->value[b->gradient[value]].type,
                  .backward_type = graph->value[b->gradient[value]].type,
                  .to = graph->value[value].layout,
                  .asked = dimensions_of_ranks(),
                  .phase = BACKWARD,
                  .module = by->module,
                  .line = by->line,
                  .why = text("backward of %s", by->why)};
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (op.to.on[d].kind == PARTIAL) op.to.on[d] = (struct placement){0};
  int out = append_op(op);
  graph->value[out].name = graph->value[b->gradient[value]].name;
  return b->gradient[value] = out;
}

static void gradient_of_parameter(struct backward *b, int parameter)
{
  struct value p = graph->value[parameter];
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {b->gradient[parameter]},
                  .type = p.reduced_as,
                  .backward_type = p.reduced_as,
                  .to = p.layout,
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .phase = BACKWARD,
                  .module = p.module,
                  .line = p.line,
                  .of_unit = p.unit != NONE,
                  .unit = p.unit,
                  .why = text("the gradient of %s", p.name)};
  if (time_dimension() != NONE)
    op.to.on[time_dimension()] = (struct placement){.kind = PARTIAL, .reduction = SUM};
  int out = append_op(op);
  graph->value[out].type = p.type;
  graph->value[out].role = GRADIENT;
  graph->value[out].of = parameter;
  graph->value[out].name = text("d_%s", p.name);
}

/* The first of a parameter's parts. */
static int first_part(int parameter)
{
  while (graph->value[parameter].file_first) parameter--;
  return parameter;
}

/* Where the loss depends on some parts of a parameter, the gradient of the others is zero. */
static void give_zeros_to_parts(struct backward *b, int known)
{
  bool *any = alloc((size_t)known + 1);
  for (int i = 0; i < known; i++)
    if (graph->value[i].file_size && b->gradient[i] != NONE) any[first_part(i)] = true;
  for (int i = 0; i < known; i++) {
    struct value p = graph->value[i];
    if (!p.file_size || !b->has_gradient[i] || b->gradient[i] != NONE || !any[first_part(i)])
      continue;
    struct op op = {.kind = OP_full, .type = p.type, .phase = BACKWARD};
    op.module = p.module;
    op.line = p.line;
    b->gradient[i] = append_op_shaped(op, p.shape);
    gradient_of_parameter(b, i);
  }
}

/* Called when an operation is done: parameters that no other operation reads have their whole
   gradient. */
static void finish_gradient(struct backward *b, const struct op *op)
{
  for (int i = 0; i < op->nin; i++) {
    int value = op->in[i];
    bool whole = --b->readers[value] == 0 && b->gradient[value] != NONE;
    if (!whole || graph->value[value].role != PARAMETER) continue;
    if (is_in_scan())
      add(&b->late, value);
    else
      gradient_of_parameter(b, value);
  }
}

/* Called before an operation, in reverse order, and in the end without one. */
static void emit_gradient(struct backward *b, const struct op *op, int at)
{
  if (!pass_step(op, at)) return;
  for (int i = 0; i < b->late.n; i++) gradient_of_parameter(b, b->late.at[i]);
  b->late.n = 0;
}

/* Gradients flow through the first output only: those of other outputs would be lost. */
static bool is_reached(struct backward *b, const struct op *op)
{
  for (int k = 1; k < op->nout; k++) {
    if (!b->has_gradient[op->out + k] || b->gradient[op->out + k] == NONE) continue;
    if (op->kind == OP_custom)
      plan_error(op->line,
                 "the loss depends on output %d of %s, but gradients flow through output 0 alone",
                 k, op_name(op));
    bug_at("grad", graph->value[op->out].op, "output %d has a gradient", k);
  }
  return op->nout && b->has_gradient[op->out] && b->gradient[op->out] != NONE;
}

/* A batch's part of the step's loss, which is the mean over its batches. */
static int share_of_loss(int batch)
{
  if (plan_options->accumulate == 1) return batch;
  struct op part = {
      .kind = OP_scale, .nin = 1, .in = {batch}, .scalar = 1.0 / plan_options->accumulate};
  part.module = outside_scans(graph->value[batch].module);
  part.line = plan_options->train_line;
  int norder = graph->norder, share = append_op(part);
  propagate_from(norder);
  return share;
}

/* In a step of several batches the loss is their mean: each batch adds its part to the sum of
   those before it, and each micro-batch its term. In a pipeline the stage that makes the loss adds
   it, and the others nothing. If the loss is pending over ranks, the sum is
   reduced in the update: *later is the operation that does it, else NONE. Returns the loss of one
   batch, or micro-batch. */
static int average_loss(int *later)
{
  int loss = graph->loss, made_by = graph->value[loss].op, batch = loss;
  struct op *maker = &graph->op[made_by];
  /* A validation runs only the forward, and the loss must be whole then. */
  if (maker->kind == OP_redistribute && !plan_options->validates &&
      graph->order[graph->norder - 1] == made_by &&
      graph->value[maker->in[0]].type == graph->value[loss].type)
    batch = maker->in[0];
  *later = batch == loss ? NONE : made_by;
  if (*later == NONE)
    graph->value[loss].role = ACTIVATION;
  else
    graph->norder--;
  int share = share_of_loss(batch);
  struct summand term = {share, NONE, LOSS, "loss", FORWARD, plan_options->train_line};
  int id = add_to_sum(&term), sum = graph->op[id].out;
  append_to_order(id);
  graph->value[batch].name = "loss_of_batch";
  if (*later == NONE) {
    graph->loss = sum;
  } else {
    struct op *op = &graph->op[*later];
    op->in[0] = sum;
    op->phase = UPDATE;
    op->to = graph->value[op->out].layout = over_time(op->to);
  }
  return batch;
}

/* Removes the operations that metrics run once a step from the order: they come after the
   backward. */
static struct list taken_updates(void)
{
  struct list updates = {0};
  int kept = 0;
  for (int at = 0; at < graph->norder; at++)
    if (graph->op[graph->order[at]].phase == UPDATE)
      add(&updates, graph->order[at]);
    else
      graph->order[kept++] = graph->order[at];
  graph->norder = kept;
  return updates;
}

void grad(void)
{
  struct backward run = {0}, *b = &run;
  if (graph->loss == NONE) return;
  struct list updates = taken_updates();
  int loss = graph->loss, later = NONE;
  if (adds_up_loss()) loss = average_loss(&later);
  int known = graph->nvalue, norder = graph->norder;
  b->gradient = alloc((size_t)known * sizeof *b->gradient);
  b->has_gradient = alloc((size_t)known * sizeof *b->has_gradient);
  b->readers = count_readers();
  stays_at = alloc((size_t)known * sizeof *stays_at);
  for (int i = 0; i < known; i++) b->gradient[i] = stays_at[i] = NONE;
  begin_scans(b->has_gradient, b->gradient);
  b->late = (struct list){0};
  for (int i = 0; i < graph->nvalue; i++)
    b->has_gradient[i] = graph->value[i].role == PARAMETER && is_floating(graph->value[i].type) &&
                         !graph->value[i].frozen;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (is_kept_for_backward(op) && stays_at[op->in[0]] == NONE)
      stays_at[op->in[0]] = graph->order[i];
  }
  do mark_what_follows(b);
  while (want_carried(b->has_gradient));
  if (!b->has_gradient[loss])
    plan_error(plan_options->train_line,
               "the loss depends on no parameter: there is nothing to train");

  /* The gradient of a batch's loss: its share of the step's loss. */
  const struct value *v = &graph->value[loss];
  struct op op = {.kind = OP_full, .type = v->type, .phase = BACKWARD};
  op.scalar = 1.0 / plan_options->accumulate;
  op.module = outside_scans(v->module);
  op.line = v->line;
  b->gradient[loss] = append_op_shaped(op, v->shape);
  for (int i = norder - 1; i >= 0; i--) {
    struct op op = graph->op[graph->order[i]];
    int first = graph->nop, forward = graph->order[i];
    emit_gradient(b, &op, i);
    if (is_reached(b, &op) && takes_part_in_scan(op.kind))
      write_scan_gradient(&op, b->gradient[op.out]);
    else if (is_reached(b, &op) && !(op.kind == OP_redistribute && !b->has_gradient[op.in[0]]))
      write_gradient(&op, finished(b, op.out), b->has_gradient, b->gradient);
    else if (op.kind == OP_running)
      write_gradient(&op, NONE, b->has_gradient, b->gradient);
    finish_gradient(b, &op);
    for (int id = first; id < graph->nop; id++) set_stage_of(id, forward);
  }
  emit_gradient(b, NULL, 0);
  give_zeros_to_parts(b, known);
  propagate_from(norder);
  if (later != NONE) append_to_order(later);
  for (int i = 0; i < updates.n; i++) append_to_order(updates.at[i]);
}
