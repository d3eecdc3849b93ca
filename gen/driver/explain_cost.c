/* explain_cost.c: --explain-cost: what tpgen decides about a value or a module, with the
   alternatives, and the step of the whole program that each of them would have made.

   The passes run once as they do, and note their decisions (ir/decisions.c). For each alternative
   they run again from `propagate` on, in a process of its own (trials.c), with that decision forced
   and all others taken anew. */
#include "driver/driver.h"

#include <string.h>
#include <sys/mman.h>

static struct noted_decisions *noted; /* shared memory */
static const struct noted_decision *forced_decision;
static int forced_at;

static void note_all(void)
{
  count_received();
  note_decisions_in(noted);
  try_from_propagate();
}

static void take_other(void)
{
  count_received();
  force_decision(forced_decision->kind, forced_decision->subject,
                 forced_decision->at[forced_at].way);
  try_from_propagate();
}

static struct started_trial begin_alternative(const struct noted_decision *d, int at)
{
  forced_decision = d;
  forced_at = at;
  return begin_trial_of(take_other);
}

static const char *bytes_text(double bytes)
{
  return bytes < 0 ? "" : text("%s B", grouped((int64_t)bytes));
}

/* "step 62.1 ms (+3.4 %), 61.2 GiB"; without a device the bytes that a rank receives in a step. */
static const char *outcome_text(const struct outcome *o, const struct outcome *as_is)
{
  if (!o->ended) return "cannot be planned";
  const bool is_timed = device() != NULL;
  const double now = is_timed ? o->seconds : o->bytes,
               was = is_timed ? as_is->seconds : as_is->bytes;
  const char *change = now == was || was <= 0 ? "" : text(" (%+.2f %%)", (now / was - 1) * 100);
  const char *step = is_timed ? duration_text(now) : text("%s B received", grouped((int64_t)now));
  return text("step %s%s, %s", step, change, size_text(o->memory));
}

static void print_decision(const struct noted_decision *d, const struct outcome *outcome,
                           const struct outcome *as_is)
{
  printf("\n%s: %s\n", d->kind, printable(d->subject));
  for (int k = 0; k < d->n; k++) {
    /* What is taken comes first. */
    const int i = !k ? d->taken : k <= d->taken ? k - 1 : k;
    const struct noted_alternative *a = &d->at[i];
    printf("  %s %s\n", i == d->taken ? "taken  " : "instead", printable(a->way));
    const char *by_itself = a->bytes < 0 && a->seconds < 0
                                ? ""
                                : text("by itself %s%s%s; ", bytes_text(a->bytes),
                                       a->bytes < 0 || a->seconds < 0 || !device() ? "" : ", ",
                                       a->seconds < 0 || !device() ? "" : seconds_text(a->seconds));
    printf("            %s%s\n", by_itself,
           outcome_text(i == d->taken ? as_is : &outcome[i], as_is));
  }
}

/* The outcomes of a decision's alternatives: the passes of one beside those of the next. */
static void try_alternatives(const struct noted_decision *d, struct outcome *outcome)
{
  enum { AT_ONCE = 2 };
  struct started_trial run[MOST_ALTERNATIVES];
  int begun = 0, ended = 0;
  for (; ended < d->n; ended++) {
    for (; begun < d->n && begun < ended + AT_ONCE; begun++)
      if (begun != d->taken) run[begun] = begin_alternative(d, begun);
    if (ended != d->taken) outcome[ended] = end_trial(run[ended]);
  }
}

void explain_cost(void)
{
  if (!options.explain_cost) return;
  run_passes(0, PASS_PROPAGATE - 1);
  noted = mmap(NULL, sizeof *noted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (noted == MAP_FAILED) usage_error(3, "no memory for decisions");
  const struct outcome as_is = end_trial(begin_trial_of(note_all));
  if (!as_is.ended) run_all(note_trial); /* the plan's error */
  if (!noted->is_named)
    plan_error(0,
               "no value and no module is called %s: a value is called as in --explain, as "
               "layers.0.norm.weight, a module as layers.0, and layers.* are all of a list",
               printable(options.explain_cost));
  printf("%s: step of the program: %s\n", printable(options.explain_cost),
         outcome_text(&as_is, &as_is));
  if (!noted->n) printf("nothing is decided about it: no pass had an alternative\n");
  for (int i = 0; i < noted->n; i++) {
    struct outcome outcome[MOST_ALTERNATIVES];
    try_alternatives(&noted->at[i], outcome);
    print_decision(&noted->at[i], outcome, &as_is);
  }
  if (noted->left_some)
    printf("there are more decisions than %d: ask about a value, or a smaller module\n",
           MOST_DECISIONS);
  end_printing();
}
