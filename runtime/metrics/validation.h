// SPDX-License-Identifier: MIT
// Validation: the loss on other data, with the current weights.
#ifndef VALIDATION_H
#define VALIDATION_H

#include <stdbool.h>
#include "base/failure.h"
#include "base/options.h"
#include "metrics/validation_results.h"

// Opens the data that the options or the plan name, if any. False, and why.
bool validation_open(const struct options *o, struct failure *why);

// Checks this rank's share of its integers. False, and why.
bool validation_check(struct failure *why);

// Whether one is due after step t; always true after the last step.
bool validation_is_due(const struct options *o, int t, bool is_last);

// Collective. Runs one after step t, and records it in `validations`: the mean over all labels that
// are not ignored, or over all samples if labels cannot be ignored; and the metrics in own_metrics.
void validation_run(int t);

#endif
