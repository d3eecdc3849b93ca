/* propagate.c: the pass `propagate`: a layout for every value.

   Takes   a graph whose parameters and inputs are placed, with the plan's redistribute operations.
   Leaves  every value placed, so that every operation runs on its inputs as they lie: where it
           could not, a redistribute operation stands before it.

   For each operation, of all combinations of legal ways over the dimensions of the mesh, the one
   that moves the fewest bytes wins, counting also what the plan asks of the output. Ties go to the
   one that turns fewer whole values into pending sums, then to the one that touches fewer inputs,
   then to the first in rule.c's order: the same on every machine. */
#include "tpgen.h"

#include <string.h>

/* What one combination costs. */
struct price {
  double bytes;
  int sums, moves;
  int refused; /* what the plan asks of the output that cannot be made of it */
};

static int *asked_of;     /* the plan's redistribute of a value, or NONE */
static int *moved_to;     /* the last redistribute already made of a value, or NONE */
static int *moved_before; /* by operation: the one before it, of the same value */
static int value_room, op_room;
static int *new_order, new_norder, new_order_room;

static int *wider(int *array, int *room, int least)
{
  while (*room < least) {
    int before = *room;
    array = grow(array, before, room, sizeof *array);
    for (int i = before; i < *room; i++) array[i] = NONE;
  }
  return array;
}

static void room_for_new(void)
{
  int room = value_room;
  asked_of = wider(asked_of, &room, graph->nvalue + 1);
  moved_to = wider(moved_to, &value_room, graph->nvalue + 1);
  moved_before = wider(moved_before, &op_room, graph->nop + 1);
}

static void emit_op(int op)
{
  GROW(new_order, new_norder, new_order_room);
  new_order[new_norder++] = op;
}

static void remember(int op)
{
  int value = graph->op[op].in[0];
  moved_before[op] = moved_to[value];
  moved_to[value] = op;
}

/* ------------------------------------------------------------------------- redistribute itself */

/* What the redistribution makes of a layout. */
static struct layout layout_after(const struct op *op, struct layout now)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (op->asked >> i & 1) now.on[i] = op->to.on[i];
  return now;
}

/* From a shard, or from a pending sum of another kind, there is no way to a pending sum: a value's
   summands cannot be had from its parts without finishing it first. */
static bool leads(struct layout from, struct layout to)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (to.on[d].kind == PARTIAL && !same_placement(from.on[d], to.on[d]) &&
        from.on[d].kind != REPLICATE)
      return false;
  return true;
}

/* The value as it was redistributed to this layout before, or NONE. */
static int moved_before_to(int value, struct layout to)
{
  for (int i = moved_to[value]; i != NONE; i = moved_before[i])
    if (same_layout(graph->value[graph->op[i].out].layout, to)) return graph->op[i].out;
  return NONE;
}

/* Who is behind it that `user` takes an input as `to`: the plan, where it asks for just this layout
   of what the operation makes (a sum that is finished before the bias is added, say), or the
   operation. */
static void tell_why(struct op *op, const struct op *user)
{
  op->line = user->line;
  op->why = text("%s takes it so", op_row[user->kind].name);
  int asked = asked_of[user->out];
  if (asked == NONE) return;
  const struct op *by = &graph->op[asked];
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (by->asked >> d & 1 && !same_placement(by->to.on[d], op->to.on[d])) return;
  op->line = by->line;
  op->why = by->why;
}

/* `value` as `to`, by a redistribution made before, or a new one. */
static int as_layout(int value, struct layout to, const struct op *user)
{
  int there = moved_before_to(value, to);
  if (there != NONE) return there;
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {value},
                  .module = user->module,
                  .phase = user->phase,
                  .to = to,
                  .asked = (1u << graph->mesh.ndim) - 1};
  tell_why(&op, user);
  int i = make_op(op);
  int out = graph->op[i].out;
  graph->value[out].name = value_name(value);
  graph->value[out].layout = to;
  graph->value[out].placed = true;
  room_for_new();
  remember(i);
  emit_op(i);
  return out;
}

/* ------------------------------------------------------------------ the cheapest combination */

static struct price price_of(const struct op *op, const struct layout *in, struct layout out)
{
  struct price p = {0};
  for (int i = 0; i < op->nin; i++) {
    const struct value *v = &graph->value[op->in[i]];
    if (same_layout(v->layout, in[i]) || moved_before_to(op->in[i], in[i]) != NONE) continue;
    p.moves++;
    p.bytes += move_cost(v->shape, v->type, v->layout, in[i]);
    for (int d = 0; d < graph->mesh.ndim; d++)
      p.sums += in[i].on[d].kind == PARTIAL && v->layout.on[d].kind != PARTIAL;
  }
  /* What the plan asks of the output: one redistribution after another. */
  for (int r = asked_of[op->out]; r != NONE; r = asked_of[graph->op[r].out]) {
    const struct value *v = &graph->value[op->out];
    struct layout next = layout_after(&graph->op[r], out);
    p.refused += !leads(out, next);
    p.bytes += move_cost(v->shape, v->type, out, next);
    out = next;
  }
  return p;
}

static bool cheaper(struct price a, struct price b)
{
  if (a.refused != b.refused) return a.refused < b.refused;
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  if (a.sums != b.sums) return a.sums < b.sums;
  return a.moves < b.moves;
}

static bool reachable(const struct op *op, const struct layout *in)
{
  for (int i = 0; i < op->nin; i++)
    if (!leads(graph->value[op->in[i]].layout, in[i])) return false;
  return true;
}

static void place(struct op *op)
{
  struct choice list[MAX_CHOICES];
  int n = choices(op, list), pick[MAX_MESH] = {0}, ndim = graph->mesh.ndim;
  struct layout best_in[MAX_INPUTS], best_out = {0};
  struct price best = {0};
  bool found = false;
  for (bool more = true; more;) {
    struct layout in[MAX_INPUTS] = {0}, out = {0};
    for (int d = 0; d < ndim; d++) {
      for (int i = 0; i < op->nin; i++) in[i].on[d] = list[pick[d]].in[i];
      out.on[d] = list[pick[d]].out;
    }
    if (reachable(op, in)) {
      struct price p = price_of(op, in, out);
      if (!found || cheaper(p, best)) {
        best = p;
        best_out = out;
        memcpy(best_in, in, sizeof in);
        found = true;
      }
    }
    more = false;
    for (int d = ndim - 1; d >= 0 && !more; d--) {
      more = graph->mesh.size[d] > 1 && ++pick[d] < n;
      if (!more) pick[d] = 0;
    }
  }
  for (int i = 0; i < op->nin; i++)
    if (!same_layout(graph->value[op->in[i]].layout, best_in[i]))
      op->in[i] = as_layout(op->in[i], best_in[i], op);
  graph->value[op->out].layout = best_out;
}

void propagate_from(int first)
{
  new_order = graph->order;
  int norder = graph->norder;
  int *order = alloc((size_t)(norder + 1) * sizeof *order);
  memcpy(order, graph->order, (size_t)norder * sizeof *order);
  new_norder = first;
  new_order_room = graph->order_room;
  room_for_new();
  for (int at = first; at < norder; at++) {
    const struct op *op = &graph->op[order[at]];
    if (op->kind == OP_redistribute && asked_of[op->in[0]] == NONE) asked_of[op->in[0]] = order[at];
  }
  for (int at = first; at < norder; at++) {
    struct op op = graph->op[order[at]]; /* a copy: adding operations moves the array */
    if (op.kind == OP_redistribute) {
      graph->value[op.out].layout = layout_after(&op, graph->value[op.in[0]].layout);
      remember(order[at]);
    } else if (op.out != NONE) {
      place(&op);
    }
    if (op.out != NONE) graph->value[op.out].placed = true;
    graph->op[order[at]] = op;
    emit_op(order[at]);
  }
  graph->order = new_order;
  graph->norder = new_norder;
  graph->order_room = new_order_room;
}

/* A value that leaves the program: no pending sum may be left in it. */
static int finish(int value, bool whole, const char *why)
{
  struct value v = graph->value[value];
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {value},
                  .module = v.module,
                  .line = v.line,
                  .to = v.layout,
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .why = why};
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (whole || v.layout.on[d].kind == PARTIAL) op.to.on[d] = (struct placement){0};
  int out = append_op(op);
  graph->value[out].name = value_name(value);
  graph->value[out].layout = op.to;
  graph->value[out].placed = true;
  return out;
}

void propagate(void)
{
  propagate_from(0);
  if (graph->loss != NONE) {
    graph->loss = finish(graph->loss, true, "the loss is told by every rank");
    graph->value[graph->loss].role = LOSS;
  }
  for (int i = 0, n = graph->nvalue; i < n; i++) {
    if (!graph->value[i].is_output) continue;
    int out = finish(i, false, "an output is written without pending sums");
    graph->value[i].is_output = false;
    graph->value[out].is_output = true;
    graph->value[out].name = graph->value[i].name;
  }
}
