// SPDX-License-Identifier: MIT
// The end of a training before its last step, with its checkpoint: by a signal, or by --max-time.
#ifndef EARLY_END_H
#define EARLY_END_H

#include <stdbool.h>
#include "base/options.h"

// The status of a job that ended so: BSD's EX_TEMPFAIL. Started again with --resume it goes on.
enum { ENDED_EARLY = 75 };

// From now on a signal or the time requests it, of a training that saves.
void early_end_open(const struct options *o);

// Collective, between steps. Whether all ranks end here, because one was asked.
bool early_end_is_due(void);

// Rank 0 reports it: after step t, which has been saved.
void early_end_tell(const struct options *o, int t);

#endif
