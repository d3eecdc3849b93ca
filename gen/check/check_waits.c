/* check_waits.c: a part of prove.c: the ranks of a pipeline do not wait for each other forever.

   Takes   the actions of all ranks, the edges of the stages, and the slots that the program gives
           to micro-batches.
   Holds   no action waits for itself, directly or through others. An action waits for the action
           before it on its rank and for those that make the values that it reads; a forward waits
           for those that receive the values sent from its slot. An action that nobody does is
           waited for forever.

   waits.c, which gives a stage spare slots, runs the ranks against each other instead. */
#include "check/check.h"

/* An action of a rank, with a list of the actions that wait for it. */
struct waiting_action {
  int rank, waits_for; /* the number of those that have not run yet */
  int first;           /* the first of the waits for it; NONE */
  const struct action *action;
};

/* `later` waits for an action; the next one that does. */
struct wait {
  int later, next;
};

struct waits {
  const struct pipeline *p;
  struct actions *of_rank;
  int n, nwait, room;
  struct waiting_action *at;
  struct wait *wait;
  int *done_by[STAGE_WORKS]; /* by stage and micro-batch: the action that does it, or NONE */
};

bool action_does(enum action_kind kind, enum stage_work work)
{
  bool forward = kind == ACTION_F, whole = kind == ACTION_B;
  if (work == STAGE_FORWARD) return forward;
  return whole || kind == (work == STAGE_BACKWARD ? ACTION_I : ACTION_W);
}

static int done_by(const struct waits *w, enum stage_work work, int stage, int microbatch)
{
  return w->done_by[work][stage * w->p->microbatches + microbatch];
}

/* before NONE: forever. */
static void add_wait(struct waits *w, int later, int before)
{
  w->at[later].waits_for++;
  if (before == NONE) return;
  GROW(w->wait, w->nwait, w->room);
  w->wait[w->nwait] = (struct wait){later, w->at[before].first};
  w->at[before].first = w->nwait++;
}

static void add_actions(struct waits *w)
{
  const struct pipeline *p = w->p;
  int room = 0, places = p->stages * p->microbatches;
  for (enum stage_work work = 0; work < STAGE_WORKS; work++) {
    w->done_by[work] = alloc((size_t)(places + 1) * sizeof(int));
    for (int i = 0; i < places; i++) w->done_by[work][i] = NONE;
  }
  for (int r = 0; r < p->ranks; r++) {
    w->of_rank[r] = actions_of(p, r);
    for (int i = 0; i < w->of_rank[r].n; i++) {
      const struct action *a = &w->of_rank[r].at[i];
      GROW(w->at, w->n, room);
      for (enum stage_work work = 0; work < STAGE_WORKS; work++)
        if (action_does(a->kind, work))
          w->done_by[work][a->stage * p->microbatches + a->microbatch] = w->n;
      w->at[w->n++] = (struct waiting_action){r, 0, NONE, a};
    }
  }
}

/* The forward `at` takes a slot from which the work of `had` was sent to other ranks. */
static void add_receivers(struct waits *w, int at, const struct action *had)
{
  const struct pipeline_stages *s = graph->stages;
  for (int i = 0; i < s->nedge; i++) {
    const struct stage_edge *e = &s->edge[i];
    if (e->from == had->stage && s->coordinate[e->to] != s->coordinate[had->stage])
      add_wait(w, at, done_by(w, e->read, e->to, had->microbatch));
  }
}

/* `first` is the first of the rank's actions. */
static void add_slots(struct waits *w, int rank, int first)
{
  const struct actions *actions = &w->of_rank[rank];
  const struct rank_slots slots = slots_of_rank(actions);
  /* By slot: the action whose forward took it last. */
  const struct action **has = alloc((size_t)(slots.n + 1) * sizeof *has);
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    if (a->kind != ACTION_F) continue;
    const struct action **had = &has[slots.of[a->stage][a->microbatch]];
    if (*had) add_receivers(w, first + i, *had);
    *had = a;
  }
}

/* The first action of each rank that never runs. */
const char *waits_forever(const struct pipeline *p)
{
  struct waits w = {.p = p, .of_rank = alloc((size_t)p->ranks * sizeof *w.of_rank)};
  struct buffer b = {0};
  int *first = alloc((size_t)(p->ranks + 1) * sizeof *first);
  add_actions(&w);
  for (int i = w.n; i-- > 0;) first[w.at[i].rank] = i;
  for (int i = 0; i < w.n; i++) {
    const struct action *a = w.at[i].action;
    const struct pipeline_stages *s = graph->stages;
    if (i && w.at[i - 1].rank == w.at[i].rank) add_wait(&w, i, i - 1);
    for (int k = 0; k < s->nedge; k++)
      if (s->edge[k].to == a->stage && action_does(a->kind, s->edge[k].read))
        add_wait(&w, i, done_by(&w, s->edge[k].made, s->edge[k].from, a->microbatch));
    if (a->kind == ACTION_W) add_wait(&w, i, done_by(&w, STAGE_BACKWARD, a->stage, a->microbatch));
    if (a->kind != ACTION_F) add_wait(&w, i, done_by(&w, STAGE_FORWARD, a->stage, a->microbatch));
  }
  for (int r = 0; r < p->ranks; r++)
    if (w.of_rank[r].n) add_slots(&w, r, first[r]);
  /* Runs each action that waits for nothing, until no action is left that can run. */
  struct list ready = {0};
  for (int i = 0; i < w.n; i++)
    if (!w.at[i].waits_for) add(&ready, i);
  while (ready.n)
    for (int k = w.at[ready.at[--ready.n]].first; k != NONE; k = w.wait[k].next)
      if (!--w.at[w.wait[k].later].waits_for) add(&ready, w.wait[k].later);
  for (int i = 0; i < w.n; i++)
    if (w.at[i].waits_for && (i == first[w.at[i].rank] || !w.at[i - 1].waits_for))
      put(&b, "%srank %d in %s", b.length ? ", " : "", w.at[i].rank, action_text(w.at[i].action));
  return b.length ? text("these wait for each other: %s", b.text) : NULL;
}
