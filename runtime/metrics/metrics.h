// SPDX-License-Identifier: MIT
// Reports of a run: lines for people, JSON for programs, a progress bar on a terminal.
#ifndef METRICS_H
#define METRICS_H

#include "base/failure.h"
#include "base/options.h"

// Opens the file of metrics (metrics_file.h) and reports the job, steps first to last. All of this
// module acts on rank 0 only. False, and why, if the file cannot be had.
bool metrics_open(const struct options *o, int first, int last, struct failure *why);

// After step t: reports it if it is due.
void metrics_step(int t);

// After a validation: reports it.
void metrics_validation(void);

// The job goes on from step t, an earlier one.
void metrics_go_back(int t);

// The job ends after step t, by its validations.
void metrics_stop(int t);

// Other work than steps begins and ends: its time does not count as theirs.
void metrics_pause(void);
void metrics_resume(void);

// After step t, the last one that was run: reports on the whole run.
void metrics_end(int t);

// At the end of the job. False, and why, if a report was lost: when the file or standard output
// fails, a message says so at once, and nothing more is written there.
bool metrics_close(struct failure *why);

#endif
