/* stage_program.c: the program of the ranks at one coordinate of a pipeline.

   Takes   the flat program of all ranks, each operation in its stage.
   Leaves  a graph that has the operations of these ranks' stages, and what all ranks compute. Later
           passes plan it as if all ranks ran it: their numbers, their groups and the mesh stay. The
           parameters of other stages stay, too, with no part on any of these ranks. */
#include "flat/flat.h"

#include <string.h>

static void *copied(const void *array, int n, size_t size)
{
  void *copy = alloc((size_t)(n + 1) * size);
  if (n) memcpy(copy, array, (size_t)n * size);
  return copy;
}

static bool is_of(int stage, int coordinate)
{
  return stage == NONE || coordinate_of_stage(stage) == coordinate;
}

/* The gradients whose squares these ranks sum. */
static void leave_squares(struct op *op)
{
  int *body = alloc((size_t)(op->nbody + 1) * sizeof *body), n = 0;
  for (int k = 0; k < op->nbody; k++)
    if (!graph->value[graph->op[op->body[k]].in[0]].elsewhere) body[n++] = op->body[k];
  op->body = body;
  op->nbody = n;
}

struct graph *program_of_stages(const struct graph *whole, int coordinate)
{
  struct graph *g = alloc(sizeof *g);
  *g = *whole;
  g->value = copied(whole->value, whole->nvalue, sizeof *g->value);
  g->op = copied(whole->op, whole->nop, sizeof *g->op);
  g->order = copied(whole->order, whole->norder, sizeof *g->order);
  g->module = copied(whole->module, whole->nmodule, sizeof *g->module);
  g->group = copied(whole->group, whole->ngroup, sizeof *g->group);
  g->exchange = copied(whole->exchange, whole->nexchange, sizeof *g->exchange);
  g->index_use = copied(whole->index_use, whole->nindex_use, sizeof *g->index_use);
  g->stages = copied(whole->stages, 1, sizeof *g->stages);
  g->stages->of_op = copied(whole->stages->of_op, whole->stages->room, sizeof *g->stages->of_op);
  g->stages->here = coordinate;
  g->stages->program = whole;
  g->value_room = g->nvalue, g->op_room = g->nop, g->order_room = g->norder;
  g->module_room = g->nmodule, g->group_room = g->ngroup, g->exchange_room = g->nexchange;
  g->index_use_room = g->nindex_use;
  graph = g;
  g->norder = 0;
  for (int at = 0; at < whole->norder; at++)
    if (is_of(stage_of(whole->order[at]), coordinate)) g->order[g->norder++] = whole->order[at];
  bool *runs = alloc((size_t)g->nop + 1);
  for (int at = 0; at < g->norder; at++) runs[g->order[at]] = true;
  for (int i = 0; i < g->nvalue; i++) {
    struct value *v = &g->value[i];
    int home = home_of(i);
    if (v->role != ACTIVATION && home != NONE)
      v->elsewhere = coordinate_of_stage(home) != coordinate;
    if (v->role == LOSS && v->op != NONE && !runs[v->op]) v->op = NONE;
  }
  for (int at = 0; at < g->norder; at++)
    if (g->op[g->order[at]].kind == OP_squares) leave_squares(&g->op[g->order[at]]);
  return g;
}
