// SPDX-License-Identifier: MIT
// Reports the memory, time and files of a job without training.
#ifndef DRY_RUN_H
#define DRY_RUN_H

#include "base/options.h"

// Collective. Requires that everything is prepared and training is at step `step`. Runs a few steps
// to measure them, saves nothing; rank 0 reports.
void dry_run(const struct options *o, int step);

#endif
