/* slots.c: the slots of the micro-batches that a stage has in flight: their forward has begun, and
   their backward has not ended.

   A forward reuses a slot when every value sent from it has been received. With only as many slots
   as micro-batches in flight, ranks may wait for each other forever: then each stage has some more,
   and reuses the one that has been free for the longest time. */
#include "pipeline/pipeline.h"

int slots_of_stage(const struct actions *actions, int stage, int *slot)
{
  const int last_stage = last_stage_with(stage);
  int n = 0; /* micro-batches */
  for (int i = 0; i < actions->n; i++)
    if (actions->at[i].microbatch >= n) n = actions->at[i].microbatch + 1;
  int *of = alloc((size_t)(n + 1) * sizeof *of);     /* by micro-batch: its slot, or NONE */
  int *ends = alloc((size_t)(n + 1) * sizeof *ends); /* the last action that needs it */
  struct list free = {0};
  int slots = 0, taken_anew = 0; /* how many of the list */
  for (int m = 0; m < n; m++) of[m] = NONE;
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    if (a->stage >= stage && a->stage <= last_stage) ends[a->microbatch] = i;
  }
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    slot[i] = NONE;
    if (a->stage < stage || a->stage > last_stage) continue;
    if (a->stage == stage && a->kind == ACTION_F) {
      bool anew = free.n - taken_anew > graph->stages->spare_slots;
      of[a->microbatch] = anew ? free.at[taken_anew++] : slots++;
    }
    slot[i] = of[a->microbatch];
    if (ends[a->microbatch] == i && slot[i] != NONE) add(&free, slot[i]);
  }
  return slots;
}
