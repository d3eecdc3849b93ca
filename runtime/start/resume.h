// SPDX-License-Identifier: MIT
// --resume: goes on from a folder's checkpoint, if there is one. And what a job may not replace.
#ifndef RESUME_H
#define RESUME_H

#include "base/failure.h"
#include "base/options.h"

// The step of the checkpoint in a folder; -1 if it has none.
int resume_step(const char *folder);

// Collective. With --resume: --load of the folder if it has a checkpoint; weights and adapters are
// then the checkpoint's own.
void resume_choose(struct options *o);

// Of rank 0. Whether the job, whose first step is `step` + 1, replaces no checkpoint of a later
// step than its own first one. False, and why.
bool resume_replaces_none(const struct options *o, int step, struct failure *why);

// Of rank 0. Whether the folder of --save has a checkpoint of a later step than t, which stays.
bool resume_is_behind(const struct options *o, int t);

#endif
