// SPDX-License-Identifier: MIT
// The interface of a target. cpu.c implements it with MPI, cuda.cu with CUDA and NCCL.
//
// "Collective": every rank of the job calls it, in the same order. After target_start has
// succeeded, a call that fails ends the whole job by fail_call.
#ifndef TARGET_H
#define TARGET_H

#include <stddef.h>
#include <stdint.h>
#include "base/launch.h"
#include "base/watchdog.h"

#ifdef __cplusplus
extern "C" {
#endif

// The first that a program calls: it may start the program again.
void target_prepare(char **argv);

// Requests, before target_start, that each step runs as one graph. False, and why, if the target
// has no graphs.
bool target_capture(struct failure *why);

// Requests, before target_start, a report at the end on the time of the parts of a step. False, and
// why, if the target cannot.
bool target_profile(struct failure *why);

// Collective. Finds the other ranks; if no launcher's variable set `me`, the target may. False, and
// why, if they cannot be found; `why` is empty if another rank reports it.
bool target_start(struct identity *me, struct failure *why);

// Collective. The ranks on this machine, this one among them, in a list to be freed; returns their
// number; 0 if the target does not know them.
int target_neighbours(struct neighbour **list);

// Collective. The lowest rank that is not ok, or -1. Also a barrier.
int target_first_failure(bool ok);

// Collective. False, and why, if this rank runs another program than rank 0.
bool target_same_program(struct failure *why);

// Collective. Copies rank 0's bytes to all ranks.
void target_share(void *bytes, size_t count);

// Collective. Each number becomes its exclusive or over all ranks.
void target_combine(uint32_t *numbers, size_t count);

// Collective. Makes the communicators of the program's groups, and gives them to the program.
void target_groups(void);

// Zeroed memory for the program, aligned for any use; NULL, and why, if it cannot be had.
void *target_allocate(size_t bytes, struct failure *why);

// Runs the program's `begin`, if there is one, or on a GPU issues it.
void target_begin(void);

// Releases it, after all else: in a library, or at the end of a program.
void target_free(void *memory);

// Step t, counted from 1: runs it, or on a GPU issues it.
void target_step(int t);

// Runs an entry of the program, beside its step, to completion: of a validation or of generation.
void target_run(void (*entry)(void));

// For programs by tpgen --check-finite: the first value of all steps so far on this rank that is
// NaN or infinity. False if there is none.
struct not_finite {
  const char *name; // "layers.*.attention.wq" for a module of a list
  int line;         // of the plan
  int module;       // the index in the list
  long at;          // its element in this rank's part
  bool is_nan;
};
bool target_not_finite(struct not_finite *first);

// Copies to and from the program's memory, in the order of its work. After target_put the source
// may change at once; target_get waits for all work before it.
void target_put(void *memory, const void *from, size_t bytes);
void target_get(void *to, const void *memory, size_t bytes);

// Waits for all work of the previous steps.
void target_wait(void);

// From the watchdog's thread: the action that this rank waits for.
struct waiting target_waiting(void);

// From the watchdog's thread: whether the connection to the other ranks is broken, and the details.
bool target_trouble(struct failure *what);

// From the watchdog's thread, which is about to end the process: notifies the other ranks, if
// possible.
void target_abandon(void);

// The peak memory of this rank so far, in bytes; 0 if unknown.
size_t target_peak(void);

// The seconds that this rank has worked so far, and did not wait for others; on a GPU those of
// steps. They are measured from target_measure_work on, on a GPU only if steps may be taken apart
// for it. 0: not measured.
double target_worked(void);
void target_measure_work(bool takes_apart);

// The device's peak in the program's arithmetic, in 10^12 operations a second, or 0 if unknown.
double target_peak_tflops(void);

// Collective.
void target_stop(void);

#ifdef __cplusplus
}
#endif

#endif
