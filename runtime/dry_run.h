// What a job takes, told without training: memory, time and files.
#ifndef DRY_RUN_H
#define DRY_RUN_H

#include "options.h"

// Collective. Everything is prepared, and training stands at step `step`: runs a few steps to
// measure them, saves nothing, and rank 0 tells.
void dry_run(const struct options *o, int step);

#endif
