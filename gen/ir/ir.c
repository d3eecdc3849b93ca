/* ir.c: the one graph, and what the plan asks for. */
#include "ir/ir.h"

struct graph *graph;
struct plan_options *plan_options;

bool is_other_graph(const struct graph **of)
{
  bool other = *of != graph;
  *of = graph;
  return other;
}

bool has_somewhere(bool (*has)(void))
{
  struct graph *here = graph;
  if (graph->stages && graph->stages->program) graph = graph->stages->program;
  bool somewhere = has();
  graph = here;
  return somewhere;
}

void graph_open(void)
{
  arena_open(TABLE_ROOM * (sizeof(struct value) + sizeof(struct op)));
  graph = alloc(sizeof *graph);
  plan_options = alloc(sizeof *plan_options);
  graph->loss = graph->norm = NONE;
  plan_options->accumulate = 1;
  graph->value = arena_table(sizeof *graph->value, &graph->nvalue);
  graph->op = arena_table(sizeof *graph->op, &graph->nop);
  graph->value_room = graph->op_room = TABLE_ROOM;
}
