// SPDX-License-Identifier: MIT
// The results of a job's validations so far; saved in checkpoints.
#ifndef VALIDATION_RESULTS_H
#define VALIDATION_RESULTS_H

#include "base/program.h"

struct validations {
  int step; // of the last one; 0: none yet
  double loss;
  int best_step; // of the one with the lowest loss
  double best;
  int without; // the number of later ones that were no better
};
extern OF_MODEL struct validations validations;

// Records one.
void validations_note(int step, double loss);

#endif
