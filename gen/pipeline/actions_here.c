/* actions_here.c: the schedule of the graph's pipeline, and what its ranks compute in a step. */
#include "pipeline/pipeline.h"

struct pipeline *pipeline_here(const char **why)
{
  const struct pipeline_stages *s = graph->stages;
  if (s->csv) return schedule_of_csv(s->schedule, s->csv, why);
  int ranks = graph->mesh.size[s->mesh_dim];
  return pipeline_order(s->schedule, ranks, s->n / ranks, microbatches(), why);
}

struct actions actions_of(const struct pipeline *p, int rank)
{
  struct actions all = {0};
  struct action part[ACTION_PARTS];
  for (int i = 0; i < p->order[rank].n; i++)
    for (int k = action_parts(&p->order[rank].at[i], part); k-- > 0;) put_action(&all, part[k]);
  return all;
}

struct actions actions_here(void)
{
  const char *why;
  return actions_of(pipeline_here(&why), graph->stages->here);
}
