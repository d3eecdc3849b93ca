// SPDX-License-Identifier: MIT
// Values that move from a stage of a pipeline to another one, for generated C: by MPI
// (cpu/stages.c) or through shared memory (cpu/shared_memory/stages.c).
#ifndef CPU_STAGES_H
#define CPU_STAGES_H

#include "base/program.h"

// Sends n elements to a rank of the group, and does not wait. The value must stay until
// await_sent(value) returns; it may be sent to several. All return an error of MPI.
int send_to(const void *value, int n, MPI_Datatype type, int to, int tag, MPI_Comm group);
int await_sent(const void *value);
// The same of all values that begin within these bytes.
int await_sent_within(const void *begin, long bytes);
// Waits for all that has been sent.
int await_all_sent(void);
// For a library: no transfer is under way any more, or a call has failed.
void forget_transfers(void);

// Begins to receive n elements of a rank of the group, to a place that nothing touches until
// await_received(value) returns.
int post_receive(void *value, int n, MPI_Datatype type, int from, int tag, MPI_Comm group);
int await_received(const void *value);

// Waits for n elements of a rank of the group.
int receive_from(void *value, int n, MPI_Datatype type, int from, int tag, MPI_Comm group);

#endif
