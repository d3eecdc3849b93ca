// SPDX-License-Identifier: MIT
#include "metrics/validation_results.h"

#include <stdio.h>

OF_MODEL struct validations validations;

static bool takes_greatest;
static char best_name[300] = "best_validation_loss";

void validations_measure(const char *name, bool greatest)
{
  takes_greatest = greatest;
  snprintf(best_name, sizeof best_name, "best_validation_%s", name);
}

const char *validations_best_name(void)
{
  return best_name;
}

// NaN is never an improvement.
void validations_note(int step, double loss, double measured)
{
  struct validations *v = &validations;
  v->step = step;
  v->loss = loss;
  if (measured == measured &&
      (v->best_step == 0 || (takes_greatest ? measured > v->best : measured < v->best))) {
    v->best = measured;
    v->best_step = step;
    v->without = 0;
  } else {
    v->without++;
  }
}
