/* edit.c: changes to a function of the folded program: operations inserted and removed, parts of
   loop bodies. */
#include "ir/ir.h"

#include <string.h>

int await_of(int collective)
{
  const struct op *c = &graph->op[collective];
  return store_op((struct op){.kind = OP_await,
                              .out = NONE,
                              .awaits = collective,
                              .group = c->group,
                              .phase = c->phase,
                              .last_batch = c->last_batch,
                              .module = c->module,
                              .line = c->line});
}

int call_for(int function, enum iteration iteration, int distance, const struct op *c)
{
  return store_op((struct op){.kind = OP_iteration,
                              .out = NONE,
                              .function = function,
                              .iteration = iteration,
                              .first = iteration == FIRST_ITERATION ? distance : 0,
                              .ahead = iteration == NEXT_ITERATION ? distance : 0,
                              .group = c->group,
                              .phase = c->phase,
                              .last_batch = c->last_batch,
                              .module = c->module,
                              .line = c->line});
}

const char *free_function_name(const char *preferred)
{
  const char *name = preferred;
  for (int again = 2;; again++) {
    bool taken = false;
    for (int i = 0; i < graph->nfunction; i++) taken |= !strcmp(graph->function[i].name, name);
    if (!taken) return name;
    name = text("%s_%d", preferred, again);
  }
}

int add_part(int body, const char *name, const struct list *op)
{
  struct function f = graph->function[body];
  f.name = free_function_name(name);
  f.is_part = true;
  f.body = body;
  f.op = op->at;
  f.nop = op->n;
  GROW(graph->function, graph->nfunction, graph->function_room);
  graph->function[graph->nfunction] = f;
  return graph->nfunction++;
}

void insert(struct function *f, int at, int op)
{
  int *list = alloc((size_t)(f->nop + 1) * sizeof *list);
  memcpy(list, f->op, (size_t)at * sizeof *list);
  list[at] = op;
  memcpy(list + at + 1, f->op + at, (size_t)(f->nop - at) * sizeof *list);
  f->op = list;
  f->nop++;
}

void leave_out_of(struct function *f, int op)
{
  int kept = 0, *list = alloc((size_t)(f->nop + 1) * sizeof *list);
  for (int k = 0; k < f->nop; k++)
    if (f->op[k] != op) list[kept++] = f->op[k];
  f->op = list;
  f->nop = kept;
}

struct edit_state remember_program(void)
{
  struct edit_state s = {.nfunction = graph->nfunction};
  s.function = alloc((size_t)s.nfunction * sizeof *s.function);
  memcpy(s.function, graph->function, (size_t)s.nfunction * sizeof *s.function);
  if (graph->in_loops) s.in_loops = *graph->in_loops;
  s.in_loops.of = alloc((size_t)(s.in_loops.nvalue + 1) * sizeof *s.in_loops.of);
  if (graph->in_loops)
    memcpy(s.in_loops.of, graph->in_loops->of, (size_t)s.in_loops.nvalue * sizeof *s.in_loops.of);
  if (!graph->schedule) return s;
  s.schedule = *graph->schedule;
  s.schedule.of = alloc((size_t)(s.schedule.nop + 1) * sizeof *s.schedule.of);
  memcpy(s.schedule.of, graph->schedule->of, (size_t)s.schedule.nop * sizeof *s.schedule.of);
  return s;
}

void go_back(const struct edit_state *s)
{
  graph->nfunction = s->nfunction;
  memcpy(graph->function, s->function, (size_t)s->nfunction * sizeof *s->function);
  if (graph->in_loops) {
    graph->in_loops->nvalue = s->in_loops.nvalue;
    memcpy(graph->in_loops->of, s->in_loops.of,
           (size_t)s->in_loops.nvalue * sizeof *s->in_loops.of);
  }
  if (!graph->schedule) return;
  graph->schedule->nevent = s->schedule.nevent;
  memcpy(graph->schedule->of, s->schedule.of, (size_t)s->schedule.nop * sizeof *s->schedule.of);
}

/* A copy of n elements in an array that has room for some, and in a new one, with room for more,
   where it has too little. */
static void *copied(void *array, int *room, const void *from, int n, size_t size)
{
  if (array && *room > n) return n ? memcpy(array, from, (size_t)n * size) : array;
  *room = n;
  return grow((void *)from, n, room, size);
}

struct graph remember_flat_program(struct graph *room)
{
  struct graph now = *graph;
#define COPY(array, n, has)                                                                        \
  graph->has = room->has,                                                                          \
  graph->array = copied(room->array, &graph->has, now.array, now.n, sizeof *now.array)
  COPY(value, nvalue, value_room);
  COPY(op, nop, op_room);
  COPY(order, norder, order_room);
  COPY(group, ngroup, group_room);
  COPY(exchange, nexchange, exchange_room);
  COPY(index_use, nindex_use, index_use_room);
#undef COPY
  if (now.stages) {
    graph->stages = alloc(sizeof *graph->stages);
    *graph->stages = *now.stages;
    int has = 0;
    graph->stages->of_op =
        copied(NULL, &has, now.stages->of_op, now.stages->room, sizeof *now.stages->of_op);
  }
  return now;
}

void return_to_flat_program(const struct graph *then, struct graph *room)
{
  *room = *graph;
  *graph = *then;
}
