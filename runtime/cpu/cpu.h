// SPDX-License-Identifier: MIT
// The ranks of a model on the CPU target.
#ifndef CPU_H
#define CPU_H

#include "base/program.h"
#include "base/target.h"

// The ranks of the model that runs.
struct ranks {
  MPI_Comm everyone;
  int here, size; // this rank, and the number of ranks, in MPI
  MPI_Errhandler handler;
  MPI_Op sum, max, min;
  communicator *communicators;
  int groups; // how many of them are made
};
extern OF_MODEL struct ranks ranks;

// Begins with these ranks. A call of MPI that fails returns from now on.
void cpu_join(MPI_Comm everyone);

// Makes these ranks those of the model that runs.
void cpu_use(const struct ranks *its);

// Collective. Releases all but `everyone`.
void cpu_leave(void);

// MPI's message about the last call that failed; NULL: none did.
const char *cpu_last_error(char text[MPI_MAX_ERROR_STRING]);

#endif
