/* prove_stages.c: proves that the stages of a pipeline do not wait for each other forever.

   A rank goes through its actions in their order. An action begins when what it receives was sent,
   and sends when it has run. A sender does not wait; but a forward takes a slot of memory anew, and
   so begins when all that was sent from there has been received: by the action that reads it. */
#include "check/check.h"

struct proof {
  const struct pipeline *p;
  struct actions *actions; /* by rank */
  bool *ran[STAGE_WORKS];  /* by stage and micro-batch */
  int **slot;              /* by stage, and action of its rank */
};

static bool has_run(const struct proof *f, int stage, enum stage_work work, int microbatch)
{
  return f->ran[work][microbatch_place(f->p, stage, microbatch)];
}

/* What an action does. */
static bool does(enum action_kind kind, enum stage_work work)
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

static bool is_made(const struct proof *f, const struct action *a)
{
  const struct pipeline_stages *s = graph->stages;
  for (int i = 0; i < s->nedge; i++) {
    const struct stage_edge *e = &s->edge[i];
    if (e->to == a->stage && does(a->kind, e->read) && !has_run(f, e->from, e->made, a->microbatch))
      return false;
  }
  if (a->kind == ACTION_F) return true;
  return has_run(f, a->stage, a->kind == ACTION_W ? STAGE_BACKWARD : STAGE_FORWARD, a->microbatch);
}

/* The micro-batch that had the slot before, or NONE. */
static int slot_had(const struct proof *f, int rank, int at)
{
  const struct action *a = f->actions[rank].at;
  const int *slot = f->slot[a[at].stage];
  for (int i = at; i-- > 0;)
    if (slot[i] == slot[at]) return a[i].microbatch;
  return NONE;
}

static bool is_slot_free(const struct proof *f, int rank, int at)
{
  const struct pipeline_stages *s = graph->stages;
  int stage = f->actions[rank].at[at].stage, had = slot_had(f, rank, at);
  for (int i = 0; i < s->nedge && had != NONE; i++) {
    const struct stage_edge *e = &s->edge[i];
    bool is_sent = e->from == stage && s->coordinate[e->to] != s->coordinate[stage];
    if (is_sent && !has_run(f, e->to, e->read, had)) return false;
  }
  return true;
}

/* Runs the rank's action if it can begin. */
static bool run(struct proof *f, int rank, int at)
{
  const struct action *a = &f->actions[rank].at[at];
  if (!is_made(f, a) || (a->kind == ACTION_F && !is_slot_free(f, rank, at))) return false;
  for (enum stage_work work = 0; work < STAGE_WORKS; work++)
    if (does(a->kind, work)) f->ran[work][microbatch_place(f->p, a->stage, a->microbatch)] = true;
  return true;
}

static struct proof begin(const struct pipeline *p)
{
  struct proof f = {.p = p,
                    .actions = alloc((size_t)p->ranks * sizeof *f.actions),
                    .slot = alloc((size_t)p->stages * sizeof *f.slot)};
  for (enum stage_work work = 0; work < STAGE_WORKS; work++)
    f.ran[work] = alloc(microbatch_places(p) + 1);
  for (int r = 0; r < p->ranks; r++) f.actions[r] = actions_of(p, r);
  for (int s = 0; s < p->stages; s++) {
    const struct actions *of = &f.actions[p->rank_of[s]];
    f.slot[s] = alloc((size_t)(of->n + 1) * sizeof **f.slot);
    slots_of_stage(of, s, f.slot[s]);
  }
  return f;
}

const char *stages_wait(const struct pipeline *p)
{
  struct proof f = begin(p);
  int *next = alloc((size_t)p->ranks * sizeof *next);
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < p->ranks; r++)
      while (next[r] < f.actions[r].n && run(&f, r, next[r])) {
        next[r]++;
        moved = true;
      }
  }
  struct buffer b = {0};
  for (int r = 0; r < p->ranks; r++)
    if (next[r] < f.actions[r].n)
      put(&b, "%srank %d in %s", b.length ? ", " : "", r, action_text(&f.actions[r].at[next[r]]));
  return b.length ? text("these wait for each other: %s", b.text) : NULL;
}
