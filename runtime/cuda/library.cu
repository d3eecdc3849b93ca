// SPDX-License-Identifier: MIT
// The functions that a library needs from the CUDA target. Streams, graphs and kernels' scratch
// belong to the process: it has one model of a library at a time.
#include <stdlib.h>
#include "base/library_target.h"
#include "cuda/ranks.h"

static bool taken;

bool target_join(MPI_Comm everyone, struct failure *why)
{
  MPI_Comm before = over_mpi;
  over_mpi = everyone;
  if (cuda_lowest(!taken) == 0) {
    over_mpi = before;
    return failed(why, "a process has one model of a library for GPUs at a time: close the other");
  }
  taken = true;
  MPI_Comm_set_errhandler(everyone, MPI_ERRORS_RETURN);
  cuda_join();
  return true;
}

struct ranks *target_ranks()
{
  return (struct ranks *)malloc(1);
}

void target_use(const struct ranks *)
{
}

void target_leave()
{
  cuda_leave();
  over_mpi = MPI_COMM_NULL;
  taken = false;
}

const char *target_error(char *)
{
  return NULL;
}

// There is no watchdog: library/watch.c reports a call that takes too long.
int watch_limit()
{
  return 0;
}

struct waiting waiting_in_call()
{
  return {pending, pending_microbatch, 0, collectives};
}
