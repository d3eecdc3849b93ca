/* smaller_batch.c: metrics where the last batch of an epoch, or of a validation, may be smaller.

   Takes   the flat program. Rows without a sample fill a smaller batch up; the loss leaves them
           out, by labels that it ignores or by an input `present`.
   Leaves  no metric that counts these rows. An operation that only metrics need, and that makes a
           sum, a maximum or a minimum over the samples, takes zero or the least or the largest
           number for them, by an input that marks the samples that are present. A mean divides by
           the number of these. If a metric includes the rows otherwise, that is the plan's error.

   The rules decide how each operation runs if the samples are cut, as in metrics.c: so the rows are
   followed through views that merge samples with positions. An operation that the loss needs, too,
   stays as the plan has it. */
#include "graph_passes/graph_passes.h"

#include <math.h>
#include <string.h>

/* The state of the walk. */
struct masking {
  int known;                /* the number of values before the walk */
  int64_t samples;          /* of a batch */
  struct placement *lies;   /* by value: cut, the samples are rows of a dimension; pending, the
                               value is a sum over them */
  bool *unknown;            /* by value: it has samples, in an unknown way */
  bool *masked;             /* by value: the plan made it from its own input `present`, for
                               metrics */
  const bool *for_metrics;  /* by operation: only metrics need it */
  int present, here, count; /* the input that marks present samples; its part for a micro-batch;
                               their number: or NONE */
  struct list order, first;
};

/* The number of samples in a batch that may be smaller, or 0. */
static int64_t samples_of_smaller(void)
{
  if (graph->loss == NONE ||
      (plan_options->last_batch != LAST_SMALLER && !plan_options->says_validated))
    return 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == BATCH && v->init.kind == INIT_PRESENT) return v->shape.size[0];
  }
  for (int i = 0; i < graph->nindex_use; i++) {
    const struct index_use *use = &graph->index_use[i];
    if (use->ignores && use->input != NONE && graph->value[use->input].shape.ndim)
      return graph->value[use->input].shape.size[0];
  }
  return 0; /* the runtime rejects a smaller batch */
}

static bool *what_only_metrics_need(void)
{
  bool *needed = alloc((size_t)graph->nvalue + 1), *only = alloc((size_t)graph->nop + 1);
  const bool *serves_loss = what_serves_loss();
  for (int i = 0; i < graph->nvalue; i++)
    needed[i] = graph->value[i].is_output && i != labels_output();
  for (int at = graph->norder; at-- > 0;) {
    const struct op *op = &graph->op[graph->order[at]];
    bool serves = false;
    for (int k = 0; k < op->nout; k++) serves |= needed[op->out + k];
    for (int i = 0; i < op->nin && serves; i++) needed[op->in[i]] = true;
    only[graph->order[at]] = serves && !serves_loss[graph->order[at]];
  }
  return only;
}

static bool may_have_rows(const struct masking *m, int value)
{
  const struct shape *s = &graph->value[value].shape;
  bool may_have = m->lies[value].kind == SHARD;
  for (int d = 0; d < s->ndim && m->unknown[value]; d++) may_have |= s->size[d] % m->samples == 0;
  return may_have;
}

/* ------------------------------------------------------------------------- the operations added */

static int add_made(struct list *to, struct op op, struct shape shape)
{
  int value = make_op_outputs(op, &shape, 1);
  add(to, graph->value[value].op);
  return value;
}

static int add_simple(struct list *to, struct op op)
{
  int id = make_op(op);
  add(to, id);
  return graph->op[id].out;
}

static bool is_taken(const char *name)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == BATCH && !strcmp(graph->value[i].name, name)) return true;
  return false;
}

/* Each rank has the same samples that it has in the other input, and a micro-batch its part of
   these. */
static void place_as(struct masking *m, int input)
{
  struct op part = {.kind = OP_redistribute, .nin = 1, .in = {m->here}, .module = NONE};
  part.line = plan_options->train_line;
  part.type = part.backward_type = F32;
  part.why = "the samples of a rank";
  for (int i = 0; i < graph->mesh.ndim; i++) {
    const struct placement p = graph->value[input].layout.on[i];
    if (i == time_dimension() || p.kind != SHARD || p.dim != 0) continue;
    part.asked |= 1u << i;
    part.to.on[i] = p;
  }
  if (part.asked) part.in[0] = m->here = add_simple(&m->first, part);
  if (time_dimension() == NONE) return;
  part.asked = 1u << time_dimension();
  part.to.on[time_dimension()] = (struct placement){.kind = SHARD};
  part.why = "the samples of a micro-batch";
  m->here = add_simple(&m->first, part);
}

/* The number of samples that are present. */
static struct op sum_of_present(const struct masking *m, struct op beside_it)
{
  struct op all = beside_it;
  all.kind = OP_sum;
  all.nin = 1;
  all.in[0] = m->present;
  all.scalar = 1;
  all.dims = 1;
  return all;
}

static struct op beside(const struct op *op, enum op_kind kind)
{
  return (struct op){.kind = kind, .module = op->module, .line = op->line, .phase = op->phase};
}

static int constant_of(struct masking *m, const struct op *op, double number, enum type type)
{
  struct op full = beside(op, OP_full);
  full.scalar = number;
  full.type = type;
  return add_made(&m->order, full, (struct shape){0});
}

/* Whether each row along dimension d of a value of that shape has a sample: a row has one sample,
   or a sample has several rows. */
static int mask(struct masking *m, const struct op *op, struct shape s, int d)
{
  const int64_t each = s.size[d] / m->samples;
  int here = op->phase == FORWARD ? m->here : m->present; /* labels are counted by the batch */
  if (each > 1) {
    struct op rows = beside(op, OP_expand);
    rows.nin = 1;
    rows.in[0] = here;
    rows.scalar = 1;
    rows.dims = 1u << 1;
    here = add_made(&m->order, rows, (struct shape){.ndim = 2, .size = {m->samples, each}});
  }
  struct op view = beside(op, OP_view);
  view.nin = 1;
  view.in[0] = here;
  view.equation = each > 1 ? "bk->(bk)" : "b->b";
  for (int k = d + 1; k < s.ndim; k++) view.equation = text("%s 1", view.equation);
  if (each > 1 || d + 1 < s.ndim) here = add_simple(&m->order, view);
  struct op is_there = beside(op, OP_gt);
  is_there.nin = 2;
  is_there.in[0] = here;
  is_there.in[1] = constant_of(m, op, 0, F32);
  return add_simple(&m->order, is_there);
}

/* ------------------------------------------------------------- operations that include the rows */

/* The words of an error: in which batches samples may be missing, and what to say otherwise. */
static bool is_of_epoch(void)
{
  return plan_options->last_batch == LAST_SMALLER;
}
static const char *with_what(void)
{
  return is_of_epoch() ? "with drop_last = false" : "with validate.metrics";
}
static const char *of_what(void)
{
  return is_of_epoch() ? " of an epoch" : " of a validation";
}
static const char *instead(void)
{
  return is_of_epoch() ? "say drop_last = true" : "leave validate.metrics out";
}

static _Noreturn void refuse(const struct op *op, const char *what, int64_t samples)
{
  plan_error(
      op->line,
      "metrics: %s %s, and %s samples may be missing in the last batch%s: take a sum, a mean, a "
      "maximum or a minimum over the samples, multiply what it takes by an input present{%lld}, or "
      "%s",
      printable(op_name(op)), what, with_what(), of_what(), (long long)samples, instead());
}

/* A sum with the factor 1 / (n - c), a mean or a variance, becomes a plain sum, divided by n - c
   for the n of the samples that are present. */
static void divide_by_count(struct masking *m, int id)
{
  const struct op sum = graph->op[id];
  const struct shape s = graph->value[sum.in[0]].shape;
  int64_t i = 1;
  for (int d = 0; d < s.ndim; d++)
    if (sum.dims >> d & 1) i *= s.size[d];
  const double n = (double)i, less = n - 1 / sum.scalar;
  struct op plain = sum, each = beside(&sum, OP_scale), rest = beside(&sum, OP_sub);
  plain.scalar = 1;
  each.nin = 1;
  /* The number of samples that are present, known in the operation's phase. */
  each.in[0] = sum.phase == FORWARD
                   ? m->count
                   : add_simple(&m->order, sum_of_present(m, beside(&sum, OP_sum)));
  each.scalar = n / (double)m->samples;
  rest.nin = 2;
  rest.in[0] = each.scalar == 1 ? each.in[0] : add_simple(&m->order, each);
  if (fabs(less) > 1e-6 * n) {
    rest.in[1] = constant_of(m, &sum, less, F32);
    rest.in[0] = add_simple(&m->order, rest);
  }
  if (graph->value[sum.out].type != F32) {
    struct op cast = beside(&sum, OP_cast);
    cast.nin = 1;
    cast.in[0] = rest.in[0];
    cast.type = graph->value[sum.out].type;
    rest.in[0] = add_simple(&m->order, cast);
  }
  struct op share = beside(&sum, OP_div);
  share.nin = 2;
  share.in[0] = add_made(&m->order, plain, graph->value[sum.out].shape);
  share.in[1] = rest.in[0];
  share.nout = 1;
  share.out = sum.out;
  graph->op[id] = share;
}

static double least_of(int value)
{
  return is_floating(graph->value[value].type) ? -INFINITY : INT32_MIN;
}

static double largest_of(int value)
{
  return is_floating(graph->value[value].type) ? INFINITY : INT32_MAX;
}

/* The operation makes one number of many samples. */
static void leave_out_fill(struct masking *m, int id)
{
  struct op op = graph->op[id]; /* a copy: adding operations moves the array */
  const bool is_known =
      op.kind == OP_sum || op.kind == OP_matmul || op.kind == OP_amax || op.kind == OP_amin;
  bool by_rows = false; /* rows of experts are not in the samples' order */
  for (int i = 0; i < op.nin; i++) by_rows |= graph->value[op.in[i]].counts != NONE;
  if (!is_known || by_rows) refuse(&op, "joins samples", m->samples);
  /* The input is whole on each rank, and in each micro-batch: so all know the number of samples. */
  if (m->present == NONE) {
    const char *name = "samples_present";
    while (is_taken(name)) name = text("%s_", name);
    const struct shape shape = {.ndim = 1, .size = {m->samples}};
    const int line = plan_options->train_line;
    m->present = m->here = add_value(BATCH, name, F32, shape, 0, line);
    graph->value[m->present].init = (struct init){.kind = INIT_PRESENT, .a = 1};
    graph->value[m->present].placed = true;
    m->count = add_simple(&m->first, sum_of_present(m, (struct op){.module = NONE, .line = line}));
    for (int i = 0; i < m->known && m->here == m->present; i++)
      if (m->lies[i].kind == SHARD && graph->value[i].role == BATCH) place_as(m, i);
  }
  for (int i = 0; i < op.nin; i++) {
    if (m->lies[op.in[i]].kind != SHARD) continue;
    double neutral = op.kind == OP_amax   ? least_of(op.in[i])
                     : op.kind == OP_amin ? largest_of(op.in[i])
                                          : 0;
    /* The value, with that number in the rows without a sample. */
    int value = op.in[i];
    const struct shape s = graph->value[value].shape;
    const enum type type = graph->value[value].type;
    struct op chosen = beside(&op, OP_where);
    chosen.nin = 3;
    chosen.in[0] = mask(m, &op, s, m->lies[value].dim);
    chosen.in[1] = value;
    chosen.in[2] = constant_of(m, &op, neutral, type);
    int made = add_simple(&m->order, chosen);
    graph->value[made].name = value_name(value);
    op.in[i] = made;
  }
  graph->op[id] = op;
  if (op.kind == OP_sum && op.scalar != 1) divide_by_count(m, id);
}

/* Sets the placements of the operation's outputs from those of its inputs. Returns whether it can
   run on these. */
static bool runs_on(struct masking *m, const struct op *op, const struct placement *in)
{
  struct letters l;
  struct choice list[MAX_CHOICES];
  if (!*rule_of(op)) return false;
  op_letters(op, &l);
  const struct choice *c =
      &list[choice_by_inputs(op, in, (struct placement){0}, list, choices(op, &l, list))];
  for (int i = 0; i < op->nin; i++)
    if (!same_placement(in[i], c->in[i]) && in[i].kind != REPLICATE) return false;
  for (int k = 0; k < op->nout; k++) {
    const struct shape *s = &graph->value[op->out + k].shape;
    const struct placement out = c->out[k];
    if (out.kind == SHARD && (out.outer > 1 || s->size[out.dim] % m->samples)) return false;
    m->lies[op->out + k] = out;
  }
  return true;
}

/* Finds the placements of the operation's outputs. Returns whether it combines several samples in a
   value. A sum over samples is followed as pending, as a count of rows by expert is; an operation
   that needs it whole takes it as whole. */
static bool follow_rows(struct masking *m, const struct op *op)
{
  struct placement in[MAX_INPUTS] = {{0}};
  bool is_known = true, has_rows = false, joins = false;
  for (int i = 0; i < op->nin; i++) {
    in[i] = m->lies[op->in[i]];
    is_known &= !m->unknown[op->in[i]];
    has_rows |= in[i].kind == SHARD;
  }
  if (op->kind == OP_redistribute) {
    m->lies[op->out] = in[0];
    m->unknown[op->out] = !is_known;
    return false;
  }
  if (is_known && !runs_on(m, op, in)) {
    for (int i = 0; i < op->nin; i++)
      if (in[i].kind == PARTIAL) in[i] = (struct placement){0};
    is_known = !has_rows || runs_on(m, op, in);
  }
  for (int k = 0; k < op->nout; k++) {
    m->unknown[op->out + k] = !is_known;
    joins |= is_known && has_rows && m->lies[op->out + k].kind == PARTIAL;
    if (!is_known) m->lies[op->out + k] = (struct placement){0};
  }
  return joins;
}

static bool takes_rows(const struct masking *m, const struct op *op)
{
  bool takes = false;
  for (int i = 0; i < op->nin; i++)
    takes |= m->unknown[op->in[i]] || m->lies[op->in[i]].kind != REPLICATE;
  return takes;
}

static void look_at(struct masking *m, int id)
{
  const struct op op = graph->op[id]; /* a copy: adding operations moves the array */
  const bool takes = takes_rows(m, &op), for_metrics = m->for_metrics[id];
  bool is_masked = false, may_have = false;
  for (int i = 0; i < op.nin; i++) {
    const struct value *v = &graph->value[op.in[i]];
    const bool is_present = v->role == BATCH && v->init.kind == INIT_PRESENT;
    is_masked |= m->masked[op.in[i]] || is_present;
    if (for_metrics && v->op != NONE && graph->op[v->op].kind == OP_count_places)
      refuse(&op, "takes how many places experts have in all samples", m->samples);
    may_have |= may_have_rows(m, op.in[i]);
  }
  is_masked &= for_metrics || op.kind == OP_redistribute;
  for (int k = 0; k < op.nout; k++) m->masked[op.out + k] = is_masked;
  const bool joins = takes && follow_rows(m, &op);
  if (takes && for_metrics && !is_masked && may_have && m->unknown[op.out])
    refuse(&op, "compares, reorders, regroups or picks samples", m->samples);
  if (joins && for_metrics && !(is_masked && op.kind != OP_sum)) leave_out_fill(m, id);
  for (int k = 0; k < op.nout && joins && for_metrics; k++)
    m->lies[op.out + k] = (struct placement){0};
  add(&m->order, id);
}

int mask_metrics(void)
{
  const int64_t samples = samples_of_smaller();
  if (samples < 2) return NONE;
  bool has_own_metrics = false;
  for (int i = 0; i < graph->nvalue && !has_own_metrics; i++)
    has_own_metrics = graph->value[i].is_output && i != labels_output();
  if (!has_own_metrics) return NONE;
  struct masking run = {.known = graph->nvalue, .samples = samples, .present = NONE}, *m = &run;
  m->lies = alloc((size_t)m->known * sizeof *m->lies);
  m->unknown = alloc((size_t)m->known);
  m->masked = alloc((size_t)m->known);
  m->for_metrics = what_only_metrics_need();
  for (int i = 0; i < m->known; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == BATCH && v->shape.ndim && v->shape.size[0] == samples) m->lies[i].kind = SHARD;
  }
  const int before = graph->norder;
  for (int at = 0; at < before; at++) look_at(m, graph->order[at]);
  for (int i = 0; i < m->known; i++) {
    const struct value *v = &graph->value[i];
    const struct op *op = v->op == NONE ? NULL : &graph->op[v->op];
    if (v->is_output && !m->masked[i] && may_have_rows(m, i)) {
      plan_error(
          op && op->nin ? graph->value[op->in[0]].line : v->line,
          "metrics: %s has elements for each sample, and %s samples may be missing in the last "
          "batch%s: take a sum or a mean over the samples, multiply by an input present{%lld}, or "
          "%s",
          printable(value_name(i)), with_what(), of_what(), (long long)m->samples, instead());
    }
  }
  if (m->present == NONE) return NONE;
  struct list all = {0};
  int at = 0;
  while (at < m->order.n && graph->op[m->order.at[at]].phase != FORWARD)
    add(&all, m->order.at[at++]);
  for (int k = 0; k < m->first.n; k++) add(&all, m->first.at[k]);
  while (at < m->order.n) add(&all, m->order.at[at++]);
  graph->order = all.at;
  graph->norder = all.n;
  graph->order_room = all.room;
  return m->present;
}

/* The number of samples in a batch of a program that only goes forward: the first size of all its
   inputs; 0: they differ. */
static int64_t samples_of_inputs(void)
{
  int64_t samples = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != BATCH || !v->shape.ndim) continue;
    if (samples && v->shape.size[0] != samples) return 0;
    samples = v->shape.size[0];
  }
  return samples;
}

void follow_samples_to_outputs(void)
{
  if (graph->loss != NONE) return;
  struct masking run = {.known = graph->nvalue, .samples = samples_of_inputs(), .present = NONE};
  struct masking *m = &run;
  m->lies = alloc((size_t)m->known * sizeof *m->lies);
  m->unknown = alloc((size_t)m->known);
  for (int i = 0; i < m->known; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == BATCH && m->samples && v->shape.ndim) m->lies[i].kind = SHARD;
    m->unknown[i] = v->role == BATCH && !m->samples;
  }
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (!takes_rows(m, op)) continue;
    const bool joins = m->samples && follow_rows(m, op);
    for (int k = 0; k < op->nout; k++) m->unknown[op->out + k] |= joins || !m->samples;
  }
  for (int i = 0; i < m->known; i++) {
    struct value *v = &graph->value[i];
    const struct placement lies = m->lies[i];
    if (!v->is_output) continue;
    v->rows = m->unknown[i] || lies.kind == PARTIAL             ? ROWS_OF_BATCH
              : lies.kind != SHARD                              ? ROWS_OF_NONE
              : lies.dim == 0 && v->shape.size[0] == m->samples ? ROWS_OF_SAMPLES
                                                                : ROWS_OF_BATCH;
  }
}
