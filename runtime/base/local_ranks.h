// SPDX-License-Identifier: MIT
// The state of the other ranks on this machine, and whether one has reported a failure.
#ifndef LOCAL_RANKS_H
#define LOCAL_RANKS_H

#include <stdbool.h>
#include "base/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

// A rank on this machine, as a process.
struct neighbour {
  int rank;
  int pid; // 0: it has exited, and its process id is not known
};

enum state { RUNS, STOPPED, GONE };

// Until the ranks have met they are found by their environments; `me` names the variables.
void neighbours_start(const struct identity *me);

// Sets the ranks of this machine, this one among them; the list is copied.
void neighbours_are(const struct neighbour *list, int n);

// The known ranks, in a list to be freed; returns their number; 0 if none is known, or out of
// memory.
int neighbours_list(struct neighbour **list);

enum state neighbour_state(const struct neighbour *n);

// Tells the other ranks of this machine, and run.sh, that the failure has been reported: one
// failure has one message. Stopped ranks end when they continue.
void silence_local_ranks(void);

// Whether a failure of this rank is still to be reported. Where several ranks fail at once, the
// lowest does so: a higher one waits for a moment.
bool neighbours_want_report(int rank);

// Asks rank 0, if it runs on this machine, to end the job's work.
void neighbours_ask_first(void);

// Whether a rank has asked so.
bool neighbours_asked(void);

// Records only for this rank that the failure has been reported.
void neighbours_reported(void);

// Whether it has been reported, by this rank or another one.
bool neighbours_hushed(void);

#ifdef __cplusplus
}
#endif

#endif
