/* metrics.c: the plan's metrics in a step of several batches, of micro-batches or of stages: like
   the loss, they cover the whole step.

   A batch's part of a metric is a sum over its samples, or a mean, up to the first operation that
   cannot run on the terms of a sum: for example, the maximum over the experts of the number of
   places of each. The terms before that operation are added up, in a value with the role SUMS. The
   operation and all that follow it run once a step, in the update. If no operation is of that kind,
   the metric itself is the sum. So an operation that the loss does not need runs on the results of
   all batches together. Several batches of a step have each its share of a metric, which is their
   mean, like the loss; a validation has one batch, which is all of it. In a pipeline one stage
   adds, and all ranks have the sums of all.

   To find the sums over samples, the rules decide how each operation runs along a dimension of the
   mesh that cuts the samples in time, whether or not the mesh has one. */
#include "graph_passes/graph_passes.h"

/* The state of the search. */
struct deferring {
  struct placement *lies;  /* by value: its placement along the samples */
  const bool *serves_loss; /* by operation */
  int *sum_of;             /* by value: the sum of all batches' values, or NONE */
  int known;               /* the number of values before the search */
  struct list later;       /* the operations that go to the end of the order */
};

static bool is_later(int value)
{
  int maker = graph->value[value].op;
  return maker != NONE && graph->op[maker].phase == UPDATE;
}

bool *what_serves_loss(void)
{
  bool *needed = alloc((size_t)graph->nvalue + 1), *serves_loss = alloc((size_t)graph->nop + 1);
  needed[graph->loss] = true;
  if (labels_output() != NONE) needed[labels_output()] = true;
  for (int at = graph->norder; at-- > 0;) {
    const struct op *op = &graph->op[graph->order[at]];
    bool serves = op->nout == 0 || op->kind == OP_running;
    for (int k = 0; k < op->nout; k++) serves |= needed[op->out + k];
    for (int i = 0; i < op->nin && serves; i++) needed[op->in[i]] = true;
    serves_loss[graph->order[at]] = serves;
  }
  return serves_loss;
}

/* ------------------------------------------------------------------------------- along samples */

static bool is_pending(struct placement p)
{
  return p.kind == PARTIAL;
}

/* Sets the placements of the outputs. Returns whether the operation needs a pending sum whole, and
   no input is cut along the samples. */
static bool waits_for_sums(struct deferring *d, const struct op *op)
{
  struct placement in[MAX_INPUTS];
  struct letters l;
  struct choice list[MAX_CHOICES];
  bool waits = false, has_samples = false, runs = true;
  if (op->kind == OP_redistribute) {
    d->lies[op->out] = d->lies[op->in[0]];
    return false;
  }
  if (!op->nin || !*rule_of(op)) return false;
  for (int i = 0; i < op->nin; i++) in[i] = d->lies[op->in[i]];
  op_letters(op, &l);
  const struct choice *c =
      &list[choice_by_inputs(op, in, (struct placement){0}, list, choices(op, &l, list))];
  for (int i = 0; i < op->nin; i++) {
    waits |= is_pending(in[i]) && !is_pending(c->in[i]);
    has_samples |= in[i].kind == SHARD;
    runs &= same_placement(in[i], c->in[i]) || in[i].kind == REPLICATE;
  }
  for (int k = 0; k < op->nout && runs; k++) {
    /* Each of several batches has a maximum of its own, and their mean counts. */
    bool is_own = is_pending(c->out[k]) && c->out[k].reduction != SUM && time_dimension() == NONE;
    if (!is_own) d->lies[op->out + k] = c->out[k];
  }
  return waits && !has_samples;
}

/* ------------------------------------------------------------------------------------- the sums */

static int append_later(struct deferring *d, struct op op, enum phase phase, int input)
{
  op.phase = phase;
  op.module = NONE;
  op.line = graph->value[input].line;
  op.nin = 1;
  op.in[0] = input;
  int id = make_op(op);
  graph->value[graph->op[id].out].name = value_name(input);
  add(&d->later, id);
  return graph->op[id].out;
}

static _Noreturn void refuse(int value, const char *why)
{
  plan_error(graph->value[value].line, "metrics: %s %s", printable(value_name(value)), why);
}

/* The sum of all batches, whole. */
static int sum_of(struct deferring *d, int value)
{
  if (d->sum_of[value] != NONE) return d->sum_of[value];
  /* A batch's term of the sum. */
  if (!is_floating(graph->value[value].type))
    refuse(value, "is of whole numbers, and is added up over the batches of a step: cast it "
                  "before, with x:to(\"float32\")");
  if (is_pending(d->lies[value]) && d->lies[value].reduction != SUM)
    refuse(value, "is a maximum or a minimum over the samples of a micro-batch, and only sums of "
                  "these are added up: take it of a sum or a mean over the samples");
  int term = value;
  if (plan_options->accumulate != 1) {
    struct op share = {.kind = OP_batch_share, .scalar = 1.0 / plan_options->accumulate};
    term = append_later(d, share, FORWARD, value);
  }
  struct summand s = {.value = term, .role = SUMS, .phase = FORWARD, .of = NONE};
  s.name = value_name(value);
  s.line = graph->value[value].line;
  int id = add_to_sum(&s), before = graph->op[id].in[0], after = graph->op[id].out;
  graph->op[id].module = NONE;
  graph->value[before].module = graph->value[after].module = NONE;
  graph->value[before].of = graph->value[after].of = before;
  add(&d->later, id);
  struct op whole = {.kind = OP_redistribute,
                     .type = graph->value[value].type,
                     .backward_type = graph->value[value].type,
                     .asked = (1u << graph->mesh.ndim) - 1,
                     .finishes = true,
                     .why = "a metric on every rank"};
  return d->sum_of[value] = append_later(d, whole, UPDATE, after);
}

static void defer(struct deferring *d, int id)
{
  struct op op = graph->op[id]; /* a copy: adding operations moves the array */
  for (int i = 0; i < op.nin; i++) {
    /* The value as an operation of the update takes it: a constant is made again, all else is
       summed up. */
    int value = op.in[i];
    int maker = graph->value[value].op;
    int whole = value;
    if (value < d->known && !is_later(value)) {
      if (d->lies[value].kind == SHARD)
        plan_error(
            op.line,
            "metrics: %s takes %s, which is of each batch's samples, beside what is whole only "
            "after the last batch of the step: take a sum or a mean of it",
            printable(op_name(&op)), printable(value_name(value)));
      if (maker == NONE || graph->op[maker].nin) {
        whole = sum_of(d, value);
      } else {
        struct op constant = graph->op[maker];
        constant.phase = UPDATE;
        constant.module = NONE;
        int again = make_op_outputs(constant, &graph->value[value].shape, 1);
        graph->value[again].name = graph->value[value].name;
        add(&d->later, graph->value[again].op);
        whole = again;
      }
    }
    op.in[i] = whole;
  }
  op.phase = UPDATE;
  op.module = NONE;
  for (int k = 0; k < op.nout; k++) graph->value[op.out + k].module = NONE;
  graph->op[id] = op;
  if (graph->stages) set_stage(id, NONE); /* all ranks run it */
  add(&d->later, id);
}

/* ------------------------------------------------------------------------------- the operations */

/* The whole value that a view shows, or the value itself. */
static int shown(int value)
{
  const struct op *op = graph->value[value].op == NONE ? NULL : &graph->op[graph->value[value].op];
  bool shows = op && op->kind == OP_view &&
               same_shape(graph->value[op->in[0]].shape, graph->value[value].shape);
  return shows ? shown(op->in[0]) : value;
}

static void finish_metric(struct deferring *d, int value)
{
  if (is_later(value)) return;
  int whole = sum_of(d, shown(value));
  graph->value[whole].name = graph->value[value].name;
  graph->value[whole].is_output = true;
  graph->value[value].is_output = false;
}

void defer_metrics(int whole)
{
  struct deferring run = {.known = graph->nvalue}, *d = &run;
  struct list order = {0};
  bool has_metrics = false;
  if (graph->loss != NONE && adds_up_loss())
    for (int i = 0; i < graph->nvalue && !has_metrics; i++) has_metrics = graph->value[i].is_output;
  if (!has_metrics) return;
  d->lies = alloc((size_t)d->known * sizeof *d->lies);
  d->sum_of = alloc((size_t)d->known * sizeof *d->sum_of);
  for (int i = 0; i < d->known; i++) {
    const struct value *v = &graph->value[i];
    d->sum_of[i] = NONE;
    if (v->role == BATCH && v->shape.ndim && i != whole) d->lies[i].kind = SHARD;
  }
  d->serves_loss = what_serves_loss();
  for (int at = 0; at < graph->norder; at++) {
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    bool follows = false;
    for (int i = 0; i < op->nin; i++) follows |= is_later(op->in[i]);
    if (!follows) follows = waits_for_sums(d, op) && !d->serves_loss[id];
    if (follows)
      defer(d, id);
    else
      add(&order, id);
  }
  for (int i = 0; i < d->known; i++)
    if (graph->value[i].is_output) finish_metric(d, i);
  for (int late = 0; late < 2; late++)
    for (int k = 0; k < d->later.n; k++)
      if ((graph->op[d->later.at[k]].phase == UPDATE) == late) add(&order, d->later.at[k]);
  graph->order = order.at;
  graph->norder = order.n;
  graph->order_room = order.room;
}
