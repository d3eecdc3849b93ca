/* ir.c: the one graph, and the plan's options. */
#include "ir/ir.h"

struct graph *graph;
struct plan_options *plan_options;

bool is_other_graph(const struct graph **of)
{
  bool other = *of != graph;
  *of = graph;
  return other;
}

const struct all_stages *all_stages(void)
{
  const struct pipeline_stages *s = graph->stages;
  return s && s->here != NONE ? s->all : NULL;
}

void another_graph(void)
{
  graph = alloc(sizeof *graph);
  plan_options = alloc(sizeof *plan_options);
  graph->loss = graph->norm = NONE;
  plan_options->accumulate = 1;
}

void graph_open(void)
{
  open_shared_store();
  arena_open(TABLE_ROOM * (sizeof(struct value) + sizeof(struct op)));
  another_graph();
  graph->value = arena_table(sizeof *graph->value, &graph->nvalue);
  graph->op = arena_table(sizeof *graph->op, &graph->nop);
  graph->value_room = graph->op_room = TABLE_ROOM;
}
