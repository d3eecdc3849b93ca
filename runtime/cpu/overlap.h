// SPDX-License-Identifier: MIT
// Collectives that overlap with arithmetic: the calls around them in generated C.
//
//   COLLECTIVE(.plan_line = 118, begun(&done[0], MPI_Iallgather(..., over_dp, &done[0])));
//   ...                         arithmetic that uses other bytes
//   COLLECTIVE(.plan_line = 118, await(&done[0]));
//
// Most MPIs go on with a collective only within their calls. So a thread makes such calls while any
// is in flight and the program computes.
#ifndef CPU_OVERLAP_H
#define CPU_OVERLAP_H

#include "base/program.h"

// Starts the thread, if MPI allows calls of several threads.
void overlap_start(void);

// Ends it, before MPI ends.
void overlap_stop(void);

// The request of a collective, and what the call that began it has returned, which this returns.
int begun(const MPI_Request *request, int error);

// Waits for the collective, if one was begun; returns MPI's error.
int await(MPI_Request *request);

#endif
