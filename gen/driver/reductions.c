/* reductions.c: whether a step of several batches reduces the gradients of each batch, or adds up
   whole gradients and reduces their sum once.

   Takes   the graph before the pass `optimize`, and the passes that come next.
   Leaves  the answer in the units of parameters that are cut over ranks, and for plan.txt in words.

   The plan may say it. Else each batch's are reduced, which needs the least memory. Whole sums are
   taken only where the memory of a rank is known, they fit, and the step is quicker. zero = 2 means
   that they are reduced each time. */
#include "driver/driver.h"

#include <string.h>

/* Whether it has gradients that whole sums are a choice for. */
static bool is_choice(const struct unit *u)
{
  return u->shards && !u->reduces_each;
}

static bool any_unit(bool (*is)(const struct unit *))
{
  for (int u = 0; u < graph->nunit; u++)
    if (is(&graph->unit[u])) return true;
  return false;
}

static bool has_shards(const struct unit *u)
{
  return u->shards != 0;
}

static bool is_whole(const struct unit *u)
{
  return u->shards && u->sums_whole;
}

static const char *batch_word(void)
{
  return plan_options->accumulate > 1 ? "batch" : "micro-batch";
}

static void add_up_whole(bool whole)
{
  for (int u = 0; u < graph->nunit; u++)
    if (is_choice(&graph->unit[u])) graph->unit[u].sums_whole = whole;
}

static const char *each_text(const char *why)
{
  return text("are reduced after each %s: %s", batch_word(), why);
}

static const char *whole_text(const char *why)
{
  return text("are added up whole over %d batches and reduced once: %s", runs_in_step(), why);
}

/* --explain-cost: the two ways. */
static const char EACH_BATCH[] = "each batch's gradients are reduced",
                  WHOLE_SUMS[] = "whole sums, once";
static const char SUBJECT[] = "the gradients of several batches";

static void note_reductions(bool whole)
{
  const struct alternative list[] = {{EACH_BATCH, NONE, NONE}, {WHOLE_SUMS, NONE, NONE}};
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER && graph->value[i].unit != NONE &&
        is_choice(&graph->unit[graph->value[i].unit]) && is_value_explained(i)) {
      note_decision("reductions", SUBJECT, list, 2, whole);
      return;
    }
}

/* The better of the two. */
static void choose(void (*passes)(void), int64_t limit)
{
  const char *memory = size_text(limit);
  struct started_trial run[2];
  for (int whole = 0; whole < 2; whole++) {
    add_up_whole(whole);
    run[whole] = begin_trial_of(passes);
  }
  const struct outcome each = end_trial(run[false]), whole = end_trial(run[true]);
  const bool fits = whole.ended && whole.memory <= limit;
  const bool pays = fits && (!each.ended || whole.seconds < each.seconds);
  add_up_whole(pays);
  if (pays)
    plan_options->reductions =
        whole_text(text("that fits in %s, and a step takes %s, not %s", memory,
                        duration_text(whole.seconds), duration_text(each.seconds)));
  else if (fits)
    plan_options->reductions =
        each_text(text("a step takes %s, and %s with whole sums, which would fit in %s",
                       duration_text(each.seconds), duration_text(whole.seconds), memory));
  else
    plan_options->reductions =
        each_text(whole.ended ? text("with whole sums a rank needs %s, of %s",
                                     size_text(whole.memory), memory)
                              : "whole sums cannot be planned");
}

/* Whether the check of a candidate is told. */
static bool is_given(void)
{
  const struct decided *decided = decided_of_candidate();
  return decided && decided->is_given && decided->gradients != NO_CHOICE;
}

void decide_reductions(void (*passes)(void))
{
  if (graph->loss == NONE || runs_in_step() == 1 || plan_options->reductions) return;
  if (!any_unit(has_shards)) return;
  const int64_t limit = plan_options->within > 0 ? plan_options->within : memory_limit();
  const char *forced = forced_way_of("reductions", SUBJECT);
  if (forced && any_unit(is_choice)) {
    plan_options->reductions = forced;
    add_up_whole(!strcmp(forced, WHOLE_SUMS));
    return;
  }
  plan_options->reductions = "are tried"; /* the trials decide nothing */
  if (any_unit(is_whole))
    plan_options->reductions = whole_text("reduce_each_batch = false");
  else if (plan_options->reduce_each_batch)
    plan_options->reductions = each_text("reduce_each_batch");
  else if (!any_unit(is_choice))
    plan_options->reductions = each_text("a rank adds up only the part that it updates");
  else if (!limit)
    plan_options->reductions = each_text("no memory is known in which whole sums would fit");
  else if (is_given())
    add_up_whole(decided_of_candidate()->gradients == ADDED_UP_WHOLE);
  else if (options.estimates)
    add_up_whole(goes_on_with_whole_sums(limit));
  else
    choose(passes, limit);
  if (are_decisions_explained()) note_reductions(any_unit(is_whole));
}
