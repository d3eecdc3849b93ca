/* recomputation.c: what the backward makes again so that a rank's program fits in its memory, and
   as little as that needs.

   Takes   the flat program of the graph's ranks before the pass `recompute`, the passes that come
           next, and the plan's checkpoint = {memory = ...}.
   Leaves  the level of each module of a list (graph_passes/recompute.c), and what it costs in
           words.

   Levels whose least cuts are equal count once. Of n levels and m modules there are n * m + 1
   places: at each one more module has the next level. The memory falls from place to place, and the
   time rises: the first place that fits is found with the rest of the passes for each try. */
#include "driver/driver.h"

#include <math.h>
#include <string.h>

/* The places, and those that are tried. */
struct places {
  struct list modules;
  int nlevel, level[MOST_AGAIN + 1];
  void (*passes)(void);
  int64_t limit;
};

static int last_place(const struct places *p)
{
  return (p->nlevel - 1) * p->modules.n;
}

static void take_place(const struct places *p, int place)
{
  for (int k = 0; k < p->modules.n; k++) {
    const int level = place / p->modules.n + (k < place % p->modules.n);
    graph->module[p->modules.at[k]].again = p->level[level];
  }
}

static struct started_trial begin_place(const struct places *p, int place)
{
  take_place(p, place);
  return begin_trial_of(p->passes);
}

static struct outcome try_place(const struct places *p, int place)
{
  return end_trial(begin_place(p, place));
}

/* In a mesh that states no limit: no pass saves memory for it at the price of time. */
static struct outcome try_freely(const struct places *p, int place)
{
  const int64_t limit = graph->mesh.memory;
  graph->mesh.memory = 0;
  const struct outcome o = try_place(p, place);
  graph->mesh.memory = limit;
  return o;
}

static bool fits(const struct places *p, const struct outcome *o)
{
  return o->ended && o->memory <= p->limit;
}

/* The levels whose cuts a trial computes. */
static struct {
  int first, last, step;
} asked;

static void cut_levels(void)
{
  const struct list modules = modules_with_levels();
  for (int level = asked.first; level <= asked.last; level += asked.step) {
    for (int k = 0; k < modules.n; k++) graph->module[modules.at[k]].again = level;
    note_level(level, hash_of_levels());
  }
}

static struct started_trial begin_cuts(int first, int last, int step)
{
  asked.first = first;
  asked.last = last;
  asked.step = step;
  return begin_trial_of(cut_levels);
}

enum { COARSE = 16, PARTS = MOST_AGAIN / COARSE };

/* The levels between two coarse ones, unless the cuts of these are equal. */
static struct started_trial begin_part(const struct outcome *coarse, int k)
{
  if (k == PARTS || coarse->hash[k * COARSE] == coarse->hash[(k + 1) * COARSE])
    return (struct started_trial){.process = NONE};
  return begin_cuts(k * COARSE + 1, (k + 1) * COARSE, 1);
}

/* The first of the levels with equal cuts, in order: a level makes again what the one before does,
   so two with equal cuts have none between them that differs. Cuts take memory, which a process of
   some of them gives back: two at once. */
static void list_levels(struct places *p)
{
  const struct outcome coarse = end_trial(begin_cuts(0, MOST_AGAIN, COARSE));
  p->level[p->nlevel++] = 0;
  if (!coarse.ended || !p->modules.n) return;
  struct started_trial run[PARTS + 1] = {begin_part(&coarse, 0)};
  for (int k = 0; k < PARTS; k++) {
    run[k + 1] = begin_part(&coarse, k + 1);
    const struct outcome fine = end_trial(run[k]);
    uint64_t before = coarse.hash[k * COARSE];
    for (int level = k * COARSE + 1; fine.ended && level <= (k + 1) * COARSE; level++) {
      if (fine.hash[level] != before) p->level[p->nlevel++] = level;
      before = fine.hash[level];
    }
  }
}

/* Places between which memory passes the limit. */
struct crossing {
  int low, high;                   /* that does not fit, that fits */
  int64_t low_memory, high_memory; /* 0: not known */
};

static void try_between(const struct places *p, struct crossing *b, int place)
{
  const struct outcome o = try_freely(p, place);
  const bool is_high = fits(p, &o);
  *(is_high ? &b->high : &b->low) = place;
  *(is_high ? &b->high_memory : &b->low_memory) = o.ended ? o.memory : 0;
}

/* The place between them at which a line has the limit. */
static int on_line(const struct places *p, const struct crossing *b)
{
  const double drop = (double)(b->low_memory - b->high_memory);
  const double part = (double)(b->low_memory - p->limit) / drop;
  const int place = b->low + (int)ceil(part * (b->high - b->low));
  return place <= b->low ? b->low + 1 : place >= b->high ? b->high - 1 : place;
}

/* The first place that fits. First whole levels are halved. Between two of them the memory falls
   nearly on a line: it is halved only where a place on the line left more than half. */
static int first_that_fits(const struct places *p, const struct outcome *without)
{
  struct crossing b = {0, last_place(p), without->memory, 0};
  while (b.high - b.low > p->modules.n)
    try_between(p, &b, b.low + (b.high - b.low) / p->modules.n / 2 * p->modules.n);
  for (bool halves = false; b.high - b.low > 1;) {
    const int all = b.high - b.low;
    const bool is_known = b.low_memory > 0 && b.high_memory > 0 && b.low_memory > b.high_memory;
    try_between(p, &b, halves || !is_known ? b.low + all / 2 : on_line(p, &b));
    halves = b.high - b.low > all / 2;
  }
  return b.high;
}

/* The quickest of the places from that one on, where the passes know the limit. They may save
   memory just before it. */
static int quickest_from(const struct places *p, int place, struct outcome *best)
{
  enum { TRIED = 3 };
  int chosen = place;
  struct started_trial run[TRIED];
  const int n = last_place(p) - place + 1 < TRIED ? last_place(p) - place + 1 : TRIED;
  for (int i = 0; i < n; i++) run[i] = begin_place(p, place + i);
  for (int k = place; k < place + n; k++) {
    const struct outcome o = end_trial(run[k - place]);
    if (!fits(p, &o) || (fits(p, best) && best->seconds <= o.seconds)) continue;
    *best = o;
    chosen = k;
  }
  return chosen;
}

static _Noreturn void refuse(const struct places *p, const struct outcome *all)
{
  plan_error(
      plan_options->train_line,
      "checkpoint = {memory = ...}: a rank has %s, and needs %s%s. To make it fit: more ranks "
      "to cut it over, or a smaller batch",
      size_text(p->limit), size_text(all->memory),
      p->modules.n ? " even if all that it can is made again in the backward"
                   : "; only modules of an nn.ModuleList are made again in the backward");
}

static const char *cost_text(const struct places *p, const struct outcome *without,
                             const struct outcome *with)
{
  struct buffer b = {0};
  put(&b, "; a rank needs %s, of %s", size_text(with->memory), size_text(p->limit));
  if (!without->ended || with->memory >= without->memory) return b.text;
  put(&b, ", %s less than if only cheap work were made again",
      size_text(without->memory - with->memory));
  put(&b, "; a step takes %s", duration_text(with->seconds));
  if (with->seconds > without->seconds)
    put(&b, ", %s more", duration_text(with->seconds - without->seconds));
  return b.text;
}

/* --explain-cost: the last level that modules have. */
static const char SUBJECT[] = "what the backward makes again, in all layers";

static const char *place_text(const struct places *p, int place)
{
  if (!place) return "only cheap work";
  if (place == last_place(p)) return "all that can be";
  return text("%d of %d modules' levels", place, last_place(p));
}

static void note_recomputation(const struct places *p, int place)
{
  bool is_asked = false;
  for (int k = 0; k < p->modules.n; k++) is_asked |= is_module_explained(p->modules.at[k]);
  for (int i = 0; i < graph->nvalue && !is_asked; i++)
    is_asked = graph->value[i].op != NONE && is_value_explained(i);
  if (!is_asked) return;
  struct alternative list[] = {{place_text(p, 0), NONE, NONE},
                               {place_text(p, place), NONE, NONE},
                               {place_text(p, last_place(p)), NONE, NONE}};
  note_decision("recomputation", SUBJECT, list, 3, !place ? 0 : place < last_place(p) ? 1 : 2);
}

/* Of a candidate of a search: where it goes what was decided about this place of its pipeline. */
static struct levels *levels_of_candidate(void)
{
  struct decided *decided = decided_of_candidate();
  const int here = graph->stages ? graph->stages->here : 0;
  return decided && here >= 0 && here < MOST_PLACES ? &decided->of_place[here] : NULL;
}

static bool take_levels(const struct levels *known, const struct list *modules)
{
  if (!known || !known->is_known) return false;
  graph->recomputation = "";
  for (int k = 0; k < modules->n; k++)
    graph->module[modules->at[k]].again = k < known->n ? known->next : known->level;
  return true;
}

static void note_levels(struct levels *to, const struct places *p, int place)
{
  if (!to || !p->modules.n) return;
  const int level = place / p->modules.n, n = place % p->modules.n;
  *to = (struct levels){true, p->level[level], n, p->level[level + (n > 0)]};
}

void decide_recomputation(void (*passes)(void))
{
  if (!plan_options->within || graph->loss == NONE || graph->recomputation) return;
  struct levels *known = levels_of_candidate();
  struct places p = {.modules = modules_with_levels(), .passes = passes};
  if (take_levels(known, &p.modules)) return;
  p.limit = plan_options->within > 0 ? plan_options->within : memory_limit();
  if (!p.limit)
    plan_error(plan_options->train_line,
               "checkpoint = {memory = ...}: the memory of a rank is not known; say it, as in "
               "memory = \"80GiB\", or a device or a cluster");
  graph->recomputation = ""; /* the trials decide nothing */
  list_levels(&p);
  const char *forced = forced_way_of("recomputation", SUBJECT);
  if (forced && strcmp(forced, "all that can be") && strcmp(forced, "only cheap work"))
    forced = NULL;
  if (forced) {
    take_place(&p, *forced == 'a' ? last_place(&p) : 0);
    return;
  }
  const struct outcome without = try_freely(&p, 0);
  struct outcome best = without;
  int place = 0;
  if (!fits(&p, &without)) {
    place = first_that_fits(&p, &without);
    best = (struct outcome){0};
    place = quickest_from(&p, place, &best);
    if (!best.ended) best = try_place(&p, place = last_place(&p));
    if (!best.ended) return; /* the passes will say why */
    if (!fits(&p, &best)) refuse(&p, &best);
  }
  take_place(&p, place);
  note_levels(known, &p, place);
  if (are_decisions_explained()) note_recomputation(&p, place);
  graph->recomputation = cost_text(&p, &without, &best);
}
