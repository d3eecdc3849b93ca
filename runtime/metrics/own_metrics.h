// SPDX-License-Identifier: MIT
// The plan's own metrics: the OUTPUTs of a program that trains. They are whole on every rank.
#ifndef OWN_METRICS_H
#define OWN_METRICS_H

#include "base/program.h"

struct own_metric {
  const char *name;
  long count;     // of its elements
  float *of_step; // those of the step, or of the forward, that was read last
  const struct tensor *tensor;
  const struct validated *row; // how validations join it, or NULL: they leave it out
  double *sums;                // of a validation
  float *validated;            // by the last validation
};

// All of them, and their number: none for a program that only goes forward. NULL if memory is
// short.
const struct own_metric *own_metrics(int *n);

// Reads those of the last step, or of the last forward.
void own_metrics_read(void);

#endif
