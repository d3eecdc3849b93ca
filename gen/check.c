/* check.c: after every pass, what it promises to leave. A failure is a mistake of tpgen's, but for
   the pass `lua`: its graph comes from another process, and is looked at as a stranger's. */
#include "tpgen.h"

#include <string.h>

static const char *now;

static void hold(bool fact, int op, const char *what)
{
  if (!fact) bug(now, op, "%s", what);
}

/* ------------------------------------------------------------------------ facts about one thing */

static bool is_value(int v)
{
  return v >= 0 && v < graph->nvalue;
}

static void sane_value(const struct value *v)
{
  hold(v->op >= NONE && v->op < graph->nop, NONE, "a value is made by no operation");
  hold(v->shape.ndim >= 0 && v->shape.ndim <= MAX_DIMS, v->op, "a value has too many dimensions");
  for (int d = 0; d < v->shape.ndim; d++)
    hold(v->shape.size[d] >= 0, v->op, "a value has a negative size");
  hold(v->module >= NONE && v->module < graph->nmodule, v->op, "a value lies in no module");
  if (v->role == GRADIENT || v->role == STATE)
    hold(is_value(v->of), v->op, "it belongs to nothing");
  for (int d = 0; v->placed && d < graph->mesh.ndim; d++) {
    struct placement p = v->layout.on[d];
    hold(p.kind != SHARD || (p.dim >= 0 && p.dim < v->shape.ndim), v->op,
         "a value is sharded on a dimension that it has not");
  }
}

static void sane_op(int id)
{
  const struct op *op = &graph->op[id];
  hold(op->kind < OP_COUNT, NONE, "an operation of no kind");
  hold(op->nin >= 0 && op->nin <= MAX_INPUTS, id, "too many inputs");
  for (int i = 0; i < op->nin; i++) hold(is_value(op->in[i]), id, "an input is no value");
  hold(op->nout >= 0 && op->nout <= MAX_OUTPUTS, id, "too many outputs");
  hold((op->out == NONE) == (op->nout == 0), id, "it counts its outputs wrongly");
  for (int k = 0; k < op->nout; k++) hold(is_value(op->out + k), id, "an output is no value");
  hold(op->module >= NONE && op->module < graph->nmodule, id, "it lies in no module");
}

/* ---------------------------------------------------------------------- facts about the program */

/* A value of a family is made by the loop, a carried one where its initial value is. */
static bool is_made(int value, const bool *made)
{
  const struct value *v = &graph->value[value];
  if (v->step) return is_made(v->initial, made);
  return made[value] || v->op == NONE || (v->family != NONE && made[v->family]);
}

/* Marks what `op` makes, having seen that what it takes is there. */
static void run(int id, bool *made)
{
  const struct op *op = &graph->op[id];
  for (int i = 0; i < op->nin && !op->nbody; i++)
    hold(is_made(op->in[i], made), id, "it reads a value not made yet");
  for (int k = 0; k < op->nbody; k++) run(op->body[k], made);
  for (int k = 0; k < op->nout; k++) made[op->out + k] = true;
}

static void run_in_program(void *made, int id, int times)
{
  (void)times;
  run(id, made);
}

/* Constants of one element are written as numbers: fuse.c drops what makes them. */
static void mark_constants(bool *made)
{
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_full) made[graph->op[i].out] = true;
}

static void check_order(enum pass after)
{
  bool *made = alloc((size_t)graph->nvalue + 1);
  if (after >= PASS_FUSE) mark_constants(made);
  if (after < PASS_OUTLINE)
    for (int i = 0; i < graph->norder; i++) run(graph->order[i], made);
  else
    each_op(run_in_program, made);
  if (graph->loss != NONE) hold(made[graph->loss], NONE, "the loss is not made");
}

/* The choice by which the operation runs on one dimension of the mesh, or NONE. */
static int choice_taken(const struct op *op, const struct choice *list, int n, int d)
{
  for (int c = 0; c < n; c++) {
    bool taken = true;
    for (int i = 0; i < op->nin; i++)
      taken &= same_placement(list[c].in[i], graph->value[op->in[i]].layout.on[d]);
    for (int k = 0; k < op->nout; k++)
      taken &= same_placement(list[c].out[k], graph->value[op->out + k].layout.on[d]);
    if (taken) return c;
  }
  return NONE;
}

/* What the operation makes lies as one way of its rule leaves it, its inputs as that way asks. */
static void check_placed(int id)
{
  const struct op *op = &graph->op[id];
  for (int k = 0; k < op->nout; k++)
    hold(graph->value[op->out + k].placed, id, "its value is not placed");
  if (op->nout == 0 || !*rule_of(op)) return;
  struct letters l;
  struct choice list[MAX_CHOICES];
  int pick[MAX_MESH] = {0};
  op_letters(op, &l);
  int n = choices(op, &l, list);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    pick[d] = choice_taken(op, list, n, d);
    hold(pick[d] != NONE, id, "it does not run on its inputs as they lie");
  }
  hold(fits_together(&l, op->nin, list, pick), id, "its merged dimensions are not where they seem");
}

static bool no_sum_left(int value)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (graph->value[value].layout.on[d].kind == PARTIAL) return false;
  return true;
}

static void check_layouts(enum pass after)
{
  for (int i = 0; i < graph->norder; i++) {
    int id = graph->order[i];
    check_placed(id);
    if (after >= PASS_REDISTRIBUTE)
      hold(graph->op[id].kind != OP_redistribute, id, "a redistribution is left");
  }
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == GRADIENT)
      hold(same_layout(v->layout, graph->value[v->of].layout), v->op,
           "a gradient does not lie as its parameter");
    if (v->role == LOSS || v->is_output) hold(no_sum_left(i), v->op, "a pending sum is left in it");
  }
}

/* The parameters of a module and of all below it follow one another: the structs of names.c, and
   the runs that bucket and fuse make, rely on it. */
static bool is_under(int value, int module)
{
  for (int m = graph->value[value].module; m != NONE; m = graph->module[m].parent)
    if (m == module) return true;
  return false;
}

static void check_parameter_order(void)
{
  for (int m = 0; m < graph->nmodule; m++) {
    bool seen = false, ended = false;
    for (int v = 0; v < graph->nvalue; v++) {
      if (graph->value[v].role != PARAMETER) continue;
      bool inside = is_under(v, m);
      hold(!(inside && ended), NONE, "the parameters do not stand in the order of the modules");
      seen |= inside;
      ended |= seen && !inside;
    }
  }
}

static void check_memory(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *a = &graph->value[i];
    if (!in_arena(i) || a->storage != i) continue;
    hold(a->offset >= 0 && a->offset + arena_size(i) <= graph->arena_bytes, a->op,
         "a value lies outside the arena");
    for (int k = 0; k < i; k++) {
      const struct value *b = &graph->value[k];
      if (!in_arena(k) || b->storage != k) continue;
      bool live = a->first <= b->last && b->first <= a->last;
      bool apart = a->offset + arena_size(i) <= b->offset || b->offset + arena_size(k) <= a->offset;
      hold(!live || apart, a->op, "two values that live at once overlap");
    }
  }
}

void check(enum pass after)
{
  now = pass_name[after];
  for (int i = 0; i < graph->nvalue; i++) sane_value(&graph->value[i]);
  for (int i = 0; i < graph->nop; i++) sane_op(i);
  check_order(after);
  if (after == PASS_LUA) check_parameter_order();
  if (after >= PASS_PROPAGATE && after <= PASS_REDISTRIBUTE) check_layouts(after);
  if (after == PASS_MEMORY) check_memory();
}
