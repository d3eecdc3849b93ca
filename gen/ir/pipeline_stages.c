/* pipeline_stages.c: which operation is of which stage of a pipeline. */
#include "ir/ir.h"

void set_stage(int op, int stage)
{
  struct pipeline_stages *s = graph->stages;
  if (!s) return;
  int before = s->room;
  while (op >= s->room) s->of_op = grow(s->of_op, s->room, &s->room, sizeof *s->of_op);
  for (int i = before; i < s->room; i++) s->of_op[i] = NONE;
  s->of_op[op] = stage;
}

int stage_of(int op)
{
  const struct pipeline_stages *s = graph->stages;
  return s && op != NONE && op < s->room ? s->of_op[op] : NONE;
}

bool is_over_stages(int mesh_dim)
{
  return graph->stages && graph->stages->mesh_dim == mesh_dim;
}

bool runs_here(int rank)
{
  int at[MAX_MESH];
  coordinate_of(rank, at);
  const struct pipeline_stages *s = graph->stages;
  return !s || s->here == NONE || at[s->mesh_dim] == s->here;
}

int coordinate_of_stage(int stage)
{
  return stage == NONE ? NONE : graph->stages->coordinate[stage];
}
