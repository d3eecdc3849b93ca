/* drop.c: the end of the pass `outline`: removes what the program no longer uses from the graph.
   And a part of its beginning: removes what no result needs from the flat program.

   Takes   functions, and all operations of the flat program that they were made of: for a list of a
           hundred modules, a hundred times the operations of the loop's body.
   Leaves  the operations that functions run, and those that make gradients, which `bucket` may take
           out of loops; the values that these use, all values outside of the arena, and what these
           refer to. They keep their order and get new numbers. Later passes have arrays by value
           and by operation, and walk them often. graph->order and the calls are empty from here
           on. */
#include "flat/flat.h"

/* New numbers by old ones; NONE while it is not known whether the thing stays. */
struct renumbered {
  int n, *number;
};
static struct renumbered values, ops;
static struct list todo; /* values that stay and whose references must still be followed */

static struct renumbered none_of(int n)
{
  struct renumbered r = {n, alloc((size_t)(n + 1) * sizeof *r.number)};
  for (int i = 0; i < n; i++) r.number[i] = NONE;
  return r;
}

static void keep_value(int value)
{
  if (value == NONE || values.number[value] != NONE) return;
  values.number[value] = value;
  add(&todo, value);
}

static void keep_op(int id)
{
  if (id == NONE || ops.number[id] != NONE) return;
  const struct op *op = &graph->op[id];
  ops.number[id] = id;
  for (int i = 0; i < op->nin; i++) keep_value(op->in[i]);
  for (int k = 0; k < op->nout; k++) keep_value(op->out + k);
  for (int k = 0; k < op->nbody; k++) keep_op(op->body[k]);
}

/* A loop's body stands for all modules of its list: its operation makes what theirs would make. */
static void give_makers(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    if (v->role == ACTIVATION && v->family != NONE && v->index > 0)
      v->op = graph->value[v->family].op;
  }
}

static void keep_what_it_speaks_of(const struct value *v)
{
  keep_op(v->op);
  keep_value(v->family);
  keep_value(v->sibling);
  keep_value(v->of);
  if (v->step) keep_value(v->initial);
}

static void find_kept(void)
{
  todo = (struct list){0};
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) keep_op(graph->function[i].op[k]);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role != ACTIVATION || graph->value[i].is_output) keep_value(i);
  while (todo.n) keep_what_it_speaks_of(&graph->value[todo.at[--todo.n]]);
}

/* Numbers what stays, from 0; returns how many there are. */
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

static void move_values(int left)
{
  for (int i = 0; i < graph->nvalue; i++) {
    if (values.number[i] == NONE) continue;
    struct value *v = &graph->value[values.number[i]];
    *v = graph->value[i];
    v->op = renumbered(&ops, v->op);
    v->family = renumbered(&values, v->family);
    v->sibling = renumbered(&values, v->sibling);
    v->of = renumbered(&values, v->of);
    if (v->step) v->initial = values.number[v->initial];
  }
  graph->nvalue = left;
}

static const int *renumbered_body(const struct op *op)
{
  int *body = alloc((size_t)op->nbody * sizeof *body);
  for (int k = 0; k < op->nbody; k++) body[k] = ops.number[op->body[k]];
  return body;
}

static void move_ops(int left)
{
  for (int i = 0; i < graph->nop; i++) {
    if (ops.number[i] == NONE) continue;
    struct op *op = &graph->op[ops.number[i]];
    *op = graph->op[i];
    for (int k = 0; k < op->nin; k++) op->in[k] = values.number[op->in[k]];
    op->out = renumbered(&values, op->out);
    if (op->nbody) op->body = renumbered_body(op);
  }
  graph->nop = left;
}

void drop_rest(void)
{
  values = none_of(graph->nvalue);
  ops = none_of(graph->nop);
  give_makers();
  find_kept();
  int nvalue = renumber(&values), nop = renumber(&ops);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      graph->function[i].op[k] = ops.number[graph->function[i].op[k]];
  graph->loss = renumbered(&values, graph->loss);
  graph->norm = renumbered(&values, graph->norm);
  graph->norder = graph->ncall = 0;
  move_values(nvalue);
  move_ops(nop);
}

/* -------------------------------------------------------------------------- before the functions
 */

/* Whether a user of the program sees it. */
static bool is_result(int value)
{
  return value == graph->loss || value == graph->norm || graph->value[value].is_output;
}

/* Removes from the order what no result needs. */
void leave_out_dead(void)
{
  bool *needed = alloc((size_t)graph->nvalue + 1);
  bool *lives = alloc((size_t)graph->norder + 1);
  for (int at = graph->norder; at-- > 0;) {
    const struct op *op = &graph->op[graph->order[at]];
    lives[at] = op->nout == 0;
    for (int k = 0; k < op->nout; k++) lives[at] |= needed[op->out + k] || is_result(op->out + k);
    for (int i = 0; i < op->nin && lives[at]; i++) needed[op->in[i]] = true;
  }
  int kept = 0;
  for (int at = 0; at < graph->norder; at++)
    if (lives[at]) graph->order[kept++] = graph->order[at];
  graph->norder = kept;
}
