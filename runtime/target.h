// What the runtime asks of a target. cpu.c answers with MPI, cuda.cu with CUDA and NCCL.
//
// "Collective": every rank of the job calls it, in the same order. Once target_start has succeeded,
// a call that cannot do its work ends the whole job by fail_call.
#ifndef TARGET_H
#define TARGET_H

#include <stddef.h>
#include <stdint.h>
#include "launch.h"
#include "watchdog.h"

#ifdef __cplusplus
extern "C" {
#endif

// Asks for each step to be one graph, before target_start. False, and why, where the target has
// none.
bool target_capture(struct failure *why);

// Asks, before target_start, to tell at the end where the time of a step goes. False, and why,
// where the target cannot.
bool target_profile(struct failure *why);

// Collective. Finds the other ranks; where no launcher's variable told `me` who it is, the target
// may. False, and why, where they cannot be found; `why` is empty where another rank says it.
bool target_start(struct identity *me, struct failure *why);

// Collective. The ranks on this machine, this one among them, in a list to be freed: how many; 0
// where the target does not know them.
int target_neighbours(struct neighbour **list);

// Collective. The lowest rank that is not ok, or -1; a barrier, too.
int target_first_failure(bool ok);

// Collective. False, and why, where this rank carries another program than rank 0.
bool target_same_program(struct failure *why);

// Collective. Rank 0's bytes, to each.
void target_share(void *bytes, size_t count);

// Collective. Each number becomes the exclusive or of what all ranks have there.
void target_combine(uint32_t *numbers, size_t count);

// Collective. Makes the communicators of program.groups.
void target_groups(void);

// Zeroed memory for the program, aligned for any use; NULL, and why, where there is none.
void *target_allocate(size_t bytes, struct failure *why);

// Step t, counted from 1: done, or on a GPU given to it to do.
void target_step(int t);

// Runs program.validate, to its end.
void target_validate(void);

// Of a program that tpgen --check-finite wrote: the first value of all steps so far that is NaN or
// infinity, as this rank has met it. False where there is none.
struct not_finite {
  const char *name; // "layers.*.attention.wq": of a module of a list
  int line;         // of the plan
  int module;       // which one of the list
  long at;          // its element in this rank's part
  bool is_nan;
};
bool target_not_finite(struct not_finite *first);

// Copies to and from the program's memory, in the order of its work. What was put may change at
// once; getting waits for all work before it.
void target_put(void *memory, const void *from, size_t bytes);
void target_get(void *to, const void *memory, size_t bytes);

// Waits until all work of the steps before is done.
void target_wait(void);

// From the watch's thread: what this rank waits in.
struct waiting target_waiting(void);

// From the watch's thread: whether the way to the other ranks is broken, and what is known of it.
bool target_trouble(struct failure *what);

// From the watch's thread, which is about to end the process: tells the other ranks, as far as it
// can.
void target_abandon(void);

// The most memory that this rank has had so far, in bytes; 0 where it cannot be told.
size_t target_peak(void);

// What the device can reach in the program's arithmetic, in 10^12 operations a second, or 0 where
// that is not known.
double target_peak_tflops(void);

// Collective.
void target_stop(void);

#ifdef __cplusplus
}
#endif

#endif
