// SPDX-License-Identifier: MIT
// The results of a job's validations so far; saved in checkpoints.
#ifndef VALIDATION_RESULTS_H
#define VALIDATION_RESULTS_H

#include "base/program.h"

struct validations {
  int step; // of the last one; 0: none yet
  double loss;
  int best_step; // of the best one
  double best;   // its measure: the loss, or the number that --best names
  int without;   // the number of later ones that were no better
};
extern OF_MODEL struct validations validations;

// The measure is the metric `name`; the best one has the greatest, or the least. Without a call the
// measure is the loss.
void validations_measure(const char *name, bool greatest);

// The name of the best one's measure in reports and checkpoints: "best_validation_loss",
// "best_validation_accuracy". The text stays.
const char *validations_best_name(void);

// Records one.
void validations_note(int step, double loss, double measure);

#endif
