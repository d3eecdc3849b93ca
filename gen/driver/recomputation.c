/* recomputation.c: what the backward makes again so that a rank's program fits in its memory, and
   as little as that needs.

   Takes   the flat program of the graph's ranks before the pass `recompute`, the passes that come
           next, and the plan's checkpoint = {memory = ...}.
   Leaves  the level of each module of a list (graph_passes/recompute.c), and what it costs in
           words.

   Levels whose least cuts are equal count once. Of n levels and m modules there are n * m + 1
   places: at each one more module has the next level. The memory falls from place to place, and the
   time rises: the first place that fits is found by halving, with the rest of the passes for each
   try. */
#include "driver/driver.h"

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

static struct outcome try_place(const struct places *p, int place)
{
  take_place(p, place);
  return end_trial(begin_trial_of(p->passes));
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

static struct outcome outcome_of_cuts(int first, int last, int step)
{
  asked.first = first;
  asked.last = last;
  asked.step = step;
  return end_trial(begin_trial_of(cut_levels));
}

/* The first of the levels with equal cuts, in order: a level makes again what the one before does,
   so two with equal cuts have none between them that differs. Cuts take memory, which a process of
   some of them gives back. */
static void list_levels(struct places *p)
{
  enum { COARSE = 16 };
  const struct outcome coarse = outcome_of_cuts(0, MOST_AGAIN, COARSE);
  p->level[p->nlevel++] = 0;
  for (int from = 0; coarse.ended && p->modules.n && from < MOST_AGAIN; from += COARSE) {
    uint64_t before = coarse.hash[from];
    if (before == coarse.hash[from + COARSE]) continue;
    const struct outcome fine = outcome_of_cuts(from + 1, from + COARSE, 1);
    for (int level = from + 1; fine.ended && level <= from + COARSE; level++) {
      if (fine.hash[level] != before) p->level[p->nlevel++] = level;
      before = fine.hash[level];
    }
  }
}

/* The first place that fits, of those behind `low`, which does not; `high` is the last one. */
static int first_that_fits(const struct places *p, int low, int high)
{
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    const struct outcome o = try_freely(p, middle);
    *(fits(p, &o) ? &high : &low) = middle;
  }
  return high;
}

/* The quickest of the places from that one on, where the passes know the limit. They may save
   memory just before it. */
static int quickest_from(const struct places *p, int place, struct outcome *best)
{
  enum { TRIED = 3 };
  int chosen = place;
  for (int k = place; k < place + TRIED && k <= last_place(p); k++) {
    const struct outcome o = try_place(p, k);
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

void decide_recomputation(void (*passes)(void))
{
  if (!plan_options->within || graph->loss == NONE || graph->recomputation) return;
  struct places p = {.modules = modules_with_levels(), .passes = passes};
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
    place = first_that_fits(&p, 0, last_place(&p));
    best = (struct outcome){0};
    place = quickest_from(&p, place, &best);
    if (!best.ended) best = try_place(&p, place = last_place(&p));
    if (!best.ended) return; /* the passes will say why */
    if (!fits(&p, &best)) refuse(&p, &best);
  }
  take_place(&p, place);
  if (are_decisions_explained()) note_recomputation(&p, place);
  graph->recomputation = cost_text(&p, &without, &best);
}
