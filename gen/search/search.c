/* search.c: the search for the settings of a plan.

   The model on one device, evaluated first, gives the closed form its figures. The closed form puts
   all legal candidates in an order; tpgen's passes evaluate them from the first one on, a round at
   a time, and each round corrects the order of what is left by what it found about candidates like
   those. Then one setting after the other of the quickest ones is varied, until nothing is quicker.
   A round has a fixed number of candidates and depends only on those before it: the result is the
   same for any number of processes. */
#include "search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  FIRST_ROUND = 12,
  MOST_IN_ROUND = 64,
  MOST_ROOMY = 3,
  OPERATIONS_IN_ROUND = 6000,
  ROUND = 8,
  LEAST_OF_ROUND = 4,
  ALIKE_IN_ROUND = 3,
  MOST_ROUNDS = 12,
  LEAST_ROUNDS = 2,
  VARIED = 12,
  VARIED_AT_ONCE = 6,
  FIRST_VARIED = 4,
  VARIED_OF_SLOWER = 6,
  MOST_REFINED = 8,
  MOST_SMALL_REFINED = 16,
  WITHIN_MEMORY = 2,
  ROUNDS_WITHIN_MEMORY = 2,
  MOST_KEPT = 6000,
  MOST_LISTED = 24000,
  KEPT_OF_MESH = 30,
  MOST_CHECKED = 16
};
/* The rounds end when what is left is estimated to take so much longer than the best; so do
   neighbours that are tried, and meshes whose choices are varied. */
static const double HOPELESS = 1.02, CLOSE = 1.02, FAR = 1.4, FAR_LEADER = 1.08,
                    FAR_SMALL_LEADER = 1.5, FAR_NEAR = 1.15, NEARLY = 1.05, TIES = 1.005,
                    SLOW_CHOICE = 1.05, FAR_CHOICE = 3;
/* A part of the memory that leaves room for what the closed form does not know. */
static const double ROOMY = 0.75, FAR_ROOMY = 1.2;

struct search {
  struct search_space *space;
  struct probes probes;
  /* Where the batch is not searched, the figures of one device are of all its samples: those of one
     are so much of them. */
  double of_seconds, of_bytes;
  int first_round; /* its candidates: more of a small program */
  struct found *found;
  int n; /* the candidates in the order of the closed form */
  struct candidate *list;
  /* For plans without stages and with them: the value of each choice that was seen to make them
     much quicker, or to let them fit; 0: the default. */
  unsigned char learned[2][MOST_SEARCHED];
};

int64_t memory_for(const struct search_space *s, const struct evaluated *o)
{
  return s->is_machine ? o->memory : s->memory;
}

bool candidate_fits(const struct search_space *s, const struct evaluated *o)
{
  const int64_t limit = memory_for(s, o);
  return o->is_there && (!limit || o->step.bytes + o->reserve <= limit);
}

int settings_on(const struct search_space *s, const struct candidate *c)
{
  int n = 0;
  for (int i = 0; i < s->n; i++) n += is_on(s, c, i);
  return n;
}

/* ------------------------------------------------------------------------------- the first runs */

static void add_definition(struct job *j, const char *name, const char *value)
{
  for (int i = 0; i < j->ndefinition; i++)
    if (!strcmp(j->definition[i].name, name)) {
      j->definition[i].value = value;
      return;
    }
  j->definition[j->ndefinition++] = (struct definition){name, value};
}

/* One device has not the memory of all. */
static bool makes_again_within_memory(const struct searched *at)
{
  return at->kind == SEARCH_RECOMPUTE && at->pinned && at->value[0] &&
         !strcmp(at->value[0], "memory");
}

/* A job without what pins settings that are searched. */
static struct job plain_job(const struct search_space *s)
{
  struct job j = {.space = s};
  int index;
  j.to = new_outcome(&index);
  j.definition = alloc((size_t)(s->ngiven + s->n + 8) * sizeof *j.definition);
  for (int i = 0; i < s->ngiven; i++) {
    bool searched = false;
    for (int k = 0; k < s->n; k++)
      searched |= !strcmp(s->given[i].name, s->at[k].name) &&
                  (is_rank_kind(s->at[k].kind) || *s->at[k].with || *s->at[k].without ||
                   s->at[k].kind == SEARCH_MICROBATCHES || makes_again_within_memory(&s->at[k]));
    if (!searched) j.definition[j.ndefinition++] = s->given[i];
  }
  for (int i = 0; i < s->n; i++)
    if (is_rank_kind(s->at[i].kind) && *s->at[i].usual && strcmp(s->at[i].usual, "1") != 0)
      add_definition(&j, s->at[i].name, "1");
  return j;
}

_Noreturn static void refuse_plan(const struct evaluated *o)
{
  usage_error(1, "%s (the plan on one device, which the search looks at first)", o->why);
}

static void take_machine(struct search_space *s, const struct evaluated *o)
{
  const char *device =
      o->is_usual ? text(", and the device %s says no number of them", o->device) : "";
  if ((!o->has_cluster || o->is_usual) && s->of_parallel)
    plan_error(plan_options->parallel.line,
               "auto must know where the ranks run%s: say auto{cluster = \"dgx-h100:16\"} or "
               "--cluster dgx-h100:16, for 16 nodes (dgx-a100, dgx-a100-40gb, dgx-h100, dgx-h200, "
               "dgx-b200), or a "
               "FILE.json (docs/auto.md)",
               device);
  if (!o->has_cluster || o->is_usual)
    usage_error(2,
                "--search must know where the ranks run%s: say --cluster dgx-h100:16, for 16 nodes "
                "(dgx-a100, dgx-a100-40gb, dgx-h100, dgx-h200, dgx-b200), or --cluster FILE.json "
                "(docs/search.md)",
                device);
  s->is_machine = o->is_machine;
  s->devices = o->devices;
  s->node = o->node;
  s->cards = o->cards;
  s->intra = o->intra;
  s->inter = o->inter;
  s->device = o->device;
  s->memory = o->memory;
}

/* The machine, by the plan on one device; and the target, where the command line says none: a GPU's
   programs are of CUDA. A plan may have another batch than a sample, as that of an archive that was
   exported for one. */
static void learn_machine(struct search *s)
{
  struct search_space *space = s->space;
  struct job job = plain_job(space);
  if (space->batch_at != NONE) add_definition(&job, "batch", "1");
  run_jobs(&job, 1);
  if (search_is_over()) return;
  if (!job.to->is_there && space->batch_at != NONE) {
    struct job as_it_is = plain_job(space);
    run_jobs(&as_it_is, 1);
    if (as_it_is.to->is_there) {
      space->batch_at = NONE;
      space->batch = as_it_is.to->samples;
    }
    job = as_it_is;
  }
  if (!job.to->is_there) refuse_plan(job.to);
  take_machine(space, job.to);
  if (!options.target_given && device_named(space->device)) set_target("cuda");
}

/* The figures of one sample. */
static struct model_figures of_one_sample(const struct search *s, const struct evaluated *o)
{
  struct model_figures f = o->model;
  f.batch_seconds *= s->of_seconds;
  f.outside_seconds *= s->of_seconds;
  f.activations *= s->of_bytes;
  f.input *= s->of_bytes;
  return f;
}

/* The same on twice the samples, in one batch or in two micro-batches, or in two where the batch is
   the plan's; whether there is such a job. */
static bool second_job(const struct search_space *s, bool in_two, struct job *j)
{
  const int at = s->of_kind[SEARCH_MICROBATCHES];
  const bool may_split = at != NONE && !s->at[at].pinned && (s->batch_at != NONE || s->batch > 1);
  if (in_two ? !may_split : s->batch_at == NONE) return false;
  *j = plain_job(s);
  if (s->batch_at != NONE) add_definition(j, "batch", "2");
  if (in_two) add_definition(j, s->at[at].name, "2");
  return true;
}

static double batch_seconds_of(const struct job *job)
{
  return job && job->to->is_there ? job->to->model.batch_seconds : 0;
}

/* The parts of a batch's time that do not grow with its samples, of that of one sample. `two`: of
   two samples, `split`: in two micro-batches; or NULL. */
static void measure_fixed(struct search *s, double one, const struct job *two,
                          const struct job *split)
{
  const double samples = (double)s->space->batch, both = batch_seconds_of(two),
               apart = batch_seconds_of(split);
  s->of_seconds = s->of_bytes = 1;
  const bool is_whole = s->space->batch_at == NONE && samples >= 1;
  if (is_whole) s->of_seconds = s->of_bytes = 1 / samples;
  if (one <= 0) return;
  if (!is_whole) {
    if (both <= 0) return;
    s->probes.fixed = fmin(0.5, fmax(0, (2 * one - both) / one));
    /* What micro-batches add up to sums is no part of this: see estimate(). */
    const double adding = apart > 0 ? 2 * ADDING * split->to->model.update_seconds : 0;
    const double again = fmax(0, apart - both - adding) / one;
    if (apart > 0) s->probes.once = fmax(0, s->probes.fixed - again);
    s->probes.fixed -= s->probes.once;
    return;
  }
  if (apart <= 0) return;
  const double fixed = fmin(0.98 * one, fmax(0, apart - one)), each = (one - fixed) / samples;
  s->of_seconds = (fixed + each) / one;
  s->probes.fixed = fixed / (fixed + each);
}

/* The model on one device, for each value of the setting of kind recompute. */
static void probe_model(struct search *s)
{
  struct search_space *space = s->space;
  const int again = space->of_kind[SEARCH_RECOMPUTE];
  const int all = again == NONE || space->at[again].pinned ? 1 : space->at[again].n;
  const bool has_memory = all > 1 && space->at[again].within_memory != NONE;
  const int listed = all - has_memory, n = listed < MOST_PROBED - 1 ? listed : MOST_PROBED - 1;
  struct job job[MOST_PROBED + 2], *two = NULL, *split = NULL;
  for (int i = 0; i < n; i++) {
    job[i] = plain_job(space);
    if (space->batch_at != NONE) add_definition(&job[i], "batch", "1");
    const char *value = n == 1 ? NULL : space->at[again].value[i];
    if (value) add_definition(&job[i], space->at[again].name, value);
  }
  int all_jobs = n;
  if (second_job(space, false, &job[all_jobs])) two = &job[all_jobs++];
  if (second_job(space, true, &job[all_jobs])) split = &job[all_jobs++];
  run_jobs(job, all_jobs);
  if (search_is_over()) return;
  if (!job[0].to->is_there) refuse_plan(job[0].to);
  s->first_round = OPERATIONS_IN_ROUND / (job[0].to->operations + 1);
  if (s->first_round < FIRST_ROUND) s->first_round = FIRST_ROUND;
  if (s->first_round > MOST_IN_ROUND) s->first_round = MOST_IN_ROUND;
  measure_fixed(s, job[0].to->model.batch_seconds, two, split);
  int kept = 0; /* values that the plan refuses are none */
  for (int i = 0; i < n; i++) {
    if (!job[i].to->is_there) {
      space->at[again].refused = job[i].to->why;
      continue;
    }
    s->probes.of[kept] = of_one_sample(s, job[i].to);
    if (n > 1) space->at[again].value[kept] = space->at[again].value[i];
    if (n > 1) space->at[again].number[kept] = space->at[again].number[i];
    kept++;
  }
  if (has_memory) {
    space->at[again].value[kept] = "memory";
    space->at[again].within_memory = kept;
    s->probes.of[kept++] = s->probes.of[0];
  }
  if (all > 1) space->at[again].n = kept;
  space->layers = space->of_parallel ? plan_options->parallel.blocks : s->probes.of[0].layers;
}

/* How many stages may begin with blocks of the model: by a pipeline with a few more stages than its
   list has modules. */
static void probe_blocks(struct search *s, int64_t ranks)
{
  struct search_space *space = s->space;
  const int of_rank = space->of_kind[SEARCH_STAGES_OF_RANK];
  if (!space->of_parallel || of_rank == NONE || space->layers <= space->listed) return;
  struct job job = plain_job(space);
  add_definition(&job, space->at[space->of_kind[SEARCH_STAGES]].name,
                 text("%lld", (long long)ranks));
  const int64_t each = space->listed / ranks + 1;
  if (each > 1) {
    add_definition(&job, space->at[space->of_kind[SEARCH_SCHEDULE]].name, "interleaved_1f1b");
    add_definition(&job, space->at[of_rank].name, text("%lld", (long long)each));
  }
  run_jobs(&job, 1);
  space->blocks = job.to->is_there ? job.to->pieces : space->listed;
}

/* The fewest ranks of a kind that divide the devices. */
static int64_t least_ranks(const struct search_space *s)
{
  int64_t ranks = 2;
  while (!s->is_machine && s->devices % ranks) ranks++;
  return ranks;
}

/* The plan refuses the setting with the defaults of all choices. So it is tried with each other
   value of the choices that go with it. The first value that the plan accepts takes the place of
   the default wherever the setting is on. Without such a value the setting is not varied. */
static void try_choices_with(struct search_space *s, const struct job *refused, int setting)
{
  struct job job[MOST_SEARCHED] = {{.to = NULL}};
  int choice[MOST_SEARCHED], value[MOST_SEARCHED], n = 0;
  for (int i = 0; i < s->n; i++) {
    const struct searched *at = &s->at[i];
    if (at->kind != SEARCH_CHOICE || at->pinned || !is_named(s->at[setting].name, at->with))
      continue;
    for (int v = 1; v < at->n && n < MOST_SEARCHED; v++) {
      struct job *other = &job[n];
      int index;
      *other = *refused;
      other->to = new_outcome(&index);
      if (!other->to) break;
      other->definition = alloc((size_t)(s->ngiven + s->n + 8) * sizeof *other->definition);
      memcpy(other->definition, refused->definition,
             (size_t)refused->ndefinition * sizeof *other->definition);
      add_definition(other, at->name, at->value[v]);
      choice[n] = i;
      value[n++] = v;
    }
  }
  run_jobs(job, n);
  int k = 0;
  while (k < n && !job[k].to->is_there) k++;
  if (k == n || search_is_over()) {
    if (!s->at[setting].pinned) s->at[setting].refused = refused->to->why;
    return;
  }
  struct searched *at = &s->at[choice[k]];
  at->refused_with = setting;
  at->first = value[k];
  at->usual_refused = refused->to->why;
}

/* Whether the setting is pinned to several ranks, and choices that go with it are free. */
static bool may_need_choice(const struct search_space *s, const struct searched *at)
{
  bool has_choice = false;
  for (int i = 0; i < s->n; i++)
    has_choice |= s->at[i].kind == SEARCH_CHOICE && !s->at[i].pinned && s->at[i].n > 1 &&
                  is_named(at->name, s->at[i].with);
  return has_choice && is_rank_kind(at->kind) && at->pinned && !at->is_off;
}

/* Settings that the plan refuses as such, as cp in a plan that cuts no sequences. Each is tried
   with its first value, on as few ranks as possible. */
static void probe_settings(struct search *s)
{
  struct search_space *space = s->space;
  struct job job[MOST_SEARCHED] = {{.to = NULL}};
  int of[MOST_SEARCHED], n = 0;
  bool has_stages = false;
  for (int i = 0; i < space->n; i++) {
    const struct searched *at = &space->at[i];
    const bool is_tried =
        (is_rank_kind(at->kind) && at->kind != SEARCH_DATA && space->devices > 1) ||
        (at->kind == SEARCH_MICROBATCHES && (space->batch_at != NONE || space->batch > 1));
    if ((at->pinned || !is_tried) && !may_need_choice(space, at)) continue;
    job[n] = plain_job(space);
    const int64_t few = at->pinned               ? at->number[0]
                        : is_rank_kind(at->kind) ? least_ranks(space)
                                                 : 2; /* or micro-batches */
    const char *least = text("%lld", (long long)few);
    add_definition(&job[n], at->name, least);
    if (at->kind == SEARCH_EXPERTS && space->of_kind[SEARCH_SHARDS] != NONE)
      add_definition(&job[n], space->at[space->of_kind[SEARCH_SHARDS]].name, least);
    if (space->batch_at != NONE) add_definition(&job[n], "batch", least);
    of[n++] = i;
  }
  run_jobs(job, n);
  for (int i = 0; i < n && !search_is_over(); i++)
    if (!job[i].to->is_there)
      try_choices_with(space, &job[i], of[i]);
    else if (space->at[of[i]].kind == SEARCH_STAGES && !job[i].to->has_stages)
      space->at[of[i]].refused = "the plan makes no pipeline of its ranks";
    else if (space->at[of[i]].kind == SEARCH_STAGES)
      space->pieces = job[i].to->pieces, space->listed = job[i].to->listed, has_stages = true;
  if (has_stages && !search_is_over()) probe_blocks(s, least_ranks(space));
  const int experts = space->of_kind[SEARCH_EXPERTS];
  if (experts != NONE && !space->at[experts].pinned && s->probes.of[0].experts <= 0)
    space->at[experts].refused = "the model has no experts";
}

/* A program of the layers on some ranks of a kind. */
struct rank_probe {
  struct job job;
  int kind, value, again;
};

static const enum search_kind probed_kind[2] = {SEARCH_TENSOR, SEARCH_SEQUENCES};

static struct rank_probe rank_probe(struct search_space *s, int kind, int value, int again)
{
  struct rank_probe p = {plain_job(s), kind, value, again};
  const struct searched *at = &s->at[s->of_kind[probed_kind[kind]]];
  const int recompute = s->of_kind[SEARCH_RECOMPUTE];
  add_definition(&p.job, at->name, at->value[value]);
  for (int i = 0; i < s->n; i++)
    if (s->at[i].refused_with == s->of_kind[probed_kind[kind]])
      add_definition(&p.job, s->at[i].name, s->at[i].value[s->at[i].first]);
  if (again) add_definition(&p.job, s->at[recompute].name, s->at[recompute].value[again]);
  if (s->batch_at != NONE) add_definition(&p.job, "batch", "1");
  return p;
}

static void take_rank_probe(struct search *s, const struct rank_probe *p, bool is_last)
{
  if (!p->job.to->is_there) return;
  const struct model_figures f = of_one_sample(s, p->job.to), *one = &s->probes.of[p->again];
  const struct searched *at = &s->space->at[s->space->of_kind[probed_kind[p->kind]]];
  const double ranks = (double)at->number[p->value];
  if (!p->again)
    s->probes.seconds[p->kind][p->value] = f.batch_seconds * ranks / one->batch_seconds;
  const double more = f.activations * ranks / one->activations - 1;
  if (is_last) s->probes.bytes[p->again][p->kind] = fmax(0, more / (ranks - 1));
}

/* The layers on each number of ranks of tensor, and of sequences: what the ranks move, and what
   their smaller products lose; and, with each form of recomputation, what all ranks hold. */
static void probe_ranks(struct search *s)
{
  static const int most[2] = {32, 8};
  struct search_space *space = s->space;
  static struct rank_probe probe[2 * UINT8_MAX];
  struct job job[2 * UINT8_MAX];
  const int recompute = space->of_kind[SEARCH_RECOMPUTE];
  const int values = recompute == NONE ? 1 : space->at[recompute].n;
  const int ways = values - (values > 1 && space->at[recompute].within_memory != NONE);
  int n = 0, last[2] = {NONE, NONE};
  for (int k = 0; k < 2; k++) {
    const int at = space->of_kind[probed_kind[k]];
    for (int v = 0; at != NONE && v < space->at[at].n; v++) {
      if (space->at[at].number[v] <= 1 || space->at[at].number[v] > most[k]) continue;
      probe[n++] = rank_probe(space, k, v, 0);
      if (last[k] == NONE || space->at[at].number[v] <= 8) last[k] = v;
    }
    for (int again = 1; again < ways && last[k] != NONE; again++)
      probe[n++] = rank_probe(space, k, last[k], again);
  }
  for (int i = 0; i < n; i++) job[i] = probe[i].job;
  run_jobs(job, n);
  for (int i = 0; i < n; i++) take_rank_probe(s, &probe[i], probe[i].value == last[probe[i].kind]);
  for (int k = 0; k < 2; k++) { /* more ranks lose at least as much */
    const int at = space->of_kind[probed_kind[k]];
    double before = 1;
    for (int v = 0; at != NONE && v < space->at[at].n; v++) {
      if (s->probes.seconds[k][v] <= 0)
        s->probes.seconds[k][v] = space->at[at].number[v] > most[k] ? 2 * before : before;
      before = s->probes.seconds[k][v];
    }
  }
}

/* ------------------------------------------------------------------------------------ the order */

/* Whether the candidate is a pipeline. */
static bool has_stages(const struct search_space *s, const struct candidate *c)
{
  const int at = s->of_kind[SEARCH_STAGES];
  return at != NONE && s->at[at].number[c->v[at]] > 1;
}

/* How unlike two candidates are, for what the closed form leaves out. */
static double distance(const struct search *search, const struct candidate *a,
                       const struct candidate *b)
{
  const struct search_space *s = search->space;
  static const double weight[SEARCH_COUNT] = {[SEARCH_COPIES] = 0.3,
                                              [SEARCH_SHARDS] = 0.3,
                                              [SEARCH_DATA] = 0,
                                              [SEARCH_TENSOR] = 1,
                                              [SEARCH_STAGES] = 0.7,
                                              [SEARCH_SEQUENCES] = 1,
                                              [SEARCH_EXPERTS] = 0.7,
                                              [SEARCH_RANKS] = 1,
                                              [SEARCH_MICROBATCHES] = 0.4,
                                              [SEARCH_SCHEDULE] = 1.2,
                                              [SEARCH_STAGES_OF_RANK] = 0.5,
                                              [SEARCH_ZERO] = 1,
                                              [SEARCH_RECOMPUTE] = 1.5,
                                              [SEARCH_CHOICE] = 1};
  double d = 0.05;
  for (int i = 0; i < s->n; i++) {
    const enum search_kind kind = s->at[i].kind;
    if (a->v[i] == b->v[i]) continue;
    const bool counted = is_rank_kind(kind) || kind == SEARCH_MICROBATCHES;
    const double x = (double)s->at[i].number[a->v[i]], y = (double)s->at[i].number[b->v[i]];
    d += weight[kind] * (counted && x > 0 && y > 0 ? fabs(log2(x / y)) : 1);
    if (counted && is_rank_kind(kind) && (x <= 1) != (y <= 1)) d += 0.7;
    if (search->learned[has_stages(s, a)][i]) d += FAR_CHOICE;
  }
  return d;
}

/* What the closed form says of a plan if gradients of micro-batches are reduced as in this one. */
static struct told told_as(const struct candidate *c, const struct evaluated *o)
{
  if (o->decided.gradients == NO_CHOICE) return (struct told){c->seconds, c->bytes};
  return c->way[o->decided.gradients == ADDED_UP_WHOLE];
}

/* By how much the closed form is to be multiplied: from the figures of the candidates that were
   tried, those alike most. Their seconds count only if they fit: collectives that have no room
   overlap less. */
static void correct(const struct search *s, const struct candidate *c, double *seconds,
                    double *bytes)
{
  double all = 0, fitting = 0, of_seconds = 0, of_bytes = 0;
  for (int i = 0; i < s->found->n; i++) {
    const struct candidate *other = &s->found->tried[i];
    const struct evaluated *o = outcome_at(other->tried);
    if (!o->is_there || o->step.seconds <= 0) continue;
    const double d = distance(s, c, other), weight = 1 / (d * d * d * d);
    const struct told told = told_as(other, o);
    all += weight;
    of_bytes += weight * log((double)o->step.bytes / told.bytes);
    if (!candidate_fits(s->space, o)) continue;
    fitting += weight;
    of_seconds += weight * log(o->step.seconds / told.seconds);
  }
  *seconds = fitting > 0 ? exp(of_seconds / fitting) : 1;
  *bytes = all > 0 ? exp(of_bytes / all) : 1;
}

/* By how much later what does not fit is tried. bytes: by what its memory is multiplied. */
static double lateness(const struct search *s, const struct candidate *c, double bytes)
{
  const double over = s->space->memory ? c->bytes * bytes / (double)s->space->memory : 0;
  return over > 1 ? 1 + 3 * (over - 1) : 1;
}

/* Seconds, more where it does not fit. */
static double order_of(const struct search *s, struct candidate *c)
{
  double seconds, bytes;
  correct(s, c, &seconds, &bytes);
  choose_way(s->space, c, bytes);
  return c->seconds * seconds * lateness(s, c, bytes);
}

static int compare(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  if (x->order != y->order) return x->order < y->order ? -1 : 1;
  return memcmp(x->v, y->v, sizeof x->v);
}

/* Whether the ranks that share layers, sequences and experts, and the stages, are as many. */
static bool same_shape_of(const struct search_space *s, const struct candidate *a,
                          const struct candidate *b)
{
  for (int i = 0; i < s->n; i++) {
    const enum search_kind kind = s->at[i].kind;
    const bool of_data = kind == SEARCH_COPIES || kind == SEARCH_SHARDS || kind == SEARCH_DATA;
    if (is_rank_kind(kind) && !of_data && a->v[i] != b->v[i]) return false;
  }
  return true;
}

static bool same_mesh_of(const struct search_space *s, const struct candidate *a,
                         const struct candidate *b)
{
  for (int i = 0; i < s->n; i++)
    if (is_rank_kind(s->at[i].kind) && a->v[i] != b->v[i]) return false;
  return true;
}

/* Candidates come mesh by mesh, but for experts: the best of each mesh are kept. */
struct keeper {
  struct search *s;
  int n; /* of the mesh that comes */
  struct candidate best[KEPT_OF_MESH];
};

static void keep_mesh(struct keeper *k)
{
  struct search *s = k->s;
  if (!s->list) s->list = alloc(MOST_LISTED * sizeof *s->list);
  if (s->n + k->n > MOST_LISTED) { /* the best of all meshes so far */
    qsort(s->list, (size_t)s->n, sizeof *s->list, compare);
    s->n = MOST_KEPT;
  }
  memcpy(s->list + s->n, k->best, (size_t)k->n * sizeof *k->best);
  s->n += k->n;
  k->n = 0;
}

static void look_at(void *to, const struct candidate *given)
{
  struct keeper *k = to;
  struct candidate c = *given;
  k->s->found->legal = plus_times(k->s->found->legal, 1, choices_with(k->s->space, &c));
  estimate(k->s->space, &k->s->probes, &c);
  c.order = order_of(k->s, &c);
  if (k->n && !same_mesh_of(k->s->space, &k->best[0], &c)) keep_mesh(k);
  int at = k->n < KEPT_OF_MESH ? k->n++ : KEPT_OF_MESH - 1;
  if (at == KEPT_OF_MESH - 1 && k->n == KEPT_OF_MESH && k->best[at].order > 0 &&
      compare(&k->best[at], &c) < 0)
    return;
  while (at && compare(&c, &k->best[at - 1]) < 0) {
    k->best[at] = k->best[at - 1];
    at--;
  }
  k->best[at] = c;
}

static void sort_list(struct search *s)
{
  for (int i = 0; i < s->n; i++) s->list[i].order = order_of(s, &s->list[i]);
  qsort(s->list, (size_t)s->n, sizeof *s->list, compare);
}

/* --------------------------------------------------------------------------------------- rounds */

static int index_of_tried(const struct found *f, const struct candidate *c)
{
  for (int i = 0; i < f->n; i++)
    if (same_candidate(f->space, &f->tried[i], c)) return i;
  return NONE;
}

int compare_tried(const struct found *f, int a, int b)
{
  const struct evaluated *x = outcome_at(f->tried[a].tried), *y = outcome_at(f->tried[b].tried);
  const bool x_fits = candidate_fits(f->space, x), y_fits = candidate_fits(f->space, y);
  if (x_fits != y_fits) return x_fits ? -1 : 1;
  if (x_fits) return x->step.seconds < y->step.seconds ? -1 : x->step.seconds > y->step.seconds;
  if (x->is_there != y->is_there) return x->is_there ? -1 : 1;
  if (!x->is_there) return 0;
  return x->step.bytes < y->step.bytes ? -1 : x->step.bytes > y->step.bytes;
}

/* Fewer settings, then fewer dimensions, then quicker. */
static bool is_simpler(const struct found *f, int a, int b)
{
  const struct candidate *x = &f->tried[a], *y = &f->tried[b];
  int on[2] = {settings_on(f->space, x), settings_on(f->space, y)}, dimensions[2] = {0};
  for (int i = 0; i < f->space->n; i++) {
    if (!is_rank_kind(f->space->at[i].kind)) continue;
    dimensions[0] += is_on(f->space, x, i);
    dimensions[1] += is_on(f->space, y, i);
  }
  if (on[0] != on[1]) return on[0] < on[1];
  if (dimensions[0] != dimensions[1]) return dimensions[0] < dimensions[1];
  return outcome_at(x->tried)->step.seconds < outcome_at(y->tried)->step.seconds;
}

static void choose(struct found *f)
{
  f->best = f->closest = NONE;
  for (int i = 0; i < f->n; i++) {
    const struct evaluated *o = outcome_at(f->tried[i].tried);
    if (!o->is_there) continue;
    if (candidate_fits(f->space, o) && (f->best == NONE || compare_tried(f, i, f->best) < 0))
      f->best = i;
    if (f->closest == NONE || o->step.bytes < outcome_at(f->tried[f->closest].tried)->step.bytes)
      f->closest = i;
  }
  if (f->best == NONE) return;
  /* Of those that are as quick, the simplest. */
  const double most = outcome_at(f->tried[f->best].tried)->step.seconds * TIES;
  for (int i = 0; i < f->n; i++) {
    const struct evaluated *o = outcome_at(f->tried[i].tried);
    if (!candidate_fits(f->space, o) || o->step.seconds > most) continue;
    if (is_simpler(f, i, f->best)) f->best = i;
  }
}

static void try_candidates(struct search *s, struct candidate *list, int n)
{
  static struct job job[MOST_TRIED];
  struct found *f = s->found;
  int begun = 0;
  for (int i = 0; i < n; i++) {
    if (index_of_tried(f, &list[i]) != NONE) continue;
    struct evaluated *to = new_outcome(&list[i].tried);
    if (!to) break;
    job[begun].to = to;
    job[begun].space = s->space;
    job[begun].ndefinition = definitions_of(s->space, &list[i], &job[begun].definition);
    begun++;
    GROW(f->tried, f->n, f->room);
    f->tried[f->n++] = list[i];
  }
  run_jobs(job, begun);
  for (int i = f->n - begun; i < f->n; i++) {
    struct evaluated *o = outcome_at(f->tried[i].tried);
    if (o->is_there && !may_have_ranks(s->space, o->ranks)) {
      snprintf(o->why, sizeof o->why, "its mesh has %d ranks, and the cluster %d devices", o->ranks,
               s->space->devices);
      o->is_there = false;
    }
  }
  choose(f);
}

static double best_seconds(const struct found *f)
{
  double best = INFINITY;
  for (int i = 0; i < f->n; i++) {
    const struct evaluated *o = outcome_at(f->tried[i].tried);
    if (candidate_fits(f->space, o)) best = fmin(best, o->step.seconds);
  }
  return best;
}

/* The closed form knows least of small programs, whose time is that of starts. */
static bool is_small_program(const struct search *s)
{
  return s->first_round > FIRST_ROUND || s->space->is_machine;
}

static bool same_mesh_and_zero(const struct search_space *s, const struct candidate *a,
                               const struct candidate *b)
{
  const int zero = s->of_kind[SEARCH_ZERO];
  return same_mesh_of(s, a, b) && (zero == NONE || a->v[zero] == b->v[zero]);
}

/* Whether it needs nearly all memory, or more, as far as is known. */
static bool is_tight(const struct search *s, const struct candidate *c)
{
  return s->space->memory && c->bytes > ROOMY * (double)s->space->memory;
}

/* Of pipelines, whose memory is known least, first ones that are tight may be far slower than the
   estimate, or not fit: beside them the first ones of their shapes that are not tight. */
static int add_roomy(const struct search *s, struct candidate *round, int n)
{
  const double most = s->list[0].order * FAR_ROOMY;
  const int first = n;
  for (int i = 0; i < s->n && n < first + MOST_ROOMY && s->list[i].order <= most; i++) {
    if (is_tight(s, &s->list[i])) continue;
    bool stands_for = false;
    for (int k = 0; k < n; k++) {
      if (!same_shape_of(s->space, &round[k], &s->list[i])) continue;
      stands_for = k < first && is_tight(s, &round[k]) && has_stages(s->space, &round[k]);
    }
    if (stands_for) round[n++] = s->list[i];
  }
  return n;
}

/* The first round looks around: one of each shape of mesh; of a small program, of each mesh with
   each form of what is cut over it. */
static int choose_first(const struct search *s, struct candidate *round)
{
  const double most = s->list[0].order * FAR;
  int n = 0;
  for (int i = 0; i < s->n && n < s->first_round; i++) {
    if (n >= LEAST_OF_ROUND && s->list[i].order > most && !is_small_program(s)) break;
    bool has_other = false;
    for (int k = 0; k < n && !has_other; k++)
      has_other = (is_small_program(s) ? same_mesh_and_zero : same_shape_of)(s->space, &round[k],
                                                                             &s->list[i]);
    if (!has_other) round[n++] = s->list[i];
  }
  return add_roomy(s, round, n);
}

/* The index of the candidate that has the other value of the setting, and is else equal; or NONE.
 */
static int index_with(const struct found *f, const struct candidate *c, int setting, int value)
{
  struct candidate other = *c;
  other.v[setting] = (unsigned char)value;
  settle_values(f->space, &other);
  return index_of_tried(f, &other);
}

/* Whether it is a tried one that fits, but makes more again: that takes longer, unless memory kept
   the tried one from adding up whole gradients. */
static bool only_makes_more_again(const struct search *s, const struct candidate *c)
{
  const int again = s->space->of_kind[SEARCH_RECOMPUTE];
  if (again == NONE || !c->v[again] || s->space->at[again].pinned) return false;
  const int at = index_with(s->found, c, again, 0);
  if (at == NONE) return false;
  const struct evaluated *o = outcome_at(s->found->tried[at].tried);
  return candidate_fits(s->space, o) && o->decided.gradients != REDUCED_EACH;
}

static int choose_next(const struct search *s, int number, struct candidate *round)
{
  const double most = best_seconds(s->found) * HOPELESS;
  int n = 0;
  for (int i = 0; i < s->n && n < ROUND; i++) {
    if (index_of_tried(s->found, &s->list[i]) != NONE) continue;
    if ((n >= LEAST_OF_ROUND || number >= LEAST_ROUNDS) && s->list[i].order > most) break;
    if (only_makes_more_again(s, &s->list[i])) continue;
    int alike = 0;
    for (int other = 0; other < n; other++)
      alike += same_shape_of(s->space, &round[other], &s->list[i]);
    if (alike < ALIKE_IN_ROUND) round[n++] = s->list[i];
  }
  return n;
}

struct near {
  const struct search *s;
  int n, room;
  struct candidate *at;
};

/* A product of copies and shards is a setting of its own where the plan has none for copies. */
static void add_near(struct near *near, struct candidate c)
{
  const struct search_space *s = near->s->space;
  settle_values(s, &c);
  if (!is_legal(s, &c) || index_of_tried(near->s->found, &c) != NONE) return;
  for (int i = 0; i < near->n; i++)
    if (same_candidate(s, &near->at[i], &c)) return;
  estimate(s, &near->s->probes, &c);
  c.order = order_of(near->s, &c);
  GROW(near->at, near->n, near->room);
  near->at[near->n++] = c;
}

/* The quickest by the closed form of the plans that were tried, if they share layers and the choice
   counts: of those with stages, or of those without. NONE: there is none. */
static int first_with(const struct search *s, bool staged, int choice)
{
  const struct found *f = s->found;
  int best = NONE;
  for (int i = 0; i < f->n; i++) {
    const struct candidate *c = &f->tried[i];
    if (has_stages(s->space, c) != staged || ranks_in(s->space, c, SEARCH_TENSOR) < 2 ||
        !counts_in(s->space, c, choice) || !outcome_at(c->tried)->is_there)
      continue;
    if (best == NONE || c->seconds < f->tried[best].seconds) best = i;
  }
  return best;
}

static bool is_much_better(const struct search *s, int a, int b)
{
  const struct evaluated *x = outcome_at(s->found->tried[a].tried),
                         *y = outcome_at(s->found->tried[b].tried);
  const bool fits = candidate_fits(s->space, x);
  if (fits != candidate_fits(s->space, y)) return fits;
  return x->is_there && x->step.seconds * SLOW_CHOICE < y->step.seconds;
}

/* The choices that go with ranks which share layers, of the first ones: what is tried from then on
   has the values that are much better. Without them the rounds would learn nothing of the plans
   that one would take: a pipeline sends whole activations without sp, for one. */
static void learn_choices(struct search *s)
{
  const struct search_space *space = s->space;
  const int tensor = space->of_kind[SEARCH_TENSOR];
  int of[2][MOST_SEARCHED];
  struct near near = {.s = s};
  for (int staged = 0; staged < 2; staged++)
    for (int i = 0; i < space->n; i++) {
      const struct searched *at = &space->at[i];
      of[staged][i] = NONE;
      if (at->kind != SEARCH_CHOICE || at->pinned || tensor == NONE ||
          !is_named(space->at[tensor].name, at->with))
        continue;
      of[staged][i] = first_with(s, staged, i);
      for (int v = 0; v < at->n && of[staged][i] != NONE; v++) {
        struct candidate other = s->found->tried[of[staged][i]];
        if (v == other.v[i]) continue;
        other.v[i] = (unsigned char)v;
        add_near(&near, other);
      }
    }
  try_candidates(s, near.at, near.n);
  for (int staged = 0; staged < 2; staged++)
    for (int i = 0; i < space->n; i++) {
      int best = of[staged][i];
      for (int v = 0; v < space->at[i].n && best != NONE; v++) {
        const int at = index_with(s->found, &s->found->tried[of[staged][i]], i, v);
        if (at == NONE || !is_much_better(s, at, best)) continue;
        best = at;
        s->learned[staged][i] = (unsigned char)v;
      }
    }
}

/* The list's candidates with the choices that were learned. */
static void take_learned(struct search *s)
{
  for (int k = 0; k < s->n; k++) {
    struct candidate *c = &s->list[k];
    const bool staged = has_stages(s->space, c);
    for (int i = 0; i < s->space->n; i++)
      if (s->learned[staged][i] && counts_in(s->space, c, i)) c->v[i] = s->learned[staged][i];
  }
}

static void try_rounds(struct search *s)
{
  struct candidate round[MOST_IN_ROUND + MOST_ROOMY];
  for (int k = 0; k < MOST_ROUNDS && !search_is_over(); k++) {
    sort_list(s);
    const int n = k ? choose_next(s, k, round) : choose_first(s, round);
    if (!n) break;
    try_candidates(s, round, n);
    if (k) continue;
    learn_choices(s);
    take_learned(s);
  }
}

/* ------------------------------------------------------------------------------------- refining */

static int value_index(const struct searched *at, int64_t number)
{
  for (int v = 0; v < at->n; v++)
    if (at->number[v] == number) return v;
  return NONE;
}

/* The same with the micro-batches multiplied by 1, 2, 4, 8, 1/2, 1/4 and 1/8: other ranks may ask
 * that. */
static void add_with_microbatches(struct near *near, struct candidate c)
{
  static const int up[] = {1, 2, 4, 1, 1, 8, 1}, down[] = {1, 1, 1, 2, 4, 1, 8};
  const int at = near->s->space->of_kind[SEARCH_MICROBATCHES];
  if (at == NONE || near->s->space->at[at].pinned) {
    add_near(near, c);
    return;
  }
  const struct searched *m = &near->s->space->at[at];
  const int64_t has = m->number[c.v[at]];
  for (int i = 0; i < 7; i++) {
    const int v = has % down[i] ? NONE : value_index(m, has * up[i] / down[i]);
    if (v == NONE) continue;
    c.v[at] = (unsigned char)v;
    add_near(near, c);
  }
}

/* With new copies of the parameters, what the optimizer keeps may be cut over them: whole it may
   not fit. */
static void add_cut_states(struct near *near, struct candidate c, int to)
{
  const struct search_space *s = near->s->space;
  const int zero = s->of_kind[SEARCH_ZERO];
  if (s->at[to].kind != SEARCH_COPIES || zero == NONE || s->at[zero].pinned) return;
  for (int v = 0; v < s->at[zero].n; v++) {
    if (v == c.v[zero]) continue;
    struct candidate other = c;
    other.v[zero] = (unsigned char)v;
    add_with_microbatches(near, other);
  }
}

/* Ranks go from one setting to another one. */
static void add_moved_ranks(struct near *near, const struct candidate *c, int from, int to)
{
  static const int factor[] = {2, 3, 4, 5, 7, 8};
  const struct searched *a = &near->s->space->at[from], *b = &near->s->space->at[to];
  const int64_t x = a->number[c->v[from]], y = b->number[c->v[to]];
  for (int i = 0; i <= (int)(sizeof factor / sizeof *factor); i++) {
    const int64_t by = i < (int)(sizeof factor / sizeof *factor) ? factor[i] : x;
    const int v = x % by ? NONE : value_index(a, x / by), w = value_index(b, y * by);
    if (by <= 1 || v == NONE || w == NONE) continue;
    struct candidate other = *c;
    other.v[from] = (unsigned char)v;
    other.v[to] = (unsigned char)w;
    add_with_microbatches(near, other);
    add_cut_states(near, other, to);
  }
}

/* Whether ranks may move from the setting to another one. */
static bool is_moved(const struct search_space *s, int i)
{
  const enum search_kind kind = s->at[i].kind;
  return is_rank_kind(kind) && kind != SEARCH_EXPERTS && !s->at[i].pinned && !s->at[i].refused;
}

/* With another schedule, as many stages as it is good with. */
static void add_with_stages(struct near *near, struct candidate c)
{
  const struct search_space *s = near->s->space;
  const int at = s->of_kind[SEARCH_STAGES_OF_RANK];
  for (int v = 0; at != NONE && !s->at[at].pinned && v < s->at[at].n; v++) {
    c.v[at] = (unsigned char)v;
    add_near(near, c);
  }
}

/* The same with another value of a setting. */
static void add_other_values(struct near *near, const struct candidate *c, int i)
{
  const struct search_space *s = near->s->space;
  const enum search_kind kind = s->at[i].kind;
  if (s->at[i].pinned) return;
  if (is_moved(s, i)) {
    for (int k = 0; k < s->n; k++)
      if (k != i && is_moved(s, k)) add_moved_ranks(near, c, i, k);
    return;
  }
  for (int v = 0; v < s->at[i].n; v++) {
    if (v == c->v[i] || v == s->at[i].within_memory) continue;
    struct candidate other = *c;
    other.v[i] = (unsigned char)v;
    add_near(near, other);
    if (kind == SEARCH_SCHEDULE) add_with_stages(near, other);
    if (kind == SEARCH_RECOMPUTE || kind == SEARCH_ZERO) add_with_microbatches(near, other);
  }
}

static void sort_near(struct near *near)
{
  if (near->n) qsort(near->at, (size_t)near->n, sizeof *near->at, compare);
}

/* By how much a plan's time changed where a setting had another value, of pairs that were tried and
   differ in nothing else, in the mean; 0: there is no such pair. */
static double seen_change(const struct search *s, int setting, int from, int to)
{
  const struct found *f = s->found;
  double sum = 0;
  int n = 0;
  for (int i = 0; i < f->n; i++) {
    if (f->tried[i].v[setting] != from) continue;
    const int at = index_with(f, &f->tried[i], setting, to);
    if (at == NONE) continue;
    const struct evaluated *before = outcome_at(f->tried[i].tried),
                           *after = outcome_at(f->tried[at].tried);
    if (!candidate_fits(f->space, before) || !candidate_fits(f->space, after)) continue;
    sum += log(after->step.seconds / before->step.seconds);
    n++;
  }
  return n ? exp(sum / n) : 0;
}

/* The order of a neighbour: the leader's time, by the closed form for the ranks that moved, and for
   its other settings by what they did to other plans. Without such plans by those alike most. */
static double order_beside(const struct search *s, const struct candidate *leader,
                           struct candidate *c)
{
  const struct evaluated *o = outcome_at(leader->tried);
  struct candidate moved = *c;
  double change = 1, seconds, bytes;
  for (int i = 0; i < s->space->n; i++) {
    if (c->v[i] == leader->v[i] || is_rank_kind(s->space->at[i].kind)) continue;
    const double seen = seen_change(s, i, leader->v[i], c->v[i]);
    if (seen <= 0) continue;
    change *= seen;
    moved.v[i] = leader->v[i];
  }
  if (same_candidate(s->space, &moved, c)) return order_of(s, c);
  estimate(s->space, &s->probes, &moved);
  const double part = told_as(&moved, o).seconds / told_as(leader, o).seconds;
  correct(s, c, &seconds, &bytes);
  return o->step.seconds * part * change * lateness(s, c, bytes);
}

/* Neighbours of a leader that are not hopeless, some at a time, as each teaches about the others:
   of the best so many, and of one that is slower than the best of all not as many. The estimate is
   less exact for a pipeline: of its first ones more may be wrong. */
static void try_near(struct search *s, struct near *near, int leader)
{
  const struct candidate of = s->found->tried[leader];
  const bool is_slower =
      outcome_at(of.tried)->step.seconds > best_seconds(s->found) * TIES && !is_small_program(s);
  const int first = has_stages(s->space, &of) ? FIRST_VARIED : 0;
  int left = is_slower ? VARIED_OF_SLOWER : VARIED, tried = 0;
  while (near->n && left && !search_is_over()) {
    for (int i = 0; i < near->n; i++) near->at[i].order = order_beside(s, &of, &near->at[i]);
    sort_near(near);
    const double best = best_seconds(s->found);
    const int most = left < VARIED_AT_ONCE ? left : VARIED_AT_ONCE;
    int n = 0;
    while (n < near->n && n < most &&
           near->at[n].order < best * (tried + n < first ? FAR_NEAR : CLOSE))
      n++;
    if (!n) return;
    try_candidates(s, near->at, n);
    tried += n;
    left -= n;
    near->at += n, near->n -= n, near->room -= n;
  }
}

static bool is_better(const struct found *f, int a, int b)
{
  return candidate_fits(f->space, outcome_at(f->tried[a].tried)) && compare_tried(f, a, b) < 0;
}

/* Whether the candidate is hardly better with another value of a choice, by what the value did to
   plans of other shapes: it made one much slower; or the candidate is slower than the best, and
   would be with twice what the value gained there. */
static bool hardly_helps(const struct search *s, const struct candidate *c, int setting, int value)
{
  const struct found *f = s->found;
  const double now = outcome_at(c->tried)->step.seconds, best = best_seconds(f) * TIES;
  double least = INFINITY, most = 0; /* the part of the time that is left with the value */
  bool may_fit = false;
  for (int i = 0; i < f->n && !is_small_program(s); i++) {
    const struct candidate *other = &f->tried[i];
    if (other->v[setting] != value || same_shape_of(f->space, c, other)) continue;
    const int at = index_with(f, other, setting, c->v[setting]);
    const struct evaluated *with = outcome_at(other->tried);
    if (at == NONE || !candidate_fits(f->space, with)) continue;
    const struct evaluated *without = outcome_at(f->tried[at].tried);
    may_fit |= !candidate_fits(f->space, without);
    if (!candidate_fits(f->space, without)) continue;
    const double part = with->step.seconds / without->step.seconds;
    least = fmin(least, part);
    most = fmax(most, part);
  }
  if (most > SLOW_CHOICE) return true;
  return now > best && !may_fit && least < INFINITY && now * least * least > best;
}

/* Tries every value of each choice by itself, and then the quicker values together. */
static void vary_choices(struct search *s, int leader)
{
  struct found *f = s->found;
  const struct search_space *space = s->space;
  const struct candidate of = f->tried[leader];
  struct near near = {.s = s};
  for (int i = 0; i < space->n; i++)
    for (int v = 0; v < space->at[i].n && space->at[i].kind == SEARCH_CHOICE; v++) {
      struct candidate other = of;
      other.v[i] = (unsigned char)v;
      if (!space->at[i].pinned && v != of.v[i] && !hardly_helps(s, &of, i, v))
        add_near(&near, other);
    }
  try_candidates(s, near.at, near.n);
  struct candidate all = of;
  for (int i = 0; i < space->n; i++) {
    int best = leader;
    for (int v = 0; v < space->at[i].n && space->at[i].kind == SEARCH_CHOICE; v++) {
      const int at = index_with(f, &of, i, v);
      if (at != NONE && is_better(f, at, best)) all.v[i] = (unsigned char)v, best = at;
    }
  }
  near.n = 0;
  add_near(&near, all);
  if (near.n) try_candidates(s, near.at, near.n);
}

/* The quickest that fits of each shape of mesh, of those not much slower than the best: the first
   one that was not varied yet; or NONE. */
static int next_leader(const struct search *s, const bool *was_varied)
{
  const struct found *f = s->found;
  const double most = best_seconds(f) * (is_small_program(s) ? FAR_SMALL_LEADER : FAR_LEADER);
  int best = NONE;
  for (int i = 0; i < f->n; i++) {
    const struct evaluated *o = outcome_at(f->tried[i].tried);
    if (!candidate_fits(f->space, o) || o->step.seconds > most) continue;
    bool leads = !was_varied[i];
    for (int k = 0; k < f->n && leads; k++)
      leads = k == i || !same_shape_of(f->space, &f->tried[i], &f->tried[k]) ||
              !candidate_fits(f->space, outcome_at(f->tried[k].tried)) ||
              compare_tried(f, i, k) < 0 || (compare_tried(f, i, k) == 0 && i < k);
    if (leads && (best == NONE || compare_tried(f, i, best) < 0)) best = i;
  }
  return best;
}

/* Of the best one, if it is a pipeline, the other numbers of stages that a rank may have: the
   closed form knows little of what they wait for each other. */
static void vary_stages(struct search *s, int leader)
{
  const int at = s->space->of_kind[SEARCH_STAGES_OF_RANK];
  if (leader != s->found->best || at == NONE || !has_stages(s->space, &s->found->tried[leader]))
    return;
  struct near near = {.s = s};
  add_other_values(&near, &s->found->tried[leader], at);
  try_candidates(s, near.at, near.n);
}

/* Varies the settings of the quickest of each shape one by one, until nothing is quicker. Choices
   first: the closed form knows nothing of them. */
static void refine(struct search *s)
{
  struct found *f = s->found;
  bool *was_varied = alloc(MOST_TRIED * sizeof *was_varied);
  const int most = is_small_program(s) ? MOST_SMALL_REFINED : MOST_REFINED;
  for (int k = 0; k < most && !search_is_over(); k++) {
    const int leader = next_leader(s, was_varied);
    if (leader == NONE) break;
    was_varied[leader] = true;
    vary_choices(s, leader);
    vary_stages(s, leader);
    struct near near = {.s = s};
    for (int i = 0; i < s->space->n; i++)
      if (s->space->at[i].kind != SEARCH_CHOICE) add_other_values(&near, &f->tried[leader], i);
    try_near(s, &near, leader);
  }
}

/* Whether both have copies, or none, and both cut parameters, or neither. */
static bool same_use_of_data(const struct search_space *s, const struct candidate *a,
                             const struct candidate *b)
{
  for (int i = 0; i < s->n; i++) {
    const enum search_kind kind = s->at[i].kind;
    if ((kind == SEARCH_COPIES || kind == SEARCH_SHARDS) && is_on(s, a, i) != is_on(s, b, i))
      return false;
  }
  return true;
}

/* The candidate with the choices of another one, and with each other value of those that the other
   one has not. */
static void add_with_choices_of(struct near *near, struct candidate c, const struct candidate *of)
{
  const struct search_space *s = near->s->space;
  for (int i = 0; i < s->n; i++)
    if (s->at[i].kind == SEARCH_CHOICE && counts_in(s, of, i)) c.v[i] = of->v[i];
  add_near(near, c);
  for (int i = 0; i < s->n; i++)
    if (s->at[i].kind == SEARCH_CHOICE && !counts_in(s, of, i)) add_other_values(near, &c, i);
}

/* Of the best one's shape of mesh, with copies in the place of what is cut or the other way round,
   what is nearly as quick: with its choices it may be quicker. */
static void try_other_uses_of_data(struct search *s)
{
  struct found *f = s->found;
  if (f->best == NONE) return;
  const struct candidate best = f->tried[f->best];
  const double most = best_seconds(f) * NEARLY;
  struct list leaders = {0}; /* the quickest of each use */
  for (int i = 0; i < f->n; i++) {
    const struct evaluated *o = outcome_at(f->tried[i].tried);
    if (!candidate_fits(f->space, o) || o->step.seconds > most) continue;
    if (!same_shape_of(f->space, &best, &f->tried[i]) ||
        same_use_of_data(f->space, &best, &f->tried[i]))
      continue;
    int k = 0;
    while (k < leaders.n && !same_use_of_data(f->space, &f->tried[leaders.at[k]], &f->tried[i]))
      k++;
    if (k == leaders.n) add(&leaders, i);
    if (compare_tried(f, i, leaders.at[k]) < 0) leaders.at[k] = i;
  }
  struct near near = {.s = s};
  for (int k = 0; k < leaders.n; k++) add_with_choices_of(&near, f->tried[leaders.at[k]], &best);
  try_candidates(s, near.at, near.n);
}

/* The choices of the quickest that fits of the same shape of mesh. */
static void take_choices(const struct found *f, struct candidate *c)
{
  int best = NONE;
  for (int i = 0; i < f->n; i++)
    if (candidate_fits(f->space, outcome_at(f->tried[i].tried)) &&
        same_shape_of(f->space, &f->tried[i], c) && (best == NONE || compare_tried(f, i, best) < 0))
      best = i;
  for (int i = 0; i < f->space->n && best != NONE; i++)
    if (f->space->at[i].kind == SEARCH_CHOICE) c->v[i] = f->tried[best].v[i];
}

/* The part of its time that a tried one would take at least if it made nothing again. */
static double least_part(const struct search *s, const struct candidate *c, int again)
{
  return s->probes.of[0].batch_seconds / s->probes.of[c->v[again] % MOST_PROBED].batch_seconds;
}

/* The least that the tried one may take with recomputation within memory; infinite: not less than
   it takes, or so little less that the trials are not worth it. */
static double least_within_memory(const struct search *s, int i, int again)
{
  static const double WORTH = 1 / 1.02;
  const struct candidate *c = &s->found->tried[i];
  const struct evaluated *o = outcome_at(c->tried);
  if (!candidate_fits(s->space, o)) return o->step.seconds;
  const double part = least_part(s, c, again);
  return part > WORTH || only_makes_more_again(s, c) ? INFINITY : o->step.seconds * part;
}

/* Recomputation within memory: of the candidates that may be quicker than the best with it, those
   that do not fit and those that make much again. The quickest come first. */
static void try_within_memory(struct search *s)
{
  const struct found *f = s->found;
  const int again = s->space->of_kind[SEARCH_RECOMPUTE];
  if (again == NONE || s->space->at[again].pinned || f->best == NONE) return;
  const int value = s->space->at[again].within_memory;
  if (value == NONE) return;
  for (int round = 0; round < ROUNDS_WITHIN_MEMORY && !search_is_over(); round++) {
    const double most = best_seconds(f);
    struct near near = {.s = s};
    for (int i = 0; i < f->n; i++) {
      if (!outcome_at(f->tried[i].tried)->is_there) continue;
      const double least = least_within_memory(s, i, again);
      if (least > most) continue;
      struct candidate c = f->tried[i];
      c.v[again] = (unsigned char)value;
      take_choices(f, &c);
      const int before = near.n;
      add_near(&near, c);
      if (near.n > before) near.at[before].order = least;
    }
    if (!near.n) return;
    sort_near(&near);
    try_candidates(s, near.at, near.n < WITHIN_MEMORY ? near.n : WITHIN_MEMORY);
  }
}

/* Recomputation within memory takes trials of its own, which a reason is not worth: the quickest
   that was tried without it is taken, if any fits. */
static void leave_within_memory(const struct found *f, struct candidate *c)
{
  const int again = f->space->of_kind[SEARCH_RECOMPUTE];
  if (again == NONE || f->space->at[again].pinned ||
      c->v[again] != f->space->at[again].within_memory)
    return;
  int best = NONE;
  for (int i = 0; i < f->n; i++)
    if (candidate_fits(f->space, outcome_at(f->tried[i].tried)) &&
        f->tried[i].v[again] != c->v[again] && (best == NONE || compare_tried(f, i, best) < 0))
      best = i;
  if (best != NONE) *c = f->tried[best];
}

/* For each setting of the choice a candidate that has another value, for its reason. */
static void try_runners_up(struct search *s)
{
  struct found *f = s->found;
  struct near all = {.s = s};
  if (f->best == NONE) return;
  struct candidate best = f->tried[f->best];
  leave_within_memory(f, &best);
  for (int i = 0; i < s->space->n; i++) {
    bool has_other = false;
    for (int k = 0; k < f->n && !has_other; k++)
      has_other =
          f->tried[k].v[i] != f->tried[f->best].v[i] && outcome_at(f->tried[k].tried)->is_there;
    if (has_other) continue;
    struct near near = {.s = s};
    add_other_values(&near, &best, i);
    for (int k = 0; k < s->space->n; k++) /* and ranks that come from another setting */
      if (k != i && is_moved(s->space, i) && is_moved(s->space, k))
        add_moved_ranks(&near, &best, k, i);
    sort_near(&near);
    if (near.n) add_near(&all, near.at[0]);
  }
  try_candidates(s, all.at, all.n);
}

/* The choice once more, with all checks: a program that they refuse is no choice. */
static void check_choice(struct search *s)
{
  struct found *f = s->found;
  for (int i = 0; i < MOST_CHECKED && f->best != NONE && !search_is_over(); i++) {
    struct evaluated *o = outcome_at(f->tried[f->best].tried);
    struct job job = {.is_checked = true, .space = s->space};
    int index;
    job.to = new_outcome(&index);
    if (!job.to) return;
    job.to->decided = o->decided;
    job.to->decided.is_given = true;
    job.ndefinition = definitions_of(s->space, &f->tried[f->best], &job.definition);
    run_jobs(&job, 1);
    if (job.to->is_there || job.to->stopped) return;
    *o = *job.to;
    choose(f);
  }
}

/* No combination is legal. */
_Noreturn static void refuse_pins(const struct search_space *s)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < s->n; i++)
    if (s->at[i].pinned &&
        (is_rank_kind(s->at[i].kind) || (s->at[i].kind == SEARCH_MICROBATCHES && !s->at[i].is_off)))
      put(&b, "%s %s%s=%lld", b.length ? "," : "", s->of_parallel ? "" : "-D ", s->at[i].name,
          (long long)s->at[i].number[0]);
  const char *of_batch =
      s->batch ? text(", with batch=%lld in equal parts", (long long)s->batch) : "";
  usage_error(2, "no settings of %s use all %d devices%s%s%s: %s", options.plan, s->devices,
              of_batch, b.length ? " and" : "", b.text,
              b.length && s->of_parallel ? "what is given must divide the devices, and the batch"
              : b.length                 ? "what -D says must divide the devices, and the batch"
                                         : "a larger batch has more of them");
}

struct found *search_plan(struct search_space *space, evaluator evaluate_candidate)
{
  struct search s = {.space = space};
  open_workers(evaluate_candidate, options.search_time);
  s.found = alloc(sizeof *s.found);
  *s.found = (struct found){.space = s.space, .best = NONE, .closest = NONE};
  learn_machine(&s);
  if (!search_is_over()) probe_model(&s);
  if (search_is_over()) {
    s.found->was_ended = true;
    close_workers();
    return s.found;
  }
  if (s.space->batch_at != NONE && !s.space->batch) {
    s.space->batch = s.space->devices;
    s.space->sets_batch = true;
  }
  probe_settings(&s);
  set_values(s.space);
  probe_ranks(&s);
  struct keeper k = {.s = &s};
  each_candidate(s.space, look_at, &k);
  keep_mesh(&k);
  if (!s.n) refuse_pins(s.space);
  sort_list(&s);
  if (s.n > MOST_KEPT) s.n = MOST_KEPT;
  try_rounds(&s);
  refine(&s);
  if (!search_is_over()) try_other_uses_of_data(&s);
  if (!search_is_over()) try_within_memory(&s);
  if (!search_is_over()) try_runners_up(&s);
  check_choice(&s);
  s.found->was_ended = search_is_over();
  close_workers();
  return s.found;
}
