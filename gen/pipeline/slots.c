/* slots.c: the slots of the micro-batches that a rank has in flight: their forward has begun, and
   their backward has not ended.

   The stages of a rank share its slots: one that ends leaves its slot to any other one, so there
   are as many as are in flight at once. A slot is as large as the largest that it ever holds. The
   first stage has an embedding and the last one a loss: these take slots that they had before, and
   the others take these only if no other slot is free.

   A forward reuses a slot when every value sent from it has been received. With only as many slots
   as micro-batches in flight, ranks may wait for each other forever: then each rank has some more,
   and reuses the one that has been free for the longest time. */
#include "pipeline/pipeline.h"

#include <string.h>

/* The slots while they are given, one action after the other. */
struct giving {
  struct rank_slots slots;
  struct list free; /* the one that has been free for the longest time is the first */
  struct list had;  /* by slot: bits of the first and the last stage */
};

static int outer_stage(int stage)
{
  return (stage == 0) | (stage == graph->stages->n - 1) << 1;
}

static int take_slot(struct giving *g, int stage)
{
  const int outer = outer_stage(stage);
  int best = NONE;
  for (int k = 0; k < g->free.n - graph->stages->spare_slots; k++) {
    const bool suits = g->had.at[g->free.at[k]] == outer;
    if (best == NONE || suits) best = k;
    if (suits) break;
  }
  if (best == NONE) {
    add(&g->had, outer);
    return g->slots.n++;
  }
  const int slot = g->free.at[best];
  int *at = &g->free.at[best];
  memmove(at, at + 1, (size_t)(--g->free.n - best) * sizeof *at);
  g->had.at[slot] |= outer;
  return slot;
}

static int microbatches_of(const struct actions *actions)
{
  int n = 0;
  for (int i = 0; i < actions->n; i++)
    if (actions->at[i].microbatch >= n) n = actions->at[i].microbatch + 1;
  return n;
}

/* The tables of the stages that the actions name. */
static struct giving begin_giving(const struct actions *actions)
{
  const size_t stages = (size_t)graph->stages->n, n = (size_t)microbatches_of(actions);
  struct giving g = {0};
  g.slots.ends = alloc(stages * sizeof *g.slots.ends);
  g.slots.of = alloc(stages * sizeof *g.slots.of);
  g.slots.most = alloc(stages * sizeof *g.slots.most);
  g.slots.microbatches = (int)n;
  for (int i = 0; i < actions->n; i++) {
    const int stage = actions->at[i].stage;
    if (g.slots.of[stage]) continue;
    add(&g.slots.stages, stage);
    g.slots.of[stage] = alloc(n * sizeof(int));
    g.slots.ends[stage] = alloc(n * sizeof(int));
    for (size_t m = 0; m < n; m++) g.slots.of[stage][m] = NONE;
  }
  return g;
}

struct rank_slots slots_of_rank(const struct actions *actions)
{
  struct giving g = begin_giving(actions);
  int *last = alloc((size_t)graph->stages->n * sizeof *last);
  int *now = alloc((size_t)graph->stages->n * sizeof *now); /* by stage: its slots taken */
  for (int k = 0; k < g.slots.stages.n; k++)
    last[g.slots.stages.at[k]] = last_stage_with(g.slots.stages.at[k]);
  for (int give = 0; give < 2; give++)
    for (int i = 0; i < actions->n; i++) {
      const struct action *a = &actions->at[i];
      if (give && a->kind == ACTION_F) {
        g.slots.of[a->stage][a->microbatch] = take_slot(&g, a->stage);
        if (++now[a->stage] > g.slots.most[a->stage]) g.slots.most[a->stage] = now[a->stage];
      }
      for (int k = 0; k < g.slots.stages.n; k++) {
        const int s = g.slots.stages.at[k];
        if (a->stage < s || a->stage > last[s]) continue;
        int *end = &g.slots.ends[s][a->microbatch], slot = g.slots.of[s][a->microbatch];
        if (!give) *end = i;
        if (!give || *end != i || slot == NONE) continue;
        add(&g.free, slot);
        now[s]--;
      }
    }
  return g.slots;
}

struct rank_slots slots_here(void)
{
  const struct actions actions = actions_here();
  return slots_of_rank(&actions);
}

int64_t *slot_begins(const struct rank_slots *slots, const struct slots *of_stage)
{
  int64_t *begin = alloc(((size_t)slots->n + 1) * sizeof *begin);
  for (int k = 0; k < slots->stages.n; k++) {
    const int s = slots->stages.at[k];
    for (int m = 0; m < slots->microbatches; m++) {
      const int slot = slots->of[s][m];
      if (slot != NONE && begin[slot + 1] < of_stage[s].bytes) begin[slot + 1] = of_stage[s].bytes;
    }
  }
  for (int k = 0; k < slots->n; k++) begin[k + 1] += begin[k];
  return begin;
}

int64_t bytes_before_stage(int stage)
{
  int64_t at = 0;
  for (int s = 0; s < stage; s++)
    if (is_stage_here(s)) at += graph->memory->slots[s].bytes;
  return at;
}

int64_t most_in_flight(const struct rank_slots *slots, const struct actions *actions,
                       const int64_t *each)
{
  if (slots->stages.n == 1) return slots->n * each[slots->stages.at[0]];
  int64_t now = 0, most = 0;
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    if (a->kind == ACTION_F) now += each[a->stage];
    if (now > most) most = now;
    for (int k = 0; k < slots->stages.n; k++) {
      const int s = slots->stages.at[k];
      if (slots->of[s][a->microbatch] != NONE && slots->ends[s][a->microbatch] == i) now -= each[s];
    }
  }
  return most;
}
