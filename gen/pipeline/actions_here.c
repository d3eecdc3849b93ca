/* actions_here.c: the schedule of the graph's pipeline, and the actions of its ranks in a step. */
#include "pipeline/pipeline.h"

const struct pipeline *pipeline_here(const char **why)
{
  struct pipeline_stages *s = graph->stages;
  const int ranks = graph->mesh.size[s->mesh_dim];
  if (s->order) return s->order;
  if (s->csv)
    s->order = schedule_of_csv(s->schedule, s->csv, why);
  else
    s->order = pipeline_order(s->schedule, ranks, s->n / ranks, microbatches(), why);
  return s->order;
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
