// Batches of validation data; each is weighted by its number of labels or samples that count.
#include "validation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "batches.h"
#include "program.h"
#include "target.h"

static long batches; // of each validation

// ---- opening -----------------------------------------------------------------------------------

bool validation_open(const struct options *o, struct failure *why)
{
  const char *const of_plan[] = {program->validation_data, NULL};
  const char *const *names = o->validate[0] ? o->validate : of_plan;
  if (!names[0]) return true;
  if (!program->validate)
    return failed(why,
                  "%s: this program cannot validate: its loss is whole after the last batch "
                  "of a step alone. Say validate = {} in train{}, and generate it again",
                  names[0]);
  if (!batches_open(VALIDATION, names, o->tokens, why)) return false;
  const long asked = o->validate_steps ? o->validate_steps : program->validate_steps;
  batches = batches_of_validation();
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

// Collective. Sums each rank's numbers for some batches over the ranks.
static void add_up(uint32_t *weight, long count)
{
  const size_t ranks = (size_t)program->world, each = (size_t)count;
  uint32_t *all = calloc(ranks * each, sizeof *all);
  if (!all) fail_call(__FILE__, __LINE__, "calloc", "out of memory for a validation");
  memcpy(all + (size_t)rank->id * each, weight, each * sizeof *weight);
  target_combine(all, ranks * each);
  for (size_t i = 0; i < each; i++)
    for (size_t r = weight[i] = 0; r < ranks; r++) weight[i] += all[r * each + i];
  free(all);
}

static float loss_of_batch(long i, uint32_t *weight)
{
  struct failure why;
  long counts = 0;
  float loss;
  if (!batches_fill(VALIDATION, i, &counts, &why))
    fail_call(__FILE__, __LINE__, "batches_fill", why.text);
  *weight = (uint32_t)counts;
  target_run(program->validate);
  target_get(&loss, (const char *)rank_memory + program->loss, sizeof loss);
  return loss * (float)program->batches;
}

// Collective. The same number on all ranks: losses and weights are the same on all.
static double mean_loss(void)
{
  enum { AT_ONCE = 64 };
  double sum = 0, weights = 0;
  for (long first = 0; first < batches; first += AT_ONCE) {
    const long count = batches - first < AT_ONCE ? batches - first : AT_ONCE;
    uint32_t weight[AT_ONCE];
    float loss[AT_ONCE];
    for (long i = 0; i < count; i++) loss[i] = loss_of_batch(first + i, &weight[i]);
    add_up(weight, count);
    for (long i = 0; i < count; i++) {
      weights += weight[i];
      if (weight[i] > 0) sum += weight[i] * (double)loss[i];
    }
  }
  return weights > 0 ? sum / weights : NAN;
}

void validation_run(int t)
{
  validations_note(t, mean_loss());
}
