/* stage_program.c: the program of the ranks at one coordinate of a pipeline.

   Takes   the flat program of all ranks, each operation in its stage.
   Leaves  a graph with the operations of these ranks' stages, and those that all ranks run. Later
           passes plan it as if all ranks ran it: their numbers, their groups and the mesh stay. The
           parameters of other stages stay, too, with no part on any of these ranks. */
#include "graph_passes/graph_passes.h"

#include <string.h>

static void *copied(const void *array, int n, size_t size)
{
  void *copy = alloc((size_t)(n + 1) * size);
  if (n) memcpy(copy, array, (size_t)n * size);
  return copy;
}

static void *copied_for_now(void **room, const void *array, int n, size_t size)
{
  if (!*room) *room = alloc((size_t)n * size);
  return memcpy(*room, array, (size_t)n * size);
}

void own_program_of_stages(void)
{
  struct graph *g = graph;
  g->order = copied(g->order, g->norder, sizeof *g->order);
  g->module = copied(g->module, g->nmodule, sizeof *g->module);
  g->group = copied(g->group, g->ngroup, sizeof *g->group);
  g->exchange = copied(g->exchange, g->nexchange, sizeof *g->exchange);
  g->index_use = copied(g->index_use, g->nindex_use, sizeof *g->index_use);
  g->stages->of_op = copied(g->stages->of_op, g->stages->room, sizeof *g->stages->of_op);
  g->order_room = g->norder;
  g->module_room = g->nmodule, g->group_room = g->ngroup, g->exchange_room = g->nexchange;
  g->index_use_room = g->nindex_use;
  drop_idle();
  /* with room for the usual additions of passes: an array that grows takes its memory three
     times */
  g->value_room = g->nvalue + g->nvalue / 3, g->op_room = g->nop + g->nop / 3;
  struct value *value = alloc((size_t)g->value_room * sizeof *value);
  struct op *op = alloc((size_t)g->op_room * sizeof *op);
  g->value = memcpy(value, g->value, (size_t)g->nvalue * sizeof *value);
  g->op = memcpy(op, g->op, (size_t)g->nop * sizeof *op);
}

static bool *emptied(bool **room, int n)
{
  if (!*room) *room = alloc((size_t)n);
  return memset(*room, 0, (size_t)n);
}

struct graph *program_of_stages(struct graph *whole, int coordinate, struct stage_room *room)
{
  struct graph *g = alloc(sizeof *g);
  if (!room->owner) room->owner = stages_of_values();
  *g = *whole;
  g->value = copied_for_now(&room->values, whole->value, whole->nvalue, sizeof *g->value);
  g->op = copied_for_now(&room->ops, whole->op, whole->nop, sizeof *g->op);
  g->order = copied_for_now(&room->order, whole->order, whole->norder, sizeof *g->order);
  g->stages = copied(whole->stages, 1, sizeof *g->stages);
  g->stages->here = coordinate;
  graph = g;
  g->norder = 0;
  for (int at = 0; at < whole->norder; at++) {
    int stage = stage_of(whole->order[at]);
    if (stage == NONE || coordinate_of_stage(stage) == coordinate)
      g->order[g->norder++] = whole->order[at];
  }
  bool *runs = emptied(&room->runs, g->nop + 1), *takes = emptied(&room->takes, g->nvalue + 1);
  for (int at = 0; at < g->norder; at++) {
    const struct op *op = &g->op[g->order[at]];
    runs[g->order[at]] = true;
    for (int i = 0; i < operand_count(op); i++) takes[nth_operand(op, i)] = true;
  }
  for (int i = 0; i < g->nvalue; i++) {
    struct value *v = &g->value[i];
    int owner = room->owner[i];
    if (v->role != ACTIVATION && owner != NONE)
      v->on_other_stages = coordinate_of_stage(owner) != coordinate;
    if (v->role == SUMS)
      v->on_other_stages = !takes[i]; /* each stage sums its own terms of a gradient */
    if (v->op != NONE && !runs[v->op]) v->op = NONE;
  }
  for (int at = 0; at < g->norder; at++)
    if (g->op[g->order[at]].kind == OP_squares) {
      /* The gradients whose squares these ranks sum. */
      struct op *op = &g->op[g->order[at]];
      int *body = alloc((size_t)(op->nbody + 1) * sizeof *body), n = 0;
      for (int k = 0; k < op->nbody; k++)
        if (!graph->value[graph->op[op->body[k]].in[0]].on_other_stages) body[n++] = op->body[k];
      op->body = body;
      op->nbody = n;
    }
  leave_out_dead();
  return g;
}

/* ----------------------------------------------------------------------------- equal programs */

static uint64_t hash_int(uint64_t h, int64_t x)
{
  return hash_bytes(h, &x, sizeof x);
}

static uint64_t hash_value(uint64_t h, const struct value *v)
{
  h = hash_int(hash_int(hash_int(h, v->role), v->type), v->on_other_stages);
  for (int d = 0; d < v->shape.ndim; d++) h = hash_int(h, v->shape.size[d]);
  for (int d = 0; d < graph->mesh.ndim; d++) h = hash_bytes(h, &v->layout.on[d], 8);
  return hash_int(h, v->order);
}

/* The numbers of a transfer are those of its stages, which do not count. */
static uint64_t hash_op(uint64_t h, const struct op *op)
{
  h = hash_int(hash_int(hash_int(h, op->kind), op->phase), op->line);
  for (int i = 0; i < MAX_NUMBERS && !is_transfer(op->kind); i++) h = hash_int(h, op->number[i]);
  for (const char *c = op->equation; c && *c; c++) h = hash_int(h, *c);
  h = hash_int(hash_int(h, op->group), op->exchange);
  h = hash_int(hash_int(h, op->dim), op->dim_to);
  return hash_bytes(hash_int(hash_int(h, op->dims), op->nbody), &op->scalar, sizeof op->scalar);
}

/* The number of the stage among those here, and of the part of its backward. */
static int place_of_stage(int op)
{
  int stage = stage_of(op), place = 0;
  for (int s = 0; s < stage; s++) place += is_stage_here(s);
  return stage == NONE ? NONE : 2 * place + is_of_weights(op);
}

uint64_t hash_of_program(void)
{
  int *number = alloc((size_t)(graph->nvalue + 1) * sizeof *number), known = 0; /* from 1 on */
  uint64_t h = HASH_START;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    h = hash_int(hash_op(h, op), place_of_stage(graph->order[at]));
    for (int i = 0; i < operand_count(op); i++) {
      int value = nth_operand(op, i);
      if (!number[value]) {
        number[value] = ++known;
        h = hash_value(h, &graph->value[value]);
      }
      h = hash_int(h, number[value]);
    }
  }
  return h;
}
