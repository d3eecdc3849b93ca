// SPDX-License-Identifier: MIT
#include "metrics/validation_results.h"

OF_MODEL struct validations validations;

// A loss of NaN is never an improvement.
void validations_note(int step, double loss)
{
  struct validations *v = &validations;
  v->step = step;
  v->loss = loss;
  if (loss == loss && (v->best_step == 0 || loss < v->best)) {
    v->best = loss;
    v->best_step = step;
    v->without = 0;
  } else {
    v->without++;
  }
}
