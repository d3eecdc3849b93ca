// SPDX-License-Identifier: MIT
// --on-nan: what follows a step whose loss, or norm of the gradients, is NaN or infinite.
#ifndef NOT_FINITE_H
#define NOT_FINITE_H

#include <stdbool.h>
#include "base/options.h"

// Collective, if --on-nan asks for it. Whether the step just done had such a number.
bool step_is_not_finite(const struct options *o);

// Collective. Ends the job, and reports why: false. Or goes back to the last checkpoint, *t becomes
// its step, and the batches of the steps since then are left out: true.
bool step_is_left(const struct options *o, int *t);

#endif
