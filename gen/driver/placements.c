/* placements.c: the placements that the plan leaves to auto().

   Takes   the graph of the pass `lua`, with what auto() asks for.
   Leaves  the styles and units that a plan without auto() would have.

   The search (gen/auto) prices what styles ask for as the passes do. Within modules the passes
   decide, one operation after the other, and may do otherwise: so some solutions run through the
   passes, in processes of their own, and the best of them is taken. */
#include "driver/driver.h"

enum { MOST_TRIED_SOLUTIONS = 6 };
static const double FIRST_CAUTION = 1.01;

static const struct solution *tried;
static const struct automatic *asked;
static void (*rest)(void);

static void try_solution(void)
{
  count_received();
  add_styles_of(tried, asked);
  rest();
}

/* Whether the first is better: by the time of a step where the mesh has a device, else by what a
   rank receives. */
static bool is_better(const struct outcome *a, const struct outcome *b)
{
  if (a->ended != b->ended) return a->ended;
  if (graph->mesh.device.bandwidth > 0) return a->seconds < b->seconds;
  return a->received < b->received;
}

/* Whether the passes make more of it than the search says. */
static bool is_dearer(const struct outcome *o, const struct solution *s)
{
  static const double MORE = 1.02, FEW_BYTES = 4096;
  return !o->ended || o->received > MORE * s->moved + FEW_BYTES;
}

static struct outcome try_one(const struct solution *s)
{
  tried = s;
  return end_trial(begin_trial_of(try_solution));
}

/* Between two limits of parameters, the one at which memory, taken as a line between those of both,
   is the limit. */
struct bracket {
  double low, high; /* limits of parameters: that fits, that does not */
  double low_memory, high_memory;
};

static double guess(const struct bracket *b, double limit)
{
  static const double NEAR_LOW = 0.05, NEAR_HIGH = 0.95;
  double part = (limit - b->low_memory) / (b->high_memory - b->low_memory);
  part = part < NEAR_LOW ? NEAR_LOW : part > NEAR_HIGH ? NEAR_HIGH : part;
  return b->low + (b->high - b->low) * part;
}

/* The solution that fits in the memory of a rank: the fewer parameters a rank keeps, the fewer
   gradients and states of the optimizer it has. The greatest limit of parameters with which it fits
   is looked for. */
static struct solution fit_memory(struct solution s, const struct outcome *whole)
{
  enum { GUESSES = 3 };
  const int64_t limit = asked->memory;
  if (!whole->ended || whole->memory <= limit) return s;
  struct automatic within = *asked;
  struct bracket b = {.low = least_parameters(asked), .high = s.parameters};
  const struct search_for what = {.asked = &within, .caution = FIRST_CAUTION};
  within.parameters = (int64_t)b.low + 1;
  struct solution best = choose_placements(&what);
  const struct outcome least = try_one(&best);
  if (!least.ended) return best; /* the passes will say why */
  if (least.memory > limit)
    plan_error(
        asked->line,
        "auto: memory = %s: a rank needs %s with the placements that cost least, and %s with "
        "those that keep the fewest parameters: more ranks, a smaller batch, or checkpoint",
        size_text(asked->memory), size_text(whole->memory), size_text(least.memory));
  b.low_memory = (double)least.memory;
  b.high_memory = (double)whole->memory;
  for (int i = 0; i < GUESSES && b.high - b.low > 1; i++) {
    const double middle = guess(&b, (double)limit);
    within.parameters = (int64_t)middle + 1;
    const struct solution now = choose_placements(&what);
    const struct outcome o = try_one(&now);
    if (o.ended && o.memory <= limit) {
      best = now;
      b.low = middle;
      b.low_memory = (double)o.memory;
    } else {
      b.high = middle;
      if (o.ended) b.high_memory = (double)o.memory;
    }
  }
  return best;
}

/* The program without any style of ours. */
static void try_as_it_is(void)
{
  count_received();
  rest();
}

struct tried_solutions {
  int n, best;
  struct solution list[MOST_TRIED_SOLUTIONS];
  struct outcome outcome[MOST_TRIED_SOLUTIONS];
};

static void try_next(struct tried_solutions *t, struct solution next)
{
  for (int k = 0; k < t->n; k++)
    if (same_solutions(&next, &t->list[k])) return;
  t->list[t->n] = next;
  t->outcome[t->n] = try_one(&t->list[t->n]);
  if (is_better(&t->outcome[t->n], &t->outcome[t->best])) t->best = t->n;
  t->n++;
}

/* Beside the solution by time that by bytes, as little is known before of what overlaps, and that
   for so few layers as there are; and, where the passes make more of the first one than it says,
   those with more caution. */
static void try_others(struct tried_solutions *t)
{
  static const double caution[] = {1.5, 4, 100};
  struct search_for what = {.asked = asked, .caution = FIRST_CAUTION, .by_bytes = true};
  t->outcome[0] = try_one(&t->list[0]);
  if (t->list[0].space.second > 0) {
    try_next(t, choose_placements(&what));
    what.by_bytes = false;
    what.few_as_they_are = true;
    try_next(t, choose_placements(&what));
  }
  what = (struct search_for){.asked = asked};
  for (int i = 0; i < 3 && is_dearer(&t->outcome[0], &t->list[0]); i++) {
    what.caution = caution[i];
    try_next(t, choose_placements(&what));
  }
}

/* Whether the passes refuse what was tried, and take the plan without it, within the limits: they
   decide one operation after the other, and may come to one that allows no cut. */
static bool is_better_as_it_is(const struct outcome *tried_one)
{
  if (tried_one->ended || asked->parameters) return false;
  const struct outcome o = end_trial(begin_trial_of(try_as_it_is));
  return o.ended && (!asked->memory || o.memory <= asked->memory);
}

/* Chooses the placements, and prints them. */
static void choose(void)
{
  enum { FEW_DIMS = 2, FEW_OPERATIONS = 1000 };
  struct tried_solutions *t = alloc(sizeof *t);
  t->n = 1;
  t->list[0] = choose_placements(&(struct search_for){.asked = asked, .caution = FIRST_CAUTION});
  /* Each solution takes little time. */
  const bool is_quick = t->list[0].space.ndim <= FEW_DIMS;
  if (is_quick) try_others(t);
  const bool is_tried = is_quick || asked->memory || graph->nop < FEW_OPERATIONS;
  struct solution *best = &t->list[t->best];
  if (is_tried && !is_quick) t->outcome[0] = try_one(best);
  if (is_tried && is_better_as_it_is(&t->outcome[t->best])) {
    print_styles(graph->nstyle, graph->nunit, asked);
    return;
  }
  if (asked->memory) *best = fit_memory(*best, &t->outcome[t->best]);
  if (!best->is_exact) ended_early("auto", "the cheapest placements", 1, "table of costs");
  add_styles_of(best, asked);
}

/* ------------------------------------------------------- the dimension of styles beside auto() */

/* Of which auto() finds it: those that all of them may have. line: of one of them. */
static unsigned open_dims(int *line)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    if (!s->among) continue;
    dims = *line == NONE ? s->among : dims & s->among;
    *line = s->line;
  }
  if (*line != NONE && !dims)
    plan_error(*line,
               "the styles beside auto() are over one dimension of the mesh, and other styles "
               "leave them none: give them a dimension, as in parallelize(model, mesh.%s, ...)",
               printable(graph->mesh.name[graph->mesh.ndim - 1]));
  return dims;
}

static void set_open_dim(int d)
{
  for (int i = 0; i < graph->nstyle; i++)
    if (graph->style[i].among) graph->style[i].mesh_dim = d;
}

static void try_choice(void)
{
  choose();
  count_received();
  rest();
}

/* Styles that stand beside auto() over several dimensions are over the one with the best choice. */
static void find_dim_of_styles(void)
{
  int line = NONE, best = NONE, n = 0;
  const unsigned dims = open_dims(&line);
  struct outcome least = {0};
  for (int d = 0; d < graph->mesh.ndim; d++) n += dims >> d & 1 && graph->mesh.size[d] > 1;
  for (int d = graph->mesh.ndim - 1; d >= 0; d--) {
    if (!(dims >> d & 1) || (n && graph->mesh.size[d] == 1)) continue;
    set_open_dim(d);
    const struct outcome o = n > 1 ? end_trial(begin_trial_of(try_choice)) : least;
    if (best == NONE || is_better(&o, &least)) {
      least = o;
      best = d;
    }
  }
  if (best == NONE) return;
  set_open_dim(best);
  plan_options->notes =
      text("%s%s:%d: note: the styles beside auto() are over %s\n",
           plan_options->notes ? plan_options->notes : "", file_of_line(plan_options->path, line),
           line % LINES_OF_FILE, printable(graph->mesh.name[best]));
  for (int i = 0; i < graph->nstyle; i++) graph->style[i].among = 0;
}

void decide_placements(void (*passes)(void))
{
  if (!graph->automatic) return;
  asked = graph->automatic;
  rest = passes;
  graph->automatic = NULL;
  find_dim_of_styles();
  if (!make_space(asked->dims).ndim) return; /* one rank */
  choose();
}
