/* orders.c: the order in which each rank computes, for each of the schedules that
   torch.distributed.pipelining has. Sources: GPipe (Huang et al. 2019), 1F1B and its interleaved
   form (Narayanan et al. 2021), breadth first (Lamy-Poirier 2023), zero bubble (Qi et al. 2023,
   2024), DualPipeV (DeepSeek 2025). Idle steps are where these schedules have them if all steps
   take the same time. */
#include "pipeline/pipeline.h"

#include <ctype.h>
#include <string.h>

/* The parameters of an order. */
struct order_shape {
  int ranks, local, n; /* ranks, stages of a rank, micro-batches */
};

static int orders_last_stage(const struct order_shape *s)
{
  return s->ranks * s->local - 1;
}

static void put_one(struct actions *list, enum action_kind kind, int stage, int microbatch)
{
  put_action(list, (struct action){.kind = kind, .stage = stage, .microbatch = microbatch});
}

static void idle(struct actions *list, int steps)
{
  for (int i = 0; i < steps; i++) put_one(list, ACTION_IDLE, 0, 0);
}

/* Down the ranks and up again: rank r has the stages r and 2 * ranks - 1 - r. */
static bool is_v(const struct order_shape *s, int rank, int stage)
{
  return stage == rank || stage == orders_last_stage(s) - rank;
}

static bool is_loop(const struct order_shape *s, int rank, int stage)
{
  return stage % s->ranks == rank;
}

/* ------------------------------------------------------------------------------------ no rounds */

static void gpipe(const struct order_shape *s, int rank, struct actions *list)
{
  idle(list, rank);
  for (int m = 0; m < s->n; m++) put_one(list, ACTION_F, rank, m);
  idle(list, 3 * (s->ranks - 1 - rank));
  for (int m = 0; m < s->n; m++) put_one(list, ACTION_B, rank, m);
}

/* With fewer micro-batches than ranks, which PyTorch refuses, the first ranks have no such round.
 */
static void one_f_one_b(const struct order_shape *s, int rank, struct actions *list)
{
  const int behind = s->ranks - 1 - rank, ahead = behind < s->n ? behind : s->n;
  idle(list, rank);
  for (int m = 0; m < ahead; m++) put_one(list, ACTION_F, rank, m);
  idle(list, 2 * behind);
  for (int m = ahead; m < s->n; m++) {
    put_one(list, ACTION_F, rank, m);
    put_one(list, ACTION_B, rank, m - ahead);
  }
  for (int m = s->n - ahead; m < s->n; m++) {
    idle(list, m > 0);
    put_one(list, ACTION_B, rank, m);
  }
}

static void looped_bfs(const struct order_shape *s, int rank, struct actions *list)
{
  idle(list, rank);
  for (int k = 0; k < s->local; k++)
    for (int m = 0; m < s->n; m++) put_one(list, ACTION_F, k * s->ranks + rank, m);
  idle(list, 2 * (s->ranks - 1 - rank));
  for (int k = s->local - 1; k >= 0; k--)
    for (int m = s->n - 1; m >= 0; m--) put_one(list, ACTION_B, k * s->ranks + rank, m);
}

/* ---------------------------------------------------------------------------------- interleaved */

/* The state of a rank that goes through its stages in rounds of micro-batches. */
struct rounds {
  const struct order_shape *s;
  struct actions *list;
  int rank, each; /* micro-batches of a round */
  int f, i, w;    /* steps so far of each kind, over all its stages */
};

/* The k-th step of a direction: `each` micro-batches of one stage, then of the next. */
static void orders_put_step(struct rounds *r, enum action_kind kind, int k)
{
  const int local = r->s->local, group = k / r->each, round = group / local;
  const int stage = kind == ACTION_F ? group % local : local - 1 - group % local;
  put_one(r->list, kind, stage * r->s->ranks + r->rank, round * r->each + k % r->each);
}

static struct rounds rounds_of(const struct order_shape *s, int rank, struct actions *list)
{
  const int rounds = s->n / s->ranks > 1 ? s->n / s->ranks : 1;
  return (struct rounds){.s = s, .list = list, .rank = rank, .each = s->n / rounds};
}

static int warm_up(const struct rounds *r, int by_hop)
{
  const int all = r->s->n * r->s->local;
  const int steps = (r->s->local - 1) * r->each + by_hop * (r->s->ranks - 1 - r->rank);
  return steps < all ? steps : all;
}

static void interleaved_1f1b(const struct order_shape *s, int rank, struct actions *list)
{
  struct rounds r = rounds_of(s, rank, list);
  const int all = s->n * s->local, warm = warm_up(&r, 2);
  idle(list, rank);
  while (r.f < warm) orders_put_step(&r, ACTION_F, r.f++);
  /* Until the first backward has come here. */
  if (warm > 0) idle(list, s->local * s->ranks + 2 * (s->ranks - 1 - rank) - (warm + rank));
  while (r.f < all) {
    orders_put_step(&r, ACTION_F, r.f++);
    orders_put_step(&r, ACTION_B, r.i++);
  }
  while (r.i < all) {
    idle(list, 1);
    orders_put_step(&r, ACTION_B, r.i++);
  }
}

/* The weights' part of the backward stays behind by as many steps as there are ranks before. */
static void put_split_backward(struct rounds *r)
{
  orders_put_step(r, ACTION_I, r->i++);
  if (r->i > r->rank) orders_put_step(r, ACTION_W, r->w++);
}

static void interleaved_zero_bubble(const struct order_shape *s, int rank, struct actions *list)
{
  struct rounds r = rounds_of(s, rank, list);
  const int all = s->n * s->local, warm = warm_up(&r, 1);
  idle(list, rank);
  while (r.f < warm) orders_put_step(&r, ACTION_F, r.f++);
  if (warm > 0) idle(list, s->ranks - 1 - rank);
  while (r.f < all) {
    orders_put_step(&r, ACTION_F, r.f++);
    put_split_backward(&r);
  }
  while (r.i < all) put_split_backward(&r);
  while (r.w < all) orders_put_step(&r, ACTION_W, r.w++);
}

/* ------------------------------------------------------------------------------------- V shapes */

/* A rank with a stage on the way down (0) and one on the way up (1). */
struct two_stages {
  struct actions *list;
  int stage[2];
  int f[2], i[2], w[2]; /* the number of each that the list has */
  struct list waiting;  /* stages (0 or 1) whose W is put off, in the order of their I */
};

static struct two_stages two_stages(const struct order_shape *s, int rank, struct actions *list)
{
  return (struct two_stages){.list = list, .stage = {rank, orders_last_stage(s) - rank}};
}

static void put_f(struct two_stages *t, int which)
{
  put_one(t->list, ACTION_F, t->stage[which], t->f[which]++);
}

static void put_i(struct two_stages *t, int which)
{
  put_one(t->list, ACTION_I, t->stage[which], t->i[which]++);
}

static void put_w(struct two_stages *t, int which)
{
  put_one(t->list, ACTION_W, t->stage[which], t->w[which]++);
}

static void put_iw(struct two_stages *t, int which)
{
  put_i(t, which);
  put_w(t, which);
}

/* Made for so many micro-batches that the pipeline is full; those that are too many become idle. */
static void zbv_zero_bubble(const struct order_shape *s, int rank, struct actions *list)
{
  struct two_stages t = two_stages(s, rank, list);
  const int full = 2 * s->ranks - 1, n = s->n > full ? s->n : full;
  idle(list, rank);
  for (int k = 0; k < 2 * (s->ranks - rank) - 1; k++) put_f(&t, 0);
  for (int k = 0; k < rank; k++) put_f(&t, 1), put_f(&t, 0);
  for (int k = 0; k < s->ranks - rank; k++) put_f(&t, 1), put_iw(&t, 1);
  while (t.f[1] < t.f[0] || t.f[0] < n) {
    if (t.f[0] < n) put_f(&t, 0);
    put_iw(&t, 0);
    put_f(&t, 1);
    put_iw(&t, 1);
  }
  for (int k = 0; k < rank; k++) put_i(&t, 0), put_i(&t, 1);
  for (int k = 0; k < s->ranks - rank; k++) put_i(&t, 0), put_w(&t, 0);
  while (t.w[1] < t.i[1]) put_w(&t, 1);
  while (t.w[0] < t.i[0]) put_w(&t, 0);
  for (int k = 0; k < list->n; k++)
    if (list->at[k].microbatch >= s->n) list->at[k] = (struct action){.kind = ACTION_IDLE};
}

static void put_b(struct two_stages *t, int which)
{
  put_one(t->list, ACTION_B, t->stage[which], t->i[which]++);
  t->w[which]++;
}

static void put_overlap(struct two_stages *t, int forward)
{
  const int backward = 1 - forward;
  put_one(t->list, ACTION_OVERLAP, t->stage[forward], t->f[forward]++);
  struct action *a = &t->list->at[t->list->n - 1];
  a->other_stage = t->stage[backward];
  a->other_microbatch = t->i[backward]++;
  t->w[backward]++;
}

/* A backward whose W waits, if `is_split`. */
static void put_backward(struct two_stages *t, int which, bool is_split)
{
  if (!is_split) {
    put_b(t, which);
    return;
  }
  add(&t->waiting, which);
  add(&t->waiting, t->i[which]);
  put_i(t, which);
}

/* The W that has waited longest. */
static void put_waiting(struct two_stages *t)
{
  if (t->waiting.n == 0) return;
  const int which = t->waiting.at[0];
  put_one(t->list, ACTION_W, t->stage[which], t->waiting.at[1]);
  t->w[which]++;
  t->waiting.n -= 2;
  memmove(t->waiting.at, t->waiting.at + 2, (size_t)t->waiting.n * sizeof *t->waiting.at);
}

static void dualpipe_v(const struct order_shape *s, int rank, struct actions *list)
{
  struct two_stages t = two_stages(s, rank, list);
  const int after = s->ranks - 1 - rank; /* ranks */
  for (int k = 0; k < 2 * after; k++) put_f(&t, 0);
  for (int k = 0; k < rank + 1; k++) put_f(&t, 0), put_f(&t, 1);
  for (int k = 0; k < after; k++) {
    put_backward(&t, 1, true);
    put_waiting(&t);
    put_f(&t, 1);
  }
  for (int k = 0; k < s->n - 2 * s->ranks + rank + 1; k++) {
    /* The last rank's first pair has nothing to run beside. */
    if (k == 0 && after == 0)
      put_f(&t, 0), put_b(&t, 1);
    else
      put_overlap(&t, 0);
    put_overlap(&t, 1);
  }
  for (int k = 0; k < after; k++) put_b(&t, 1), put_overlap(&t, 1);
  /* The second half of the last backwards is split. */
  const int first_split = (rank + 1) / 2 * 2 + (rank % 2 == 0);
  for (int k = 0; k < 2 * (rank + 1); k++) put_backward(&t, k % 2 == 0, k >= first_split);
  for (int k = 0; k < after; k++) {
    put_waiting(&t);
    put_backward(&t, 0, true);
  }
  for (int k = 0; k < rank + 1; k++) put_waiting(&t);
}

/* -------------------------------------------------------------------------------- the schedules */

static const char *needs_one_stage(const struct order_shape *s)
{
  return s->local == 1 ? NULL : text("it has one stage on each rank, not %d", s->local);
}

static const char *needs_whole_rounds(const struct order_shape *s)
{
  const int rounds = s->n / s->ranks;
  if (rounds < 2 || s->n % rounds == 0) return NULL;
  return text(
      "its %d rounds (micro-batches over ranks) must have equal numbers of micro-batches: %d "
      "do not divide by %d",
      rounds, s->n, rounds);
}

static const char *needs_two_stages(const struct order_shape *s)
{
  return s->local == 2 ? NULL : text("it has two stages on each rank, not %d", s->local);
}

static const char *needs_a_full_v(const struct order_shape *s)
{
  if (s->local != 2 || s->n >= 2 * s->ranks) return needs_two_stages(s);
  return text("it needs at least as many micro-batches as stages: %d, not %d", 2 * s->ranks, s->n);
}

static const char *needs_nothing(const struct order_shape *s)
{
  (void)s;
  return NULL;
}

static const struct schedule_row {
  const char *name;
  const char *(*why_not)(const struct order_shape *s);
  bool (*has)(const struct order_shape *s, int rank, int stage);
  void (*order)(const struct order_shape *s, int rank, struct actions *list);
  bool waits;          /* a forward whose input is not there yet waits: idle steps are put in */
  bool is_for_several; /* with one stage of each rank it gains nothing on 1f1b or gpipe */
} schedules[] = {
    {"gpipe", needs_one_stage, is_loop, gpipe, false, false},
    {"1f1b", needs_one_stage, is_loop, one_f_one_b, false, false},
    {"interleaved_1f1b", needs_whole_rounds, is_loop, interleaved_1f1b, false, true},
    {"looped_bfs", needs_nothing, is_loop, looped_bfs, false, true},
    {"interleaved_zero_bubble", needs_whole_rounds, is_loop, interleaved_zero_bubble, true, false},
    {"zbv_zero_bubble", needs_two_stages, is_v, zbv_zero_bubble, false, false},
    {"dualpipe_v", needs_a_full_v, is_v, dualpipe_v, false, false},
};

enum { SCHEDULES = sizeof schedules / sizeof *schedules };

const char *pipeline_names(void)
{
  struct buffer b = {0};
  for (int i = 0; i < SCHEDULES; i++)
    put(&b, "%s%s", i == 0 ? "" : i + 1 < SCHEDULES ? ", " : " and ", schedules[i].name);
  return b.text;
}

/* Also as PyTorch writes it: in capitals, without the lines. */
static bool is_name_of(const char *name, const char *given)
{
  for (; *name; name++) {
    if (*name == '_' && *given != '_') continue;
    if (*name != *given && tolower((unsigned char)*given) != *name) return false;
    given++;
  }
  return !*given;
}

static const struct schedule_row *find_schedule(const char *name)
{
  for (int i = 0; i < SCHEDULES; i++)
    if (is_name_of(schedules[i].name, name)) return &schedules[i];
  return NULL;
}

bool is_schedule(const char *name)
{
  return find_schedule(name) != NULL;
}

int stages_implied(const char *name)
{
  const struct schedule_row *row = find_schedule(name);
  return row && row->has == is_v ? 2 : 1;
}

bool is_for_several_stages(const char *name)
{
  const struct schedule_row *row = find_schedule(name);
  return row && row->is_for_several;
}

/* All ranks go on step by step; one that must wait gets an idle step. */
static void put_waits(struct pipeline *p)
{
  bool *done = alloc(microbatch_places(p)), moves = true;
  struct actions *paced = alloc((size_t)p->ranks * sizeof *paced);
  int *at = alloc((size_t)p->ranks * sizeof *at);
  while (moves) {
    moves = false;
    for (int r = 0; r < p->ranks; r++) {
      if (at[r] == p->order[r].n) continue;
      moves = true;
      const struct action a = p->order[r].at[at[r]];
      /* The input of a forward was made in an earlier step, or is not there yet. */
      if (a.kind != ACTION_F || a.stage == 0 ||
          done[microbatch_place(p, a.stage - 1, a.microbatch)]) {
        put_action(&paced[r], a);
        at[r]++;
      } else {
        idle(&paced[r], 1);
      }
    }
    /* The next step may use the results of this one. */
    for (int r = 0; r < p->ranks; r++) {
      if (!paced[r].n) continue;
      const struct action *a = &paced[r].at[paced[r].n - 1];
      if (a->kind == ACTION_F) done[microbatch_place(p, a->stage, a->microbatch)] = true;
    }
  }
  p->order = paced;
}

const char *schedule_fault(const char *name, int ranks, int stages, int microbatches)
{
  const struct order_shape s = {ranks, stages, microbatches};
  const struct schedule_row *row = find_schedule(name);
  return row ? row->why_not(&s) : text("the schedules are %s", pipeline_names());
}

struct pipeline *pipeline_order(const char *name, int ranks, int stages, int microbatches,
                                const char **why)
{
  const struct order_shape s = {ranks, stages, microbatches};
  const struct schedule_row *row = find_schedule(name);
  *why = schedule_fault(name, ranks, stages, microbatches);
  if (*why) return NULL;
  struct pipeline *p = alloc(sizeof *p);
  *p = (struct pipeline){.ranks = ranks, .stages = ranks * stages, .microbatches = microbatches};
  p->rank_of = alloc((size_t)p->stages * sizeof *p->rank_of);
  p->order = alloc((size_t)ranks * sizeof *p->order);
  for (int r = 0; r < ranks; r++) {
    row->order(&s, r, &p->order[r]);
    for (int k = 0; k < p->stages; k++)
      if (row->has(&s, r, k)) p->rank_of[k] = r;
  }
  if (row->waits) put_waits(p);
  return p;
}
