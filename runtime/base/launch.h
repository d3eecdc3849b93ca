// SPDX-License-Identifier: MIT
// The rank's identity, from the environment variables of its launcher.
#ifndef LAUNCH_H
#define LAUNCH_H

#include "base/failure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct identity {
  const char *launcher;      // "torchrun", "Open MPI" ...; NULL if no launcher started this process
  const char *rank_variable; // the variable that has the rank
  const char *size_variable;
  int rank, size;
  int local_rank, local_size; // on this machine; -1 if the launcher does not say
  bool mpi;                   // MPI can be asked for the other ranks
};

// Reads the environment. Without a launcher's variables the process is rank 0 of 1. False, and why,
// if a variable is missing, is no number, or contradicts another.
bool launch_identity(struct identity *me, struct failure *why);

// Whether this is the job that the program was generated for. False, and why, if `me` is not of
// `world` ranks, or is not rank `id`, whose program this is.
bool launch_fits(const struct identity *me, int world, int id, struct failure *why);

#ifdef __cplusplus
}
#endif

#endif
