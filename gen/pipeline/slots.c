/* slots.c: the slots of the micro-batches that a stage has in flight: of which the forward has
   begun, and the backward not ended.

   A forward takes a slot anew when what was sent from there has been received. With as few slots as
   there are micro-batches in flight, ranks may wait for each other forever: then each stage has
   some more, and takes that one anew which has been free for the longest time. */
#include "pipeline/pipeline.h"

static int microbatches_of(const struct actions *actions)
{
  int n = 0;
  for (int i = 0; i < actions->n; i++)
    if (actions->at[i].microbatch >= n) n = actions->at[i].microbatch + 1;
  return n;
}

int slots_of_stage(const struct actions *actions, int stage, int *slot)
{
  const int n = microbatches_of(actions), last_stage = last_stage_with(stage);
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

/* Which forwards and backwards have run, by stage and micro-batch; and of each forward the
   micro-batch that had its slot, or NONE. */
struct ran {
  const struct pipeline *p;
  bool *forward, *backward;
  int *had;
};

static bool can_begin(const struct ran *r, const struct action *a)
{
  const int s = a->stage;
  const size_t here = microbatch_place(r->p, s, a->microbatch), row = (size_t)r->p->microbatches;
  if (a->kind == ACTION_W) return true;
  if (a->kind != ACTION_F) return s + 1 == r->p->stages || r->backward[here + row];
  if (s == 0) return true;
  const int had = r->had[here];
  return r->forward[here - row] && (had == NONE || r->p->rank_of[s] == r->p->rank_of[s - 1] ||
                                    r->backward[microbatch_place(r->p, s - 1, had)]);
}

static bool ranks_end(const struct ran *r, const struct actions *actions)
{
  const int ranks = r->p->ranks;
  int *at = alloc((size_t)ranks * sizeof *at), left = 0;
  for (int k = 0; k < ranks; k++) left += actions[k].n;
  for (int before = 0; before != left;) {
    before = left;
    for (int k = 0; k < ranks; k++)
      for (; at[k] < actions[k].n && can_begin(r, &actions[k].at[at[k]]); at[k]++, left--) {
        const struct action *a = &actions[k].at[at[k]];
        if (a->kind != ACTION_W)
          (a->kind == ACTION_F ? r->forward
                               : r->backward)[microbatch_place(r->p, a->stage, a->microbatch)] =
              true;
      }
  }
  return left == 0;
}

static void find_what_had_slots(const struct ran *r, const struct actions *actions, int stage)
{
  int *slot = alloc((size_t)(actions->n + 1) * sizeof *slot);
  int *has = alloc((size_t)(r->p->microbatches + 1) * sizeof *has);
  slots_of_stage(actions, stage, slot);
  for (int k = 0; k < r->p->microbatches; k++) has[k] = NONE;
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    if (a->stage != stage || a->kind != ACTION_F) continue;
    r->had[microbatch_place(r->p, stage, a->microbatch)] = has[slot[i]];
    has[slot[i]] = a->microbatch;
  }
}

static bool is_enough(const struct pipeline *p, const struct actions *actions)
{
  const size_t places = microbatch_places(p) + 1;
  const struct ran r = {p, alloc(places), alloc(places), alloc(places * sizeof *r.had)};
  for (int s = 0; s < p->stages; s++) find_what_had_slots(&r, &actions[p->rank_of[s]], s);
  return ranks_end(&r, actions);
}

void find_spare_slots(const struct pipeline *p)
{
  int *spare = &graph->stages->spare_slots;
  struct actions *actions = alloc((size_t)p->ranks * sizeof *actions);
  for (int r = 0; r < p->ranks; r++) actions[r] = actions_of(p, r);
  for (*spare = 0; *spare < p->microbatches && !is_enough(p, actions);) ++*spare;
}
