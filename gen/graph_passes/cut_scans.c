/* cut_scans.c: a part of the pass cut_time: scans over the tokens, by F.scan and recurrent
   modules. A call begins with each carry as the slot's cache has it (recall_state), and
   writes the carry behind its last token (keep_state).

     tokens of a sequence    a scan over them. Steps behind the last token that counts keep the
   carry as it is a token of each slot    a scan over the slots: a step may have any operations one
   token               the operations of one step, without a scan */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* ------------------------------------------------------------------------------ what is of a step
 */

/* The carry that the operation of a step makes for the next one, or NONE. */
static int carry_of_step(const struct cutting *c, int op)
{
  for (int k = 0; k < c->ncarry; k++)
    if (c->carry[k].scan == c->scan_of[op] && c->carry[k].place == c->place[op]) return k;
  return NONE;
}

static int step_of(const struct cutting *c, int op)
{
  return place_in_list(element_within(graph->op[op].module, c->scan_of[op]));
}

/* ---------------------------------------------------------------------------- steps in an entry */

/* How many steps the program has of the entry's scan: at most three. */
static int steps_of_entry(const struct entry *e)
{
  return e->tokens < 3 ? (int)e->tokens : 3;
}

static bool goes_over_slots(const struct entry *e)
{
  return e->last == NONE && e->tokens > 1;
}

static int copy_module(int module, const char *name, int parent)
{
  const struct module from = graph->module[module];
  const int copy = add_module(name, from.class_name, parent, from.line);
  graph->module[copy].unit = from.unit;
  return copy;
}

/* A scan of its own for the entry, with the steps that it has. */
static void copy_modules(struct entry *e, int scan)
{
  const struct module m = graph->module[scan];
  const char *name = text("%s_%s", m.name, goes_over_slots(e) ? "slots" : e->name);
  e->module[scan] = copy_module(scan, name, m.parent);
  for (int below = scan + 1; below < e->modules; below++)
    if (scan_around(below) == scan &&
        place_in_list(element_within(below, scan)) < steps_of_entry(e))
      e->module[below] =
          copy_module(below, graph->module[below].name, e->module[graph->module[below].parent]);
}

static void begin_scan(const struct cutting *c, struct entry *e, int scan, int line)
{
  const int n = e->modules, parent = graph->module[scan].parent;
  int recorded = 0;
  for (int m = scan + 1; m < n; m++) recorded += graph->module[m].parent == scan;
  if (steps_of_entry(e) > recorded)
    plan_error(line, "generate: a scan over a context of %lld tokens: it needs at least 3",
               (long long)c->length);
  if (e->tokens == 1) {
    for (int m = scan; m < n; m++)
      if (m == scan || scan_around(m) == scan) e->module[m] = parent;
    return;
  }
  if (goes_over_slots(e) || steps_of_entry(e) < recorded) copy_modules(e, scan);
  graph->module[e->module[scan]].steps = (int)e->tokens;
}

/* What the steps read from outside of them is made before them. */
static void make_before_steps(struct cutting *c, struct entry *e, int i)
{
  const int scan = c->scan_of[i];
  struct op origin = graph->op[i];
  begin_scan(c, e, scan, origin.line);
  origin.module = graph->module[scan].parent;
  for (int at = 0; at < c->n; at++) {
    const struct op take = graph->op[c->op[at]];
    if (c->scan_of[c->op[at]] != scan || take.kind != OP_scan_take || !c->live[c->op[at]]) continue;
    if (c->along[take.in[0]].dim != NONE)
      tokens_of_call(c, e, &origin, take.in[0], OF_ALL);
    else
      value_in_form(c, e, &origin, take.in[0], AT_ALL);
  }
  if (e->counted != NONE || goes_over_slots(e) || e->tokens == 1) return;
  const struct op index = {.kind = OP_index, .dims = 1, .type = I32};
  const int token = append_op_shaped(op_in_entry(e, &origin, index),
                                     (struct shape){.ndim = 1, .size = {e->tokens}});
  const struct op within = {.kind = OP_le, .nin = 2, .in = {token, e->last}};
  e->counted = append_op(op_in_entry(e, &origin, within));
}

static struct shape with_sequences(struct shape state, int64_t n)
{
  struct shape all = {.ndim = state.ndim + 1, .size = {n}};
  for (int d = 0; d < state.ndim; d++) all.size[d + 1] = state.size[d];
  return all;
}

void make_entering(struct cutting *c, struct entry *e, int carry, const struct op *op)
{
  struct carry *k = &c->carry[carry];
  const struct shape state = graph->value[op->out].shape;
  if (k->cache == NONE)
    k->cache = add_state_cache(op, "state", with_sequences(state, plan_options->generate.slots),
                               F32, c, "what a scan carries behind the last token");
  const int initial = value_in_form(c, e, op, op->in[0], ENTIRE);
  const struct op recall = {
      .kind = OP_recall_state, .nin = 4, .in = {k->cache, initial, e->slot, e->start}};
  const int64_t sequences = e->last == NONE ? e->tokens : 1;
  int y = append_op_shaped(op_in_entry(e, op, recall), with_sequences(state, sequences));
  e->recalled[carry] = y;
  y = cast_in_entry(e, op, y, op->out);
  if (!goes_over_slots(e)) y = view_in_entry(e, op, y, state);
  if (!goes_over_slots(e) && e->tokens > 1) {
    struct op enters = *op;
    enters.in[0] = y;
    enters.phase = e->phase;
    y = append_op_like(enters, op->out);
  }
  e->made[op->out][ENTIRE] = y;
  e->taken[carry] = y;
}

static int append_of_step(const struct entry *e, const struct op *origin, struct op op)
{
  return append_op(op_in_entry(e, origin, op));
}

/* The slice of this step: of the call's tokens, or of a value for each slot. */
static int slice_of_step(const struct entry *e, const struct op *origin, int value)
{
  if (e->tokens > 1)
    return append_of_step(e, origin,
                          (struct op){.kind = OP_scan_take, .nin = 1, .in = {value}, .dims = 1});
  struct shape shape = graph->value[value].shape;
  shape.ndim--;
  for (int d = 0; d < shape.ndim; d++) shape.size[d] = shape.size[d + 1];
  return view_in_entry(e, origin, value, shape);
}

/* The carry with which the step begins. */
static int carry_before(const struct cutting *c, struct entry *e, const struct op *origin,
                        int carry, int step)
{
  const int first = e->made[c->carry[carry].first][ENTIRE];
  if (!goes_over_slots(e)) return step ? e->state[carry].at[step - 1] : first;
  if (e->taken[carry] == first || e->taken_in[carry] != step) {
    e->taken[carry] = slice_of_step(e, origin, first);
    e->taken_in[carry] = step;
  }
  return e->taken[carry];
}

/* An input of an operation of a step. */
static int value_in_step(const struct cutting *c, struct entry *e, int i, int value)
{
  const struct op *op = &graph->op[i];
  const int step = step_of(c, i), maker = graph->value[value].op;
  int carry = carry_entered_by(c, value);
  if (carry == NONE && c->of_step[value] && step_of(c, maker) != step)
    carry = carry_of_step(c, maker);
  if (carry != NONE) return carry_before(c, e, op, carry, step);
  if (c->of_step[value]) return e->made[value][OF_ALL];
  return value_in_form(c, e, op, value, ENTIRE);
}

/* The carry goes to the next step of this sequence, or to its cache. */
static void hand_on(struct cutting *c, struct entry *e, int i, int carry)
{
  const struct op op = graph->op[i];
  const int step = step_of(c, i);
  int value = value_in_step(c, e, i, op.in[0]);
  if (goes_over_slots(e)) {
    value = append_of_step(e, &op, (struct op){.kind = OP_scan_put, .nin = 1, .in = {value}});
  } else if (e->tokens > 1) {
    const int before = carry_before(c, e, &op, carry, step);
    if (e->counted_in != c->scan_of[i] * 3 + step) {
      e->counted_now = slice_of_step(e, &op, e->counted);
      e->counted_in = c->scan_of[i] * 3 + step;
    }
    const struct op held = {.kind = OP_where, .nin = 3, .in = {e->counted_now, value, before}};
    struct op on = op;
    on.in[0] = append_of_step(e, &op, held);
    on.phase = e->phase;
    on.module = e->module[op.module];
    value = append_op_like(on, op.out);
  }
  add(&e->state[carry], value);
}

void make_of_step(struct cutting *c, struct entry *e, int i)
{
  const struct op op = graph->op[i]; /* a copy: operations are added */
  const int step = step_of(c, i);
  if (step == 0 && !e->begun[c->scan_of[i]]) {
    e->begun[c->scan_of[i]] = true;
    make_before_steps(c, e, i);
  }
  if (step >= steps_of_entry(e) || !c->live[i]) return;
  const int carry = carry_of_step(c, i);
  if (carry != NONE) {
    hand_on(c, e, i, carry);
    return;
  }
  int y;
  if (op.kind == OP_scan_take) {
    const bool of_tokens = c->along[op.in[0]].dim != NONE;
    y = slice_of_step(e, &op,
                      of_tokens ? tokens_of_call(c, e, &op, op.in[0], OF_ALL)
                                : value_in_form(c, e, &op, op.in[0], AT_ALL));
  } else if (op.kind == OP_scan_put && e->tokens == 1) {
    y = value_in_step(c, e, i, op.in[0]);
  } else {
    struct op own = op;
    own.phase = e->phase;
    for (int k = 0; k < op.nin; k++) own.in[k] = value_in_step(c, e, i, op.in[k]);
    own.module = e->module[op.module];
    y = append_op_like(own, op.out);
  }
  for (int k = 0; k < op.nout; k++) {
    if (y + k >= c->known && !graph->value[y + k].name)
      graph->value[y + k].name = graph->value[op.out + k].name;
    e->made[op.out + k][OF_ALL] = y + k;
  }
}

void make_held(struct cutting *c, struct entry *e, int carry)
{
  const struct carry *k = &c->carry[carry];
  const struct op op = graph->op[k->hold];
  const struct list *states = &e->state[carry];
  const struct shape state = graph->value[op.in[1]].shape;
  const int64_t sequences = e->last == NONE ? e->tokens : 1;
  int y = states->at[states->n - 1];
  if (goes_over_slots(e)) {
    struct op stack = {.kind = OP_scan_stack, .nin = states->n, .dims = 1};
    memcpy(stack.in, states->at, (size_t)states->n * sizeof *stack.in);
    y = append_op_shaped(op_in_entry(e, &op, stack), with_sequences(state, sequences));
  } else {
    if (e->tokens > 1) {
      const struct op hold = {.kind = OP_scan_hold, .nin = 2, .in = {y, e->made[k->first][ENTIRE]}};
      append_update(op_in_entry(e, &op, hold));
    }
    y = view_in_entry(e, &op, y, with_sequences(state, sequences));
  }
  const struct op keep = {
      .kind = OP_keep_state, .nin = 4, .in = {k->cache, y, e->recalled[carry], e->slot}};
  append_op(op_in_entry(e, &op, keep));
}

void make_stack(struct entry *e, const struct op *op)
{
  struct shape shape = graph->value[op->out].shape;
  shape.size[0] = e->tokens;
  if (e->tokens == 1) {
    e->made[op->out][OF_ALL] = view_in_entry(e, op, e->made[op->in[0]][OF_ALL], shape);
    return;
  }
  struct op stack = *op;
  stack.phase = e->phase;
  stack.nin = steps_of_entry(e);
  for (int k = 0; k < stack.nin; k++) stack.in[k] = e->made[op->in[k]][OF_ALL];
  e->made[op->out][OF_ALL] = append_op_shaped(stack, shape);
}
