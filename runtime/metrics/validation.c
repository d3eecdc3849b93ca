// SPDX-License-Identifier: MIT
// Batches of validation data; each is weighted by its number of labels or samples that count.
// The program counts the labels, as its loss does: so it is one count, whatever the plan makes of
// them.
#include "metrics/validation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/program.h"
#include "base/target.h"
#include "data/batches.h"
#include "metrics/own_metrics.h"

static long batches; // of each validation

static float number_of_step(ptrdiff_t offset)
{
  float x;
  target_get(&x, (const char *)rank_memory + offset, sizeof x);
  return x * (float)program->batches;
}

// ---- metrics of the plan's ---------------------------------------------------------------------

static const struct own_metric *own;
static int nown;
static struct {
  double as_loss, samples; // of the batches whose metrics count
} own_weights;
static uint64_t left_out; // samples of smaller batches whose metrics do not

static void begin_metrics(void)
{
  own_weights.as_loss = own_weights.samples = 0;
  left_out = 0;
  for (int k = 0; k < nown; k++)
    for (long i = 0; own[k].row && i < own[k].count; i++)
      own[k].sums[i] = own[k].row->by == BY_MAX   ? -INFINITY
                       : own[k].row->by == BY_MIN ? INFINITY
                                                  : 0;
}

// A maximum that is NaN stays so.
static double joined_with(enum joining by, double sum, double x, double weight)
{
  switch (by) {
  case BY_MEAN:
  case BY_SAMPLES:
    return weight > 0 ? sum + weight * x : sum;
  case BY_SUM:
    return sum + x;
  case BY_MAX:
    return x <= sum ? sum : x;
  case BY_MIN:
    return x >= sum ? sum : x;
  }
  return sum;
}

static void add_metrics(uint64_t samples, double weight)
{
  if (!program->validated) return;
  if (samples < batches_samples(VALIDATION) && !program->metrics_know_samples) {
    left_out += samples;
    return;
  }
  own_metrics_read();
  own_weights.as_loss += weight;
  own_weights.samples += (double)samples;
  for (int k = 0; k < nown; k++)
    for (long i = 0; own[k].row && i < own[k].count; i++)
      own[k].sums[i] = joined_with(own[k].row->by, own[k].sums[i], (double)own[k].of_step[i],
                                   own[k].row->by == BY_SAMPLES ? (double)samples : weight);
}

static double whole_of(enum joining by, double sum)
{
  return by == BY_MEAN      ? sum / own_weights.as_loss
         : by == BY_SAMPLES ? sum / own_weights.samples
                            : sum;
}

static void end_metrics(void)
{
  static bool told;
  for (int k = 0; k < nown; k++)
    for (long i = 0; own[k].row && i < own[k].count; i++)
      own[k].validated[i] = (float)whole_of(own[k].row->by, own[k].sums[i]);
  if (!left_out || told || rank->id != 0) return;
  told = true;
  fflush(stdout);
  fprintf(stderr,
          "rank 0: note: the metrics of validations leave out the last %llu samples, which fill no "
          "batch; with validate = {metrics = ...} or drop_last = false in train{} they count\n",
          (unsigned long long)left_out);
}

// ---- the best one ------------------------------------------------------------------------------

static const struct own_metric *best_by; // NULL: the loss

// Takes "max:NAME" or "min:NAME".
static bool open_measure(const char *best, struct failure *why)
{
  if (!best || strcmp(best, "min:loss") == 0) return true;
  for (int k = 0; k < nown; k++)
    if (own[k].row && own[k].count == 1 && strcmp(own[k].name, best + strlen("max:")) == 0)
      best_by = &own[k];
  validations_measure(best + strlen("max:"), strncmp(best, "max:", strlen("max:")) == 0);
  return best_by || failed(why, "--best %s: validations have no such number", best);
}

// ---- opening -----------------------------------------------------------------------------------

bool validation_open(const struct options *o, struct failure *why)
{
  const char *const of_plan[] = {program->validation_data, NULL};
  const char *const *names = o->validate[0] ? o->validate : of_plan;
  if (!names[0]) return true;
  if (!program->validate)
    return failed(why,
                  "%s: this program cannot validate: its loss is whole only after the last "
                  "batch of a step. Say validate = {} in train{}, and generate it again",
                  names[0]);
  if (!batches_open(VALIDATION, names, o->tokens, why)) return false;
  if (!(own = own_metrics(&nown))) return failed(why, "out of memory for the metrics");
  if (!open_measure(o->best, why)) return false;
  const long asked = o->validate_steps ? o->validate_steps : program->validate_steps;
  batches = batches_of_epoch(VALIDATION);
  if (asked > 0 && asked < batches) batches = asked;
  return batches > 0 || failed(why, "%s: it has no batch", names[0]);
}

bool validation_check(struct failure *why)
{
  return batches_check(VALIDATION, 0, batches, why);
}

bool validation_is_due(const struct options *o, int t, bool is_last)
{
  const int every = o->validate_every ? o->validate_every : program->validate_every;
  return batches > 0 && (is_last || (every > 0 && t % every == 0));
}

// ---- the whole ---------------------------------------------------------------------------------

// The same number on all ranks: so are the losses and the labels of a batch.
static double mean_loss(void)
{
  double sum = 0, weights = 0;
  begin_metrics();
  for (long i = 0; i < batches; i++) {
    struct failure why;
    uint64_t samples;
    if (!batches_fill(VALIDATION, i, &samples, &why))
      fail_call(__FILE__, __LINE__, "batches_fill", why.text);
    target_run(program->validate);
    const double weight = program->labels < 0 ? (double)samples : number_of_step(program->labels);
    weights += weight;
    if (weight > 0) sum += weight * (double)number_of_step(program->loss);
    add_metrics(samples, weight);
  }
  end_metrics();
  return weights > 0 ? sum / weights : NAN;
}

void validation_run(int t)
{
  const double loss = mean_loss();
  validations_note(t, loss, best_by ? (double)*best_by->validated : loss);
}
