/* stages.c: the stage of a pipeline in which each operation runs, and the pass `stages`: the
   transfers between stages.

   Takes   the flat program, forward, backward and update; the modules with which stages begin.
   Leaves  each operation of the forward and the backward in a stage, unless it depends only on
           inputs and constants and several stages read it: then each of those has it. If an
           operation takes a value that a stage at another coordinate made, that stage sends it and
           this one receives it, once.

   The backward of an operation is in its stage, so that gradients go the way back. A parameter is
   in the stage that reads it first; another stage that reads it gets it before the first
   micro-batch. */
#include "graph_passes/graph_passes.h"

#include <string.h>

void assign_stages(void)
{
  if (!graph->stages) return;
  /* The schedule says at which coordinate a stage is, and whether its backward is split. */
  struct pipeline_stages *s = graph->stages;
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  if (!p) plan_error(s->line, "pipeline: %s", why);
  for (int i = 0; i < s->n; i++) s->coordinate[i] = p->rank_of[i];
  for (int rank = 0; rank < p->ranks; rank++)
    for (int i = 0; i < p->order[rank].n; i++)
      if (p->order[rank].at[i].kind == ACTION_I) s->is_split[p->order[rank].at[i].stage] = true;
  if (s->nmay_begin) balance_stages(p);
  /* By module: the stage that begins with it or with a module that contains it; 0: none does. */
  int *stage = alloc((size_t)(graph->nmodule + 1) * sizeof *stage);
  for (int k = 1; k < graph->stages->n; k++) stage[graph->stages->first_module[k]] = k;
  for (int i = 0; i < graph->nmodule; i++) {
    int parent = graph->module[i].parent;
    if (!stage[i] && parent != NONE) stage[i] = stage[parent];
  }
  const int *begins = stage;
  int now = 0;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    int here = op->module == NONE ? 0 : begins[op->module];
    if (here > now + 1)
      plan_error(
          graph->stages->line,
          "pipeline: stage %d would have nothing to do: %s, with which stage %d begins, runs "
          "before it",
          now + 1, printable(graph->module[graph->stages->first_module[here]].path), here);
    if (here > now) now = here;
    /* Whether it depends on more than inputs and constants. */
    bool is_staged = false;
    for (int i = 0; i < op->nin && !is_staged; i++) {
      const struct value *v = &graph->value[op->in[i]];
      is_staged = v->role == PARAMETER || stage_of(v->op) != NONE;
    }
    if (is_staged) set_stage(graph->order[at], now);
  }
  if (now + 1 < graph->stages->n)
    plan_error(graph->stages->line, "pipeline: %s, with which stage %d begins, does not run",
               printable(graph->module[graph->stages->first_module[now + 1]].path), now + 1);
}

int *stages_of_parameters(void)
{
  int *stage = alloc((size_t)(graph->nvalue + 1) * sizeof *stage);
  int *is = alloc((size_t)(graph->nvalue + 1) * sizeof *is); /* the parameter as it is moved */
  for (int i = 0; i < graph->nvalue; i++) {
    stage[i] = NONE;
    is[i] = graph->value[i].role == PARAMETER ? i : NONE;
  }
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    int reader = stage_of(graph->order[at]);
    for (int i = 0; i < op->nin; i++) {
      int parameter = is[op->in[i]];
      if (parameter == NONE) continue;
      if (stage[parameter] == NONE) stage[parameter] = reader;
      for (int k = 0; k < op->nout && reader == NONE; k++) is[op->out + k] = parameter;
    }
  }
  return stage;
}

/* ----------------------------------------------------------------------------------- the pass */

/* The state of the pass. */
struct staging {
  int nvalue;    /* values when the pass began */
  int *owner;    /* by these: see stages_of_values */
  int *received; /* by value and stage: the value received, or NONE */
};

int *stages_of_values(void)
{
  int *owner = alloc((size_t)(graph->nvalue + 1) * sizeof *owner);
  for (int i = 0; i < graph->nvalue; i++) owner[i] = NONE;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin; i++)
      if (graph->value[op->in[i]].role == PARAMETER && owner[op->in[i]] == NONE)
        owner[op->in[i]] = stage_of(graph->order[at]);
  }
  /* One stage also saves the parameters that no stage reads. */
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER && owner[i] == NONE) owner[i] = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    bool of_parameter = v->of != NONE && graph->value[v->of].role == PARAMETER;
    if (of_parameter && v->role != ACTIVATION) owner[i] = owner[v->of];
  }
  return owner;
}

/* The stage that has the value; NONE: all ranks have it, or, of sums, each that adds to it. */
static int stage_with(struct staging *s, int value)
{
  int maker = graph->value[value].op;
  if (maker == NONE && graph->value[value].role == SUMS) return NONE;
  if (maker != NONE && stage_of(maker) != NONE) return stage_of(maker);
  return value < s->nvalue ? s->owner[value] : NONE;
}

/* The first stage whose gradients it takes, as gradients come from later stages; or NONE. */
static int stage_of_gradients(struct staging *s, const struct op *op)
{
  int stage = NONE;
  for (int i = 0; i < op->nin && op->phase == BACKWARD; i++) {
    int maker = graph->value[op->in[i]].op, with = stage_with(s, op->in[i]);
    if (maker == NONE || graph->op[maker].phase != BACKWARD || with == NONE) continue;
    if (stage == NONE || with < stage) stage = with;
  }
  return stage;
}

/* By value: whether it is made only of inputs and constants, so that any stage can make it. */
static bool *made_anywhere(void)
{
  bool *is = alloc((size_t)(graph->nvalue + 1) * sizeof *is);
  for (int i = 0; i < graph->nvalue; i++)
    is[i] = graph->value[i].op == NONE && graph->value[i].role == BATCH;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    bool all = stage_of(graph->order[at]) == NONE && op->phase == FORWARD;
    for (int i = 0; i < op->nin; i++) all &= is[op->in[i]];
    for (int k = 0; k < op->nout; k++) is[op->out + k] = all;
  }
  return is;
}

/* Sets the stages of the redistributions that `propagate` has added. A pending sum is reduced in
   the stage that made it. Others run in the stage that reads the result, and in each such stage if
   several read it and can make it. */
static void set_moves(void)
{
  int *reader = alloc((size_t)(graph->nvalue + 1) * sizeof *reader); /* the first stage of them */
  bool *several = alloc((size_t)(graph->nvalue + 1) * sizeof *several), *anywhere = made_anywhere();
  for (int i = 0; i < graph->nvalue; i++) reader[i] = NONE;
  for (int at = graph->norder; at-- > 0;) {
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    bool moves = op->kind == OP_redistribute && stage_of(id) == NONE && op->phase != UPDATE;
    bool stays = moves && anywhere[op->in[0]] && several[op->out];
    if (moves && !stays) {
      int value = op->in[0];
      bool is_pending = false;
      for (int d = 0; d < graph->mesh.ndim && !is_pending; d++)
        is_pending =
            !graph->mesh.microbatch_axis[d] && graph->value[value].layout.on[d].kind == PARTIAL;
      if (!is_pending && reader[op->out] != NONE) set_stage(id, reader[op->out]);
    }
    for (int i = 0; i < op->nin; i++) {
      int in = op->in[i];
      several[in] |= stays || (reader[in] != NONE && reader[in] != stage_of(id));
      reader[in] = stage_of(id);
    }
  }
}

/* Whether the value exists before the first micro-batch: a parameter, or a value gathered from
   one. */
static bool is_of_step(int value)
{
  int maker = graph->value[value].op;
  return maker == NONE ? graph->value[value].role == PARAMETER : graph->op[maker].phase == GATHER;
}

static struct op transfer(enum op_kind kind, int value, const struct op *reader)
{
  const struct value *v = &graph->value[value];
  return (struct op){.kind = kind,
                     .type = v->type,
                     .typed = true,
                     .module =
                         0, /* of no layer: a layer that is computed again does not receive again */
                     .line = reader->line,
                     .phase = is_of_step(value) ? GATHER : reader->phase};
}

/* The value as the stage that reads it has it: adds a send and a receive if it has not. */
static int brought(struct staging *s, int value, int to, const struct op *reader,
                   struct list *sends)
{
  int from = stage_with(s, value);
  if (from == NONE || coordinate_of_stage(from) == coordinate_of_stage(to)) return value;
  if (is_of_step(value)) {
    /* Ranks get a value of the whole step once, however many of their stages read it. */
    int coordinate = coordinate_of_stage(to);
    int stage = 0;
    while (coordinate_of_stage(stage) != coordinate) stage++;
    to = stage;
  }
  /* A value of one stage, as another one has it. */
  int *is = &s->received[(size_t)value * (size_t)graph->stages->n + (size_t)to];
  if (*is != NONE) return *is;
  struct value v = graph->value[value];
  struct op send = transfer(OP_send, value, reader), receive = transfer(OP_receive, value, reader);
  send.nin = 1;
  send.in[0] = value;
  send.number[0] = receive.number[0] = sends->n;
  send.number[1] = from;
  send.number[2] = to;
  receive.number[1] = from;
  receive.number[2] = to;
  send.out = NONE;
  send.phase = v.op == NONE ? GATHER : reader->phase == UPDATE ? UPDATE : graph->op[v.op].phase;
  int id = store_op(send);
  add(sends, id);
  set_stage(id, from);
  int out = append_op_shaped(receive, v.shape);
  graph->value[out].layout = v.layout;
  graph->value[out].placed = true;
  graph->value[out].name = value_name(value);
  set_stage(graph->value[out].op, to);
  return *is = out;
}

/* By send, in the order of the receives: the operation that makes its value, or a later one that
   makes the value of a send before it to the same stage. */
static int *makers_in_order(const struct list *sends)
{
  int *maker = alloc((size_t)(sends->n + 1) * sizeof *maker);
  int *place = alloc((size_t)(graph->nop + 1) * sizeof *place);
  for (int at = 0; at < graph->norder; at++) place[graph->order[at]] = at;
  for (int i = 0; i < sends->n; i++) {
    const struct op *send = &graph->op[sends->at[i]];
    maker[i] = graph->value[send->in[0]].op;
    for (int k = 0; k < i && maker[i] != NONE; k++)
      if (is_same_way(&graph->op[sends->at[k]], send) && maker[k] != NONE &&
          graph->op[maker[k]].phase == send->phase && place[maker[k]] > place[maker[i]])
        maker[i] = maker[k];
  }
  return maker;
}

/* A value that the steps of a scan read is received before the scan: its steps stay equal. */
static void connect(struct staging *s)
{
  int norder = graph->norder, *order = graph->order, scan = NONE, scan_begins = 0;
  struct list sends = {0};
  size_t n = (size_t)(graph->nvalue + 1) * (size_t)graph->stages->n;
  s->received = alloc(n * sizeof *s->received);
  for (size_t i = 0; i < n; i++) s->received[i] = NONE;
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int at = 0; at < norder; at++) {
    struct op op = graph->op[order[at]]; /* a copy: adding operations moves the array */
    int stage = stage_of(order[at]), before = graph->norder;
    if (scan_around(op.module) != scan) scan_begins = before;
    scan = scan_around(op.module);
    for (int i = 0; i < op.nin && stage != NONE; i++) {
      /* In the update the stage that has a parameter takes the sums of its gradient that others
         have made. */
      if (op.phase == UPDATE ? graph->value[op.in[i]].role == SUMS
                             : op.phase == FORWARD || op.phase == BACKWARD || op.phase == GATHER)
        op.in[i] = brought(s, op.in[i], stage, &op, &sends);
    }
    if (scan != NONE) {
      /* Moves the operations from place `from` of the order on before those at `to`. Returns the
         place behind them. */
      int from = before;
      int to = scan_begins;
      for (; from < graph->norder; from++, to++) {
        const int id = graph->order[from];
        memmove(&graph->order[to + 1], &graph->order[to], (size_t)(from - to) * sizeof id);
        graph->order[to] = id;
      }
      scan_begins = to;
    }
    graph->op[order[at]] = op;
    append_to_order(order[at]);
  }
  /* Each send stands after the operation that makes its value, and after earlier sends to the same
     stage. */
  struct list *behind = alloc((size_t)(graph->nop + 1) * sizeof *behind), first = {0};
  int *maker = makers_in_order(&sends);
  for (int i = 0; i < sends.n; i++) add(maker[i] == NONE ? &first : &behind[maker[i]], sends.at[i]);
  norder = graph->norder;
  order = graph->order;
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int i = 0; i < first.n; i++) append_to_order(first.at[i]);
  for (int at = 0; at < norder; at++) {
    append_to_order(order[at]);
    for (int i = 0; i < behind[order[at]].n; i++) append_to_order(behind[order[at]].at[i]);
  }
}

/* The value on all ranks: those that compute none add nothing to it. */
static int summed_over_stages(int value, enum role role, const char *why)
{
  const struct value v = graph->value[value];
  struct op op = {.kind = OP_all_reduce,
                  .nin = 1,
                  .in = {value},
                  .phase = UPDATE,
                  .module = NONE,
                  .line = graph->stages->line,
                  .group = add_group(1u << graph->stages->mesh_dim),
                  .reduction = SUM,
                  .why = why};
  int out = append_op_shaped(op, v.shape);
  graph->value[out].role = role;
  graph->value[out].type = v.type;
  graph->value[out].layout = v.layout;
  graph->value[out].placed = true;
  graph->value[out].name = v.name;
  return out;
}

/* The sums of metrics: a stage adds to each sum, the others add nothing, and all ranks get the
   total. */
static void share_sums_of_metrics(void)
{
  const int norder = graph->norder, *const order = graph->order, dim = graph->stages->mesh_dim;
  int *shared = alloc((size_t)(graph->nvalue + 1) * sizeof *shared);
  for (int i = 0, n = graph->nvalue; i < n; i++) shared[i] = NONE;
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int at = 0; at < norder; at++) {
    struct op op = graph->op[order[at]]; /* a copy: adding operations moves the array */
    for (int i = 0; i < op.nin && op.phase == UPDATE; i++) {
      if (!is_of_metric(op.in[i])) continue;
      int *is = &shared[op.in[i]];
      if (*is == NONE) *is = summed_over_stages(op.in[i], ACTIVATION, "metrics on every rank");
      graph->op[order[at]].in[i] = *is;
    }
    append_to_order(order[at]);
  }
  for (int i = 0; i < graph->nvalue; i++)
    if (is_of_metric(i))
      graph->value[i].layout.on[dim] = (struct placement){.kind = PARTIAL, .reduction = SUM};
}

void continue_stages(enum pass after)
{
  const struct pipeline_stages *s = graph->stages;
  const char *why;
  if (!s || after < PASS_PLAN) return;
  const struct pipeline *p = pipeline_here(&why);
  if (!p) plan_error(s->line, "pipeline: %s", why);
  if (p->stages != s->n || p->ranks != graph->mesh.size[s->mesh_dim])
    plan_error(s->line, "pipeline: the schedule has %d stages on %d ranks, and the dump %d on %d",
               p->stages, p->ranks, s->n, graph->mesh.size[s->mesh_dim]);
  for (int i = 0; i < s->n; i++)
    if (p->rank_of[i] != s->coordinate[i])
      plan_error(s->line, "pipeline: stage %d is at %d by the schedule, and at %d by the dump", i,
                 p->rank_of[i], s->coordinate[i]);
}

void stages(void)
{
  const char *why;
  if (!graph->stages) return;
  leave_out_dead(); /* no rank would receive the values that it needs */
  share_sums_of_metrics();
  set_moves();
  struct staging run = {.nvalue = graph->nvalue}, *s = &run;
  for (int times = 0; times < 2; times++) { /* the second time, operations that read a parameter
                                               have its stage */
    s->owner = stages_of_values();
    for (int at = 0; at < graph->norder; at++)
      if (stage_of(graph->order[at]) == NONE) {
        /* The last stage whose values it takes; in the backward, the first one. */
        int id = graph->order[at];
        const struct op *op = &graph->op[id];
        int stage = stage_of_gradients(s, op);
        if (op->kind == OP_all_reduce && is_of_metric(op->in[0]))
          continue; /* all ranks take part */
        for (int i = 0, last = stage == NONE; i < op->nin && last; i++)
          if (stage_with(s, op->in[i]) > stage) stage = stage_with(s, op->in[i]);
        if (stage != NONE) set_stage(id, stage);
      }
  }
  for (int at = 0; at < graph->norder; at++) { /* one stage does the additions that all stages could
                                                  do */
    const struct op *op = &graph->op[graph->order[at]];
    bool adds = op->phase != UPDATE && op->nout && is_of_metric(op->out);
    if (adds && stage_of(graph->order[at]) == NONE)
      set_stage(graph->order[at], graph->stages->n - 1);
  }
  connect(s);
  split_backwards();
  find_spare_slots(pipeline_here(&why));
  int dim = graph->stages->mesh_dim;
  const struct layout layout = graph->value[graph->loss].layout;
  int out = summed_over_stages(graph->loss, LOSS, "the loss on every rank");
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == LOSS)
      graph->value[i].layout.on[dim] = (struct placement){.kind = PARTIAL, .reduction = SUM};
  graph->value[out].layout = layout;
  graph->value[out].name = "loss";
  graph->loss = out;
}
