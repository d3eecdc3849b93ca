// SPDX-License-Identifier: MIT
// --on-nan: what follows a step whose loss, or norm of the gradients, is NaN or infinite.
#ifndef NOT_FINITE_H
#define NOT_FINITE_H

#include <stdbool.h>
#include "base/failure.h"
#include "base/options.h"

// Collective, if --on-nan asks for it. Whether the step just done had such a number.
bool step_is_not_finite(const struct options *o);

// Before a step: for --on-nan skip, keeps a copy of what an update changes. False, and why, if out
// of memory.
bool step_note(const struct options *o, struct failure *why);

// Collective. Ends the job, and reports why: false. Or goes back to the last checkpoint, *t becomes
// its step, and the batches of the steps since then are left out; or undoes the step's update:
// true.
bool step_is_left(const struct options *o, int *t);

#endif
