// Watches over the job from a thread of its own, so that a lost rank ends it with one clear message
// and never hangs it.
//
// A rank that dies is noticed by its launcher, which ends the others by SIGTERM: the lowest of them
// on a machine then says which rank is gone, and in which collective it was waiting. A rank that is
// there but does not go on is noticed by the others: none waits in one collective for longer than
// the deadline, and where the ranks start or end in no call that waits for others, either.
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include "local_ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

// What this rank waits in, or NULL; at which step, 0 where that is what watch_step told; and a
// number that grows while it gets on.
struct place;
struct waiting {
  const struct place *at;
  int step;
  unsigned long moved;
};

// As the host knows of itself.
struct waiting waiting_in_call(void);

// Starts the thread. deadline: in seconds, or 0 for none.
void watch_start(int deadline);

// For how many seconds a rank may be waited for now; 0: for ever.
int watch_limit(void);

// From here on ranks may keep each other waiting for so many deadlines: 1, or more where they read
// and write files.
void watch_patience(int deadlines);

// The step at which the program is.
void watch_step(int t);

// From here on ranks leave one by one: none of them is lost, but none is waited for beyond the
// deadline, either.
void watch_parting(void);

// From here on nobody is missed.
void watch_stop(void);

#ifdef __cplusplus
}
#endif

#endif
