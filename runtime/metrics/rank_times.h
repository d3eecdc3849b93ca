// SPDX-License-Identifier: MIT
// How long each rank works in a step and does not wait for others: who is slow, where all take the
// same time because they wait for each other.
#ifndef RANK_TIMES_H
#define RANK_TIMES_H

#include <stdbool.h>
#include "base/failure.h"

struct rank_times {
  double own;           // this rank's seconds of work in a step; 0: not measured
  double mean, slowest; // of all ranks, if they were asked; else 0
  int slowest_rank;
};

// Before the first step. asks: at each report each rank hears of all.
bool rank_times_open(bool asks, struct failure *why);

// Collective, if they ask. Of the `steps` steps since the last report.
struct rank_times rank_times_report(int steps);

// Other work than steps begins, and ends: it does not count.
void rank_times_pause(void);
void rank_times_resume(void);

void rank_times_close(void);

#endif
