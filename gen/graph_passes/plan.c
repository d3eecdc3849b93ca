/* plan.c: the pass `plan`: puts the requests of styles into the program.

   Takes   the global graph, its calls of modules, and the styles with their requests.
   Leaves  every parameter and input of the step placed; a redistribute operation wherever a style
           asks for a layout at a module's input or output. Calls and styles are not needed after.

   Parameters of units are gathered where they are used: fsdp_units.c.

   A redistribute is made even if the value already has the layout: it is the place at which a
   pending sum of the gradient must be reduced (as in DTensor, where a gradient gets the layout of
   its value).

   Along a mesh dimension of size 1 nothing is sharded: all placements there are replicated, and
   later passes need no case for them. */
#include "graph_passes/graph_passes.h"

#include <ctype.h>
#include <string.h>

static struct placement resolve(struct placement p, int value, const struct style *s)
{
  int ndim = graph->value[value].shape.ndim;
  if (p.kind == SHARD && (p.dim < -ndim || p.dim >= ndim))
    plan_error(s->line, "%s: Shard(%d) of a tensor with shape %s", s->name, p.dim,
               shape_text(graph->value[value].shape));
  if (graph->mesh.size[s->mesh_dim] == 1) return (struct placement){0};
  if (p.kind == SHARD && p.dim < 0) p.dim += ndim;
  return p;
}

static void place_parameters(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    if (v->role == PARAMETER || v->role == BATCH) v->placed = true;
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (graph->mesh.size[d] == 1) v->layout.on[d] = (struct placement){0};
  }
  /* The style that placed a parameter over a dimension of the mesh, plus 1. */
  int(*placed_by)[MAX_MESH] = alloc((size_t)(graph->nvalue + 1) * sizeof *placed_by);
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    for (int k = 0; k < s->nrequest; k++) {
      if (s->request[k].what != REQUEST_PARAMETER) continue;
      struct value *v = &graph->value[s->request[k].value];
      int *by = &placed_by[s->request[k].value][s->mesh_dim];
      struct placement *at = &v->layout.on[s->mesh_dim];
      struct placement to = resolve(s->request[k].to, s->request[k].value, s);
      if (*by && !same_placement(*at, to))
        plan_error(s->line, "%s places %s as %s over %s, but %s at line %d placed it as %s",
                   s->name, printable(v->name), placement_text(to),
                   printable(graph->mesh.name[s->mesh_dim]), graph->style[*by - 1].name,
                   graph->style[*by - 1].line, placement_text(*at));
      *at = to;
      *by = i + 1;
      v->style = i;
    }
  }
}

/* ----------------------------------------------------- one sweep over the program and its calls */

/* The state of the pass. */
struct placing {
  int *now;               /* the current replacement of each value */
  struct list *styles_of; /* by module */
  struct list new_order;
  struct gathering gathering; /* of parameters of units: fsdp_units.c */
  bool *is_aside;    /* by value: nothing reads it, and no operation of the order makes it */
  int first_of_call; /* the first operation that styles of the call and side at hand made */
  struct list parts, before; /* of inputs of open calls: values, and their replacements before */
};

/* Whether the value was moved by a style of the same call just before: then one move does both,
   over several dimensions of the mesh. */
static bool joins_move(const struct placing *p, int value, const struct style *s)
{
  const int id = graph->value[value].op;
  if (id == NONE || id < p->first_of_call || graph->op[id].kind != OP_redistribute) return false;
  return !(graph->op[id].asked >> s->mesh_dim & 1);
}

static int moved(struct placing *p, int value, const struct call *c, const struct style *s,
                 const struct layout_request *w, const char *side)
{
  if (joins_move(p, value, s)) {
    struct op *op = &graph->op[graph->value[value].op];
    op->asked |= 1u << s->mesh_dim;
    op->to.on[s->mesh_dim] = resolve(w->to, value, s);
    return value;
  }
  /* The entry of the program in which a call's input or output is moved. */
  int maker = graph->value[value].op;
  enum phase phase = graph->op[maker].phase;
  if (maker == NONE) {
    phase = c->first < c->last ? graph->op[graph->order[c->first]].phase : FORWARD;
  }
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {value},
                  .type = graph->value[value].type,
                  .backward_type = graph->value[value].type,
                  .module = c->within,
                  .line = s->line,
                  .phase = phase,
                  .asked = 1u << s->mesh_dim};
  op.to.on[s->mesh_dim] = resolve(w->to, value, s);
  op.why = text("%s's %s", s->name, side);
  int i = make_op(op);
  graph->value[graph->op[i].out].name = value_name(value);
  note_list(&p->gathering, &op, &p->new_order);
  add(&p->new_order, i);
  return graph->op[i].out;
}

/* The value that the operation, or a style on its behalf, reads for this one: its replacement; for
   a sharded parameter of a unit, the gathered value. Values that moved() adds have no
   replacement. */
static int current(struct placing *p, int value, int known, const struct op *reader)
{
  if (value < known) value = p->now[value];
  return is_kept_cut(value) ? gathered(&p->gathering, value, reader, &p->new_order) : value;
}

/* Moves the value to the layout. If only the parts of a join are read, the parts move, and the join
   is not made. */
static void move_value(struct placing *p, int v, const struct call *c, const struct style *s,
                       const struct layout_request *w, int known)
{
  bool is_input = w->what == REQUEST_INPUT;
  if (v < known && p->is_aside[v]) {
    struct op op = graph->op[graph->value[v].op];
    for (int i = 0; op.kind == OP_cat && i < op.nin; i++) {
      if (is_input) add(&p->parts, op.in[i]);
      if (is_input) add(&p->before, p->now[op.in[i]]);
      move_value(p, op.in[i], c, s, w, known);
    }
    return;
  }
  struct op reader = {.module = c->within};
  p->now[v] =
      moved(p, current(p, v, known, &reader), c, s, w, is_input ? "input layout" : "output layout");
}

static void add_requests_of(struct placing *p, const struct call *c, int what, int known)
{
  int n = what == REQUEST_INPUT ? c->nin : c->nout;
  const int *value = what == REQUEST_INPUT ? c->in : c->out;
  const struct list *styles = &p->styles_of[c->module];
  p->first_of_call = graph->nop;
  for (int i = 0; i < styles->n; i++) {
    const struct style *s = &graph->style[styles->at[i]];
    for (int k = 0; k < s->nrequest; k++) {
      const struct layout_request *w = &s->request[k];
      if ((int)w->what != what) continue;
      if (w->index >= n)
        plan_error(s->line, "%s asks for %s %d of %s, which has %d", s->name,
                   what == REQUEST_INPUT ? "input" : "output", w->index,
                   printable(graph->module[c->module].path), n);
      move_value(p, value[w->index], c, s, w, known);
    }
  }
}

/* A module's output is named after the module; other values within it after the module and the
   operator. The product of a linear module keeps the module's name, and a parameter's cast the
   parameter's. */
static bool is_named(const struct op *op)
{
  return op->kind == OP_matmul ||
         (op->kind == OP_cast && graph->value[op->in[0]].role == PARAMETER);
}

/* The number of values of a module that are named after each operator. */
struct tally {
  int n, room;
  struct {
    const char *name; /* as op_name gives it */
    int times;
  } * list;
};

static int *times_named(struct tally *t, const char *name)
{
  for (int i = 0; i < t->n; i++)
    if (t->list[i].name == name) return &t->list[i].times;
  GROW(t->list, t->n, t->room);
  t->list[t->n].name = name;
  t->list[t->n].times = 0;
  return &t->list[t->n++].times;
}

/* If an operator makes several values in a module, each is named after its operand, if a module
   made that: "rotary_of_wq". */
static void tell_apart(int value)
{
  const struct op *op = &graph->op[graph->value[value].op];
  int of = op->nin ? shown_value(op->in[0]) : NONE;
  const char *dot = of == NONE ? NULL : strrchr(graph->value[of].name, '.');
  bool shows = shown_value(value) != value;
  if (shows || !dot || has_name_of_op(of) || !isalpha((unsigned char)dot[1])) return;
  graph->value[value].name = text("%s_of_%s", graph->value[value].name, dot + 1);
}

static void name_inner_values(void)
{
  struct tally named = {0};
  for (int i = 0; i < graph->ncall; i++) {
    const struct call *c = &graph->call[i];
    const char *path = graph->module[c->within].path;
    named.n = 0;
    for (int at = c->first; at < c->last && *path; at++) {
      const struct op *op = &graph->op[graph->order[at]];
      if (op->module != c->within || is_named(op)) continue;
      for (int v = op->out; v < op->out + op->nout; v++) {
        bool given = false;
        for (int k = 0; k < c->nout; k++) given |= c->out[k] == v;
        /* Attention has a second output: the logarithms of its rows' sums. */
        bool sums = op->kind == OP_attention && v > op->out;
        if (given) continue;
        graph->value[v].name = text("%s.%s", path, sums ? "lse" : op_name(op));
        *times_named(&named, op_name(op)) += v == op->out;
      }
    }
    for (int at = c->first; at < c->last && *path; at++) {
      const struct op *op = &graph->op[graph->order[at]];
      bool inner = op->module == c->within && !is_named(op) && op->nout;
      for (int k = 0; k < c->nout; k++) inner &= c->out[k] != op->out;
      if (inner && *times_named(&named, op_name(op)) > 1) tell_apart(op->out);
    }
  }
}

/* Adds the operation to the program, with its inputs replaced. */
static void take(struct placing *p, int id, int known)
{
  struct op op = graph->op[id]; /* a copy: adding operations moves the array */
  note_list(&p->gathering, &op, &p->new_order);
  if (casts_for_use(&op)) {
    p->now[op.out] = gathered(&p->gathering, op.in[0], &op, &p->new_order);
    return;
  }
  for (int i = 0; i < op.nin; i++) op.in[i] = current(p, op.in[i], known, &op);
  graph->op[id] = op;
  add(&p->new_order, id);
}

void plan(void)
{
  struct placing run = {0}, *p = &run;
  check_microbatches();
  place_parameters();
  p->gathering = place_units();
  name_inner_values();
  int known = graph->nvalue;
  p->new_order = (struct list){0};
  p->now = alloc((size_t)known * sizeof *p->now);
  for (int i = 0; i < known; i++) p->now[i] = i;
  p->is_aside = alloc((size_t)known * sizeof *p->is_aside);
  for (int i = 0; i < known; i++) p->is_aside[i] = graph->value[i].op != NONE;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int v = op->out; v < op->out + op->nout; v++) p->is_aside[v] = false;
  }
  p->styles_of = alloc((size_t)(graph->nmodule + 1) * sizeof *p->styles_of);
  for (int i = 0; i < graph->nstyle; i++) add(&p->styles_of[graph->style[i].module], i);

  /* The open calls, and the replacements of their inputs before they began. */
  int(*before)[MAX_INPUTS] = alloc((size_t)(graph->ncall + 1) * sizeof *before);
  int *nparts = alloc((size_t)(graph->ncall + 1) * sizeof *nparts);
  int open = NONE, next = 0, norder = graph->norder;
  for (int at = 0; at <= norder;) {
    struct call *c = next < graph->ncall ? &graph->call[next] : NULL;
    if (c && c->first == at && c->parent == open) {
      for (int i = 0; i < c->nin; i++) before[next][i] = p->now[c->in[i]];
      nparts[next] = p->parts.n;
      add_requests_of(p, c, REQUEST_INPUT, known);
      open = next++;
    } else if (open != NONE && graph->call[open].last == at) {
      c = &graph->call[open];
      for (int i = 0; i < c->nin; i++) p->now[c->in[i]] = before[open][i];
      while (p->parts.n > nparts[open]) {
        p->parts.n--;
        p->now[p->parts.at[p->parts.n]] = p->before.at[--p->before.n];
      }
      add_requests_of(p, c, REQUEST_OUTPUT, known);
      open = c->parent;
    } else {
      if (at == norder) break;
      take(p, graph->order[at++], known);
    }
  }
  graph->order = p->new_order.at;
  graph->norder = p->new_order.n;
  graph->order_room = p->new_order.room;
  if (graph->loss != NONE) graph->loss = p->now[graph->loss];
  for (int i = 0; i < known; i++)
    if (graph->value[i].is_output && p->now[i] != i) {
      graph->value[p->now[i]].is_output = true;
      graph->value[p->now[i]].rows = graph->value[i].rows;
      graph->value[p->now[i]].name = graph->value[i].name;
      graph->value[i].is_output = false;
    }
  assign_stages();
}
