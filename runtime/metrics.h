// What a run tells of itself: lines for people, JSON for programs, a bar on a terminal.
#ifndef METRICS_H
#define METRICS_H

#include "failure.h"
#include "options.h"

// Makes the file of metrics and says what runs, steps first to last. All of this is rank 0's: on
// the other ranks nothing happens. False, and why, where the file cannot be made.
bool metrics_open(const struct options *o, int first, int last, struct failure *why);

// After step t: tells of it where it is its turn.
void metrics_step(int t);

// After a validation: tells of it.
void metrics_validation(void);

// The job ends after step t, before its last one.
void metrics_stop(int t);

// Other work than steps begins and has ended: it does not count as theirs.
void metrics_pause(void);
void metrics_resume(void);

// After the last step: tells of the whole.
void metrics_end(void);

// At the end of the job. False, and why, where something told was lost: of a file or of standard
// output that fails a note tells at once, and nothing more goes there.
bool metrics_close(struct failure *why);

#endif
