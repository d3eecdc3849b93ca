// SPDX-License-Identifier: MIT
// Chooses between streams of tokens, windows of tokens and samples.
#include "data/batches.h"

#include <stdlib.h>
#include <string.h>
#include "base/program.h"
#include "base/target.h"
#include "data/data_set.h"
#include "data/tokens.h"
#include "tensors/integer_inputs.h"
#include "tensors/tensor_table.h"
#include "tensors/tensors.h"

static struct source {
  struct input_files files;
  bool is_open, of_set;
  struct tokens tokens;
  struct data_set set;
  bool in_order; // of samples or windows; else a stream of tokens
  struct order order;
} sources[PURPOSES];

// The position of the training; batch 0 at the beginning by default.
static struct {
  long batch;
  struct position at;
} start;

// The samples that the inputs hold, or that they were drawn.
static struct {
  bool is_known;
  enum purpose purpose;
  struct sample_range of;
} held;

// ---- smaller batches ---------------------------------------------------------------------------

static bool has_present(void)
{
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].role == BATCH && program->tensors[i].init.how == PRESENT) return true;
  return false;
}

static bool ignores_labels(void)
{
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].role == BATCH && numbers_ignoring(i)) return true;
  return false;
}

// Whether the program can be names which samples of a batch exist.
static bool takes_smaller(void)
{
  return has_present() || ignores_labels();
}

// Decides by the plan how to treat an epoch's last, incomplete batch.
static bool decide_last(struct source *s, enum purpose purpose, struct failure *why)
{
  struct order *o = &s->order;
  const unsigned long long left = o->samples % o->batch, samples = o->samples, batch = o->batch;
  const bool smaller =
      purpose == VALIDATION ? takes_smaller() : program->last_batch == LAST_SMALLER;
  const bool is_given =
      purpose == VALIDATION || !s->of_set || program->last_batch != LAST_NOT_GIVEN;
  const char *path = s->files.all[0].path;
  o->drops = !smaller && purpose != FORWARD;
  if (left == 0 || purpose == FORWARD) return true;
  if (!is_given)
    return failed(why,
                  "%s: %llu samples are %llu batches of %llu, and %llu more: say in train{} "
                  "drop_last = true to leave these out, or drop_last = false for a smaller batch",
                  path, samples, samples / batch, batch, left);
  if (smaller && !takes_smaller())
    return failed(why,
                  "%s: %llu samples are %llu batches of %llu, and %llu more, but the program does "
                  "not know a smaller batch: give its loss labels that it ignores, or an input "
                  "present{%llu}; or say drop_last = true",
                  path, samples, samples / batch, batch, left, batch);
  return order_has_batches(o) ||
         failed(why, "%s: %llu samples are not a batch of %llu", path, samples, batch);
}

// ---- opening -----------------------------------------------------------------------------------

static void go_on(struct order *o)
{
  if (!start.at.of_samples) return;
  o->first = start.batch;
  o->epoch = start.at.epoch;
  o->sample = start.at.sample;
  if (o->sample < o->samples) return;
  o->epoch++;
  o->sample = 0;
}

static bool order_samples(struct source *s, enum purpose purpose, uint64_t samples, uint64_t batch,
                          struct failure *why)
{
  s->in_order = true;
  s->order = (struct order){.samples = samples, .batch = batch};
  if (samples == 0 || batch == 0)
    return failed(why,
                  "%s: the inputs have no rows of tokens in common: windows of the text are not "
                  "distinct",
                  s->files.all[0].path);
  if (purpose == TRAINING) {
    s->order.shuffles = program->shuffles;
    s->order.seed = program->shuffle;
    go_on(&s->order);
  }
  return decide_last(s, purpose, why);
}

static uint64_t rows_of_tokens(void)
{
  for (int i = 0; i < program->ntensors; i++) {
    const struct tensor *t = &program->tensors[i];
    if (t->role == BATCH && t->init.how == TOKENS && t->ndim > 0) return (uint64_t)t->of[0];
  }
  return 0;
}

bool batches_open(enum purpose purpose, const char *const *names, const char *form,
                  struct failure *why)
{
  struct source *s = &sources[purpose];
  if (!input_files_find(&s->files, names, why)) return false;
  s->is_open = true;
  s->of_set = tokens_of_batch() == 0 || (!form && data_set_is(&s->files));
  if (s->of_set)
    return data_set_open(&s->set, &s->files, why) &&
           order_samples(s, purpose, s->set.samples, s->set.batch, why);
  if (!tokens_open(&s->tokens, &s->files, form, why)) return false;
  const bool windows = purpose != TRAINING || program->shuffles;
  return !windows || order_samples(s, purpose, tokens_windows(&s->tokens), rows_of_tokens(), why);
}

bool batches_are_open(enum purpose purpose)
{
  return sources[purpose].is_open;
}

bool batches_are_bytes(void)
{
  const struct source *s = &sources[TRAINING];
  return s->is_open && !s->of_set && tokens_are_bytes(&s->tokens);
}

bool batches_give_all(void)
{
  return (sources[TRAINING].is_open && sources[TRAINING].of_set) || sources[FORWARD].is_open;
}

const char *batches_summary(enum purpose purpose)
{
  const struct source *s = &sources[purpose];
  return !s->is_open ? "" : s->of_set ? s->set.summary : s->tokens.summary;
}

void batches_close_one(enum purpose purpose)
{
  struct source *s = &sources[purpose];
  data_set_close(&s->set);
  tokens_close(&s->tokens);
  input_files_free(&s->files);
  *s = (struct source){0};
}

void batches_close(void)
{
  for (int p = 0; p < PURPOSES; p++) batches_close_one((enum purpose)p);
  memset(&start, 0, sizeof start);
  memset(&held, 0, sizeof held);
}

// ---- where batches begin -----------------------------------------------------------------------

static uint64_t token_of_batch(long batch)
{
  return start.at.tokens + (uint64_t)(batch - start.batch) * (uint64_t)tokens_of_batch();
}

struct position batches_position(long batch)
{
  const struct source *s = &sources[TRAINING];
  if (!s->in_order) return (struct position){.tokens = token_of_batch(batch)};
  const struct sample_range of = order_batch(&s->order, batch);
  return (struct position){.of_samples = true, .epoch = of.epoch, .sample = of.sample};
}

void batches_go_on(long batch, const struct position *at)
{
  start.batch = batch;
  start.at = *at;
  if (sources[TRAINING].in_order) go_on(&sources[TRAINING].order);
}

long batches_of_epoch(enum purpose purpose)
{
  const struct order *o = &sources[purpose].order;
  if (!sources[purpose].in_order) return 0;
  return (long)(o->samples / o->batch + (!o->drops && o->samples % o->batch > 0));
}

// ---- judging -----------------------------------------------------------------------------------

bool batches_check(enum purpose purpose, long first, long last, struct failure *why)
{
  const struct source *s = &sources[purpose];
  if (!s->is_open || first >= last) return true;
  if (!s->in_order)
    return tokens_check(&s->tokens, token_of_batch(first), token_of_batch(last), why);
  const struct sample_range begin = order_batch(&s->order, first),
                            end = order_batch(&s->order, last - 1);
  const bool some = begin.epoch == end.epoch && !s->order.shuffles;
  const uint64_t from = some ? begin.sample : 0;
  const uint64_t to = some ? end.sample + end.count : s->order.samples;
  if (s->of_set) return data_set_check(&s->set, from, to, why);
  return tokens_check(&s->tokens, from * s->tokens.window, to * s->tokens.window, why);
}

// ---- batches -----------------------------------------------------------------------------------

// Writes 1 for a sample that exists, 0 for one that does not.
static bool fill_present(uint64_t count, struct failure *why)
{
  for (int row = 0; row < program->ntensors; row++) {
    const struct tensor *t = &program->tensors[row];
    if (t->role != BATCH || t->init.how != PRESENT) continue;
    const size_t here = (size_t)t->here[0], first = (size_t)rank->parts[row].first[0];
    float *all = malloc((here + 1) * sizeof *all);
    if (!all) return failed(why, "out of memory");
    for (size_t i = 0; i < here; i++) all[i] = first + i < count ? 1 : 0;
    target_put((char *)rank_memory + t->offset, all, here * sizeof *all);
    free(all);
  }
  return true;
}

static bool is_held(const struct source *s, enum purpose purpose, const struct sample_range *of)
{
  return held.is_known && held.purpose == purpose && held.of.sample == of->sample &&
         held.of.count == of->count && (held.of.epoch == of->epoch || !s->order.shuffles);
}

static bool fill_in_order(struct source *s, const struct sample_range *of, struct failure *why)
{
  if (!fill_present(of->count, why)) return false;
  return s->of_set ? data_set_fill(&s->set, &s->order, of, why)
                   : tokens_fill_windows(&s->tokens, &s->order, of, why);
}

uint64_t batches_samples(enum purpose purpose)
{
  const struct source *s = &sources[purpose];
  return s->in_order ? s->order.batch : 0;
}

uint64_t batches_all_samples(enum purpose purpose)
{
  const struct source *s = &sources[purpose];
  return s->in_order ? s->order.samples : 0;
}

bool batches_fill(enum purpose purpose, long i, uint64_t *samples, struct failure *why)
{
  struct source *s = &sources[purpose];
  *samples = 0;
  if (!s->in_order) {
    held.is_known = false;
    return tokens_fill(&s->tokens, token_of_batch(i), why);
  }
  const struct sample_range of = order_batch(&s->order, i);
  *samples = of.count;
  if (purpose != VALIDATION && is_held(s, purpose, &of)) return true;
  held.is_known = false;
  if (!fill_in_order(s, &of, why)) return false;
  held.is_known = true;
  held.purpose = purpose;
  held.of = of;
  return true;
}

void next_batch(long i)
{
  struct failure why;
  uint64_t samples;
  bool ok = true;
  const enum purpose purpose = batches_are_open(FORWARD) ? FORWARD : TRAINING;
  if (batches_are_open(purpose))
    ok = batches_fill(purpose, i, &samples, &why);
  else if (held.is_known) // after a validation: restores the drawn inputs
    ok = tensors_draw_inputs(&why);
  if (!ok) fail_call(__FILE__, __LINE__, "next_batch", why.text);
  if (!batches_are_open(purpose)) held.is_known = false;
}
