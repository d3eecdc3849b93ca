// SPDX-License-Identifier: MIT
// Watches the job from a thread of its own, so that a lost rank ends it with one clear message
// instead of a hang.
//
// The launcher notices a rank that dies, and ends the others by SIGTERM: the lowest of them on a
// machine then reports which rank is gone, and in which collective it was waiting itself. The other
// ranks notice a rank that hangs: none waits in one collective, or at the start or end of the job,
// for longer than the deadline.
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include "base/local_ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

// The action that this rank waits for, or NULL, and the micro-batch if it is one of a pipeline; its
// step, 0: that of watch_step; and a counter that grows as the rank makes progress.
struct place;
struct waiting {
  const struct place *at;
  int microbatch, step;
  unsigned long moved;
};

// According to the host's own calls.
struct waiting waiting_in_call(void);

// Starts the thread. deadline: in seconds, or 0 for none.
void watch_start(int deadline);

// The most seconds that a rank may be waited for now; 0: forever.
int watch_limit(void);

// From now on ranks may wait for each other for so many deadlines: 1, or more while they read and
// write files.
void set_deadline_factor(int deadlines);

// This program is a server from now on: a first SIGTERM, or SIGINT of rank 0, calls `stop` from the
// watchdog's thread. A second one ends the job at once, and so does the first where a rank is lost.
// A rank that is gone or stopped is missed after half a second, unless there is no deadline.
void watch_serves(void (*stop)(void));

// This program is a training that can save from now on: a first SIGTERM, or any SIGUSR1, calls
// `stop` from the watchdog's thread, with the signal's name. A second SIGTERM ends the job at once,
// and so does the first where a rank is lost, or where one has waited for another for 20 seconds.
void watch_saves(void (*stop)(const char *signal));

// The current step of the program.
void watch_step(int t);

// From now on ranks may leave one by one, and none counts as lost; but none is waited for beyond
// the deadline, either.
void watch_parting(void);

// From now on no rank is missed.
void watch_stop(void);

#ifdef __cplusplus
}
#endif

#endif
