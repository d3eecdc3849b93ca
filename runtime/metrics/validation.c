// SPDX-License-Identifier: MIT
// Batches of validation data; each is weighted by its number of labels or samples that count.
// The program counts the labels, as its loss does: so it is one count, whatever the plan makes of
// them.
#include "metrics/validation.h"

#include <math.h>
#include "base/program.h"
#include "base/target.h"
#include "data/batches.h"

static long batches; // of each validation

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

// ---- the mean ----------------------------------------------------------------------------------

static float number_of_step(ptrdiff_t offset)
{
  float x;
  target_get(&x, (const char *)rank_memory + offset, sizeof x);
  return x * (float)program->batches;
}

// The same number on all ranks: so are the losses and the labels of a batch.
static double mean_loss(void)
{
  double sum = 0, weights = 0;
  for (long i = 0; i < batches; i++) {
    struct failure why;
    uint64_t samples;
    if (!batches_fill(VALIDATION, i, &samples, &why))
      fail_call(__FILE__, __LINE__, "batches_fill", why.text);
    target_run(program->validate);
    const double weight = program->labels < 0 ? (double)samples : number_of_step(program->labels);
    weights += weight;
    if (weight > 0) sum += weight * (double)number_of_step(program->loss);
  }
  return weights > 0 ? sum / weights : NAN;
}

void validation_run(int t)
{
  validations_note(t, mean_loss());
}
