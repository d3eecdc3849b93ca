// What has become of the other ranks of this machine, and which of them has told of a failure.
#ifndef LOCAL_RANKS_H
#define LOCAL_RANKS_H

#include <stdbool.h>
#include "launch.h"

#ifdef __cplusplus
extern "C" {
#endif

// A rank on this machine, as a process.
struct neighbour {
  int rank;
  int pid; // 0: it is not there any more, and its number is not known
};

enum state { RUNS, STOPPED, GONE };

// Before the ranks have met they are found by their environments: `me` says which variables.
void neighbours_start(const struct identity *me);

// The ranks of this machine, this one among them; the list is copied.
void neighbours_are(const struct neighbour *list, int n);

// Those that are known of, in a list to be freed: how many; 0 where none is, or memory ended.
int neighbours_list(struct neighbour **list);

enum state neighbour_state(const struct neighbour *n);

// Says to the other ranks of this machine, and to run.sh, that what ended the job has been told:
// one failure has one message. Those that are stopped end when they go on.
void neighbours_hush(void);

// This rank knows by itself that it has been told.
void neighbours_told(void);

// Whether it has been told, by this rank or by another one.
bool neighbours_hushed(void);

#ifdef __cplusplus
}
#endif

#endif
