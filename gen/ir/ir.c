/* ir.c: the one graph. */
#include "ir/ir.h"

struct graph *graph;

void graph_open(void)
{
  arena_open(TABLE_ROOM * (sizeof(struct value) + sizeof(struct op)));
  graph = alloc(sizeof *graph);
  graph->loss = graph->norm = NONE;
  graph->accumulate = 1;
  graph->value = arena_table(sizeof *graph->value, &graph->nvalue);
  graph->op = arena_table(sizeof *graph->op, &graph->nop);
  graph->value_room = graph->op_room = TABLE_ROOM;
}
