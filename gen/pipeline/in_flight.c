/* in_flight.c: the micro-batches that the ranks at a place of a pipeline have in flight: of which
   the forward has begun, and the backward not ended. */
#include "pipeline/pipeline.h"

struct pipeline *pipeline_here(const char **why)
{
  const struct pipeline_stages *s = graph->stages;
  int ranks = graph->mesh.size[s->mesh_dim];
  return pipeline_order(s->schedule, ranks, s->n / ranks, microbatches(), why);
}

const struct actions *actions_here(void)
{
  const char *why;
  return &pipeline_here(&why)->order[graph->stages->here];
}

int slots_of_actions(const struct actions *actions, int *slot)
{
  int n = microbatches(), slots = 0;
  int *of = alloc((size_t)n * sizeof *of); /* by micro-batch: its slot, from 1 on, or 0 */
  bool *taken = alloc((size_t)n + 1);
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    slot[i] = NONE;
    if (a->kind == ACTION_IDLE) continue;
    if (a->kind == ACTION_F) {
      int free = 0;
      while (taken[free]) free++;
      taken[free] = true;
      of[a->microbatch] = free + 1;
      if (free + 1 > slots) slots = free + 1;
    }
    slot[i] = of[a->microbatch] - 1;
    if (a->kind == ACTION_B) taken[slot[i]] = false;
  }
  return slots;
}

int micro_batches_in_flight(void)
{
  const struct actions *actions = actions_here();
  int *slot = alloc((size_t)(actions->n + 1) * sizeof *slot);
  return slots_of_actions(actions, slot);
}
