/* waits.c: whether the ranks of a pipeline wait for each other forever, and the number of slots
   with which they do not.

   A rank goes through its actions in their order. An action begins when its inputs were sent, and
   sends when it has run. A sender does not wait; but a forward reuses a slot of memory, and so
   begins when all values sent from it have been received: by the actions that read them. With only
   as many slots as micro-batches in flight, ranks may wait forever: then each stage has some
   more. */
#include "pipeline/pipeline.h"

struct waiting {
  const struct pipeline *p;
  struct actions *actions; /* by rank */
  bool *ran[STAGE_WORKS];  /* by stage and micro-batch */
  int **slot;              /* by stage, and action of its rank */
};

static bool has_run(const struct waiting *w, int stage, enum stage_work work, int microbatch)
{
  return w->ran[work][microbatch_place(w->p, stage, microbatch)];
}

bool does_work(enum action_kind kind, enum stage_work work)
{
  switch (work) {
  case STAGE_FORWARD:
    return kind == ACTION_F;
  case STAGE_BACKWARD:
    return kind == ACTION_B || kind == ACTION_I;
  default:
    return kind == ACTION_B || kind == ACTION_W;
  }
}

static bool is_made(const struct waiting *w, const struct action *a)
{
  const struct pipeline_stages *s = graph->stages;
  for (int i = 0; i < s->nedge; i++) {
    const struct stage_edge *e = &s->edge[i];
    if (e->to == a->stage && does_work(a->kind, e->read) &&
        !has_run(w, e->from, e->made, a->microbatch))
      return false;
  }
  if (a->kind == ACTION_F) return true;
  return has_run(w, a->stage, a->kind == ACTION_W ? STAGE_BACKWARD : STAGE_FORWARD, a->microbatch);
}

static bool is_slot_free(const struct waiting *w, int rank, int at)
{
  const struct pipeline_stages *s = graph->stages;
  const struct action *a = w->actions[rank].at;
  int stage = a[at].stage, had = NONE; /* the micro-batch that had the slot before */
  for (int i = at; i-- > 0 && had == NONE;)
    if (w->slot[stage][i] == w->slot[stage][at]) had = a[i].microbatch;
  for (int i = 0; i < s->nedge && had != NONE; i++) {
    const struct stage_edge *e = &s->edge[i];
    bool is_sent = e->from == stage && s->coordinate[e->to] != s->coordinate[stage];
    if (is_sent && !has_run(w, e->to, e->read, had)) return false;
  }
  return true;
}

/* Runs the rank's action if it can begin. */
static bool waits_run(struct waiting *w, int rank, int at)
{
  const struct action *a = &w->actions[rank].at[at];
  if (!is_made(w, a) || (a->kind == ACTION_F && !is_slot_free(w, rank, at))) return false;
  for (enum stage_work work = 0; work < STAGE_WORKS; work++)
    if (does_work(a->kind, work))
      w->ran[work][microbatch_place(w->p, a->stage, a->microbatch)] = true;
  return true;
}

static struct waiting waits_begin(const struct pipeline *p)
{
  struct waiting w = {.p = p,
                      .actions = alloc((size_t)p->ranks * sizeof *w.actions),
                      .slot = alloc((size_t)p->stages * sizeof *w.slot)};
  for (enum stage_work work = 0; work < STAGE_WORKS; work++)
    w.ran[work] = alloc(microbatch_places(p) + 1);
  for (int r = 0; r < p->ranks; r++) w.actions[r] = actions_of(p, r);
  for (int s = 0; s < p->stages; s++) {
    const struct actions *of = &w.actions[p->rank_of[s]];
    w.slot[s] = alloc((size_t)(of->n + 1) * sizeof **w.slot);
    slots_of_stage(of, s, w.slot[s]);
  }
  return w;
}

const char *stages_wait(const struct pipeline *p)
{
  struct waiting w = waits_begin(p);
  int *next = alloc((size_t)p->ranks * sizeof *next);
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < p->ranks; r++)
      while (next[r] < w.actions[r].n && waits_run(&w, r, next[r])) {
        next[r]++;
        moved = true;
      }
  }
  struct buffer b = {0};
  for (int r = 0; r < p->ranks; r++)
    if (next[r] < w.actions[r].n)
      put(&b, "%srank %d in %s", b.length ? ", " : "", r, action_text(&w.actions[r].at[next[r]]));
  return b.length ? text("these wait for each other: %s", b.text) : NULL;
}

void find_spare_slots(const struct pipeline *p)
{
  int *spare = &graph->stages->spare_slots;
  for (*spare = 0; *spare < p->microbatches && stages_wait(p);) ++*spare;
}
