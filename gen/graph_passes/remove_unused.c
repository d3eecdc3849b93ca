/* remove_unused.c: the end of the pass `outline`: removes everything that the program no longer
   uses from the graph. And parts of its beginning: removes the operations that no result needs from
   the flat program, and brings those ahead that run before the first batch.

   Takes   functions, and all operations of the flat program that they were made of: for a list of a
           hundred modules, a hundred times the operations of the loop's body.
   Leaves  the operations that functions run, and those that make gradients, which `bucket` may take
           out of loops; the values that these use, all values outside of the arena, and everything
           to which these refer. They keep their order and get new numbers. Later passes have arrays
           by value and by operation, and walk them often. graph->order and the calls are empty from
           here on. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* New numbers by old ones; NONE until the thing is known to stay. */
struct renumbered {
  int n, *number;
};

static struct renumbered none_of(int n)
{
  struct renumbered r = {n, alloc((size_t)(n + 1) * sizeof *r.number)};
  for (int i = 0; i < n; i++) r.number[i] = NONE;
  return r;
}

/* The state of the pass. */
struct dropping {
  struct renumbered values, ops;
  struct list todo; /* values that stay and whose references must still be followed */
};

static void keep_value(struct dropping *d, int value)
{
  if (value == NONE || d->values.number[value] != NONE) return;
  d->values.number[value] = value;
  add(&d->todo, value);
}

static void keep_op(struct dropping *d, int id)
{
  if (id == NONE || d->ops.number[id] != NONE) return;
  const struct op *op = &graph->op[id];
  d->ops.number[id] = id;
  for (int i = 0; i < op->nin; i++) keep_value(d, op->in[i]);
  for (int k = 0; k < op->nout; k++) keep_value(d, op->out + k);
  for (int k = 0; k < op->nbody; k++) keep_op(d, op->body[k]);
}

static void find_kept(struct dropping *d)
{
  d->todo = (struct list){0};
  for (int at = 0; at < graph->norder; at++) keep_op(d, graph->order[at]);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) keep_op(d, graph->function[i].op[k]);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role != ACTIVATION || graph->value[i].is_output) keep_value(d, i);
  while (d->todo.n) {
    int value = d->todo.at[--d->todo.n];
    const struct value *v = &graph->value[value];
    const struct in_loop *loop = in_loop(value);
    keep_op(d, v->op);
    keep_value(d, loop->stack);
    keep_value(d, loop->sibling);
    keep_value(d, v->of);
    keep_value(d, v->counts);
    if (loop->step) keep_value(d, loop->initial);
  }
}

/* Numbers the things that stay, from 0; returns their number. */
static int renumber(struct renumbered *r)
{
  int n = 0;
  for (int i = 0; i < r->n; i++)
    if (r->number[i] != NONE) r->number[i] = n++;
  return n;
}

static int renumbered(const struct renumbered *r, int i)
{
  return i == NONE ? NONE : r->number[i];
}

void drop_idle(void)
{
  struct dropping run = {0}, *d = &run;
  d->values = none_of(graph->nvalue);
  d->ops = none_of(graph->nop);
  find_kept(d);
  int nvalue = renumber(&d->values), nop = renumber(&d->ops);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      graph->function[i].op[k] = d->ops.number[graph->function[i].op[k]];
  for (int i = 0; i < graph->nindex_use; i++)
    graph->index_use[i].input = renumbered(&d->values, graph->index_use[i].input);
  graph->loss = renumbered(&d->values, graph->loss);
  graph->norm = renumbered(&d->values, graph->norm);
  for (int at = 0; at < graph->norder; at++) graph->order[at] = d->ops.number[graph->order[at]];
  struct values_in_loops *l = graph->in_loops;
  int left = 0;
  for (int i = 0; l && i < l->nvalue; i++) {
    if (d->values.number[i] == NONE) continue;
    struct in_loop *to = &l->of[left++];
    *to = l->of[i];
    to->stack = renumbered(&d->values, to->stack);
    to->sibling = renumbered(&d->values, to->sibling);
    if (to->step) to->initial = d->values.number[to->initial];
  }
  if (l) l->nvalue = left;
  for (int i = 0; i < graph->nvalue; i++) {
    if (d->values.number[i] == NONE) continue;
    struct value *v = &graph->value[d->values.number[i]];
    *v = graph->value[i];
    v->op = renumbered(&d->ops, v->op);
    v->of = renumbered(&d->values, v->of);
    v->counts = renumbered(&d->values, v->counts);
  }
  graph->nvalue = nvalue;
  for (int i = 0; i < graph->nop; i++) {
    move_stage(i, d->ops.number[i]);
    if (d->ops.number[i] == NONE) continue;
    struct op *op = &graph->op[d->ops.number[i]];
    *op = graph->op[i];
    for (int k = 0; k < op->nin; k++) op->in[k] = d->values.number[op->in[k]];
    op->out = renumbered(&d->values, op->out);
    if (op->nbody) {
      int *body = alloc((size_t)op->nbody * sizeof *body);
      for (int k = 0; k < op->nbody; k++) body[k] = d->ops.number[op->body[k]];
      op->body = body;
    }
  }
  graph->nop = nop;
}

void drop_rest(void)
{
  graph->norder = graph->ncall = 0;
  /* A loop's body represents all modules of its list: its operation makes the values of theirs. */
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    const struct in_loop *loop = in_loop(i);
    if (v->role == ACTIVATION && loop->stack != NONE && loop->index > 0)
      v->op = graph->value[loop->stack].op;
  }
  drop_idle();
}

/* ------------------------------------------------------------------------- before the functions */

/* Removes the operations that no result needs from the order. */
void leave_out_dead(void)
{
  bool *needed = alloc((size_t)graph->nvalue + 1);
  bool *lives = alloc((size_t)graph->norder + 1);
  for (int at = graph->norder; at-- > 0;) {
    const struct op *op = &graph->op[graph->order[at]];
    lives[at] = op->nout == 0 || op_row[op->kind].keeps;
    for (int k = 0; k < op->nout; k++) {
      /* Whether a user of the program sees it. */
      lives[at] |= needed[op->out + k] || op->out + k == graph->loss ||
                   op->out + k == graph->norm || graph->value[op->out + k].is_output;
    }
    for (int i = 0; i < op->nin && lives[at]; i++) needed[op->in[i]] = true;
  }
  int kept = 0;
  for (int at = 0; at < graph->norder; at++)
    if (lives[at]) graph->order[kept++] = graph->order[at];
  graph->norder = kept;
}

void bring_ahead(void)
{
  int *order = alloc((size_t)(graph->norder + 1) * sizeof *order), n = 0;
  for (int group = 0; group < 3; group++)
    for (int at = 0; at < graph->norder; at++) {
      enum phase phase = graph->op[graph->order[at]].phase;
      if (group == (phase == COUNT ? 0 : phase == GATHER ? 1 : 2)) order[n++] = graph->order[at];
    }
  if (n) memcpy(graph->order, order, (size_t)n * sizeof *order);
}
