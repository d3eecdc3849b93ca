/* caches.c: what the caches of a program keep that generates from a model of whole texts, where the
   plan leaves it open.

   Takes   the graph before the pass `absorb`, the passes from there on, and the memory of a rank.
   Leaves  the choice in the plan's options, and why.

   Both ways are tried. Of those that fit the quicker one is taken; of two that do not fit, the
   smaller one. Without a limit of memory nothing is tried: keys and values are kept. */
#include "driver/driver.h"

static bool has_whole_text(void)
{
  for (int i = 0; i < graph->norder; i++)
    if (graph->op[graph->order[i]].kind == OP_whole_text) return true;
  return false;
}

static bool is_better_choice(const struct outcome *a, const struct outcome *b, int64_t limit)
{
  if (!a->ended || !b->ended) return a->ended;
  if (a->memory > limit || b->memory > limit) return a->memory < b->memory;
  return a->seconds < b->seconds;
}

static const char *figures_text(const struct outcome *o)
{
  if (!o->ended) return "cannot be planned";
  return text("a rank needs %s, and a call takes %s", size_text(o->memory),
              duration_text(o->seconds));
}

void decide_caches(void (*passes)(void))
{
  int *choice = &plan_options->generate.caches;
  if (*choice != CACHES_BY_COST) return;
  *choice = CACHES_OF_INPUTS; /* the trials decide nothing */
  const int64_t limit = memory_limit();
  if (!limit || options.estimates || !has_whole_text()) return;
  struct started_trial run[2];
  for (int k = CACHES_OF_INPUTS; k <= SMALL_CACHES; k++) {
    *choice = k;
    run[k] = begin_trial_of(passes);
  }
  const struct outcome fast = end_trial(run[CACHES_OF_INPUTS]),
                       small = end_trial(run[SMALL_CACHES]);
  if (!fast.ended && !small.ended) return; /* the passes will say why */
  *choice = is_better_choice(&small, &fast, limit) ? SMALL_CACHES : CACHES_OF_INPUTS;
  plan_options->generate.why =
      fast.ended && small.ended && fast.memory == small.memory
          ? NULL
          : text("%s: %s; %s: %s; of %s", *choice ? "small" : "fast",
                 figures_text(*choice ? &small : &fast), *choice ? "fast" : "small",
                 figures_text(*choice ? &fast : &small), size_text(limit));
}
