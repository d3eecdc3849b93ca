/* recomputation.c: what the backward makes again so that a rank's program fits in its memory, and
   as little as that needs.

   Takes   the flat program of the graph's ranks before the pass `recompute`, and the passes that
   come next; the plan's checkpoint = {memory = ...}. Leaves  the level of each module of a list
   (graph_passes/recompute.c), and what it costs in words.

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

/* The levels that differ in what is made again; 0 always counts. */
static void list_levels(void)
{
  const struct list modules = modules_with_levels();
  bool *before = NULL;
  for (int level = 0; level <= MOST_AGAIN; level++) {
    int n;
    for (int k = 0; k < modules.n; k++) graph->module[modules.at[k]].again = level;
    bool *now = made_again_by_levels(&n);
    if (!before || memcmp(before, now, (size_t)n)) note_level(level);
    before = now;
  }
}

/* The first place that fits, of those behind `low`, which does not; `high` does. */
static int first_that_fits(const struct places *p, int low, int high, struct outcome *best)
{
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    const struct outcome o = try_place(p, middle);
    if (o.ended && o.memory <= p->limit) {
      high = middle;
      *best = o;
    } else {
      low = middle;
    }
  }
  return high;
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
  if (!without->ended) return b.text;
  put(&b, ", %s less than if only cheap work were made again",
      size_text(without->memory - with->memory));
  if (with->seconds > 0)
    put(&b, "; a step takes %s, %s more", duration_text(with->seconds),
        duration_text(with->seconds > without->seconds ? with->seconds - without->seconds : 0));
  return b.text;
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
  const unsigned levels = end_trial(begin_trial_of(list_levels)).levels | 1;
  for (int level = 0; level <= MOST_AGAIN && p.modules.n; level++)
    if (levels >> level & 1) p.level[p.nlevel++] = level;
  if (!p.nlevel) p.nlevel = 1;
  const struct outcome without = try_place(&p, 0);
  if (without.ended && without.memory <= p.limit) {
    graph->recomputation = cost_text(&p, &without, &without);
    return;
  }
  struct outcome best = try_place(&p, last_place(&p));
  if (!best.ended) return; /* the passes will say why */
  if (best.memory > p.limit) refuse(&p, &best);
  const int place = first_that_fits(&p, 0, last_place(&p), &best);
  take_place(&p, place);
  graph->recomputation = cost_text(&p, &without, &best);
}
