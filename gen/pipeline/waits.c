/* waits.c: whether the ranks of a pipeline wait for each other forever, and the number of slots
   with which they do not.

   A rank goes through its actions in their order. An action begins when its inputs were sent, and
   sends when it has run. A sender does not wait; but a forward reuses a slot of memory, and so
   begins when all values sent from it have been received: by the actions that read them. With only
   as many slots as micro-batches in flight, ranks may wait forever: then each rank has some
   more. */
#include "pipeline/pipeline.h"

struct waiting {
  const struct pipeline *p;
  struct actions *actions;  /* by rank */
  bool *ran[STAGE_WORKS];   /* by stage and micro-batch */
  struct rank_slots *slots; /* by rank */
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

/* The action whose forward took the slot before, or NULL. */
static const struct action *slot_had(const struct waiting *w, int rank, int at)
{
  const struct action *a = w->actions[rank].at;
  int *const *of = w->slots[rank].of, slot = of[a[at].stage][a[at].microbatch];
  for (int i = at; i-- > 0;)
    if (a[i].kind == ACTION_F && of[a[i].stage][a[i].microbatch] == slot) return &a[i];
  return NULL;
}

static bool is_slot_free(const struct waiting *w, int rank, int at)
{
  const struct pipeline_stages *s = graph->stages;
  const struct action *had = slot_had(w, rank, at);
  for (int i = 0; i < s->nedge && had; i++) {
    const struct stage_edge *e = &s->edge[i];
    bool is_sent = e->from == had->stage && s->coordinate[e->to] != s->coordinate[had->stage];
    if (is_sent && !has_run(w, e->to, e->read, had->microbatch)) return false;
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
                      .slots = alloc((size_t)p->ranks * sizeof *w.slots)};
  for (enum stage_work work = 0; work < STAGE_WORKS; work++)
    w.ran[work] = alloc(microbatch_places(p) + 1);
  for (int r = 0; r < p->ranks; r++) {
    w.actions[r] = actions_of(p, r);
    w.slots[r] = slots_of_rank(&w.actions[r]);
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
  const int most = p->microbatches * (p->stages / p->ranks + 1);
  for (*spare = 0; *spare < most && stages_wait(p);) ++*spare;
}
