// Who am I? A rank learns it from the variables that its launcher sets.
#ifndef LAUNCH_H
#define LAUNCH_H

#include "failure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct identity {
  const char *launcher;      // "torchrun", "Open MPI" ...; NULL where nothing started this process
  const char *rank_variable; // the variables that said so
  const char *size_variable;
  int rank, size;
  int local_rank, local_size; // on this machine; -1 where the launcher does not say
  bool mpi;                   // MPI can be asked for the other ranks
};

// Reads the environment. Where no launcher's variable is set, the process is rank 0 of 1.
// False, and why, where a variable is missing, is no number, or contradicts another.
bool launch_identity(struct identity *me, struct failure *why);

// Is this the job that the program was generated for? False, and why, where `me` is not of
// `world` ranks, or is not the rank `id` whose program this is.
bool launch_fits(const struct identity *me, int world, int id, struct failure *why);

#ifdef __cplusplus
}
#endif

#endif
