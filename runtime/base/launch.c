// SPDX-License-Identifier: MIT
// The rank's identity, by the launchers' variables in order of precedence.
#include "base/launch.h"

#include <errno.h>
#include <stdlib.h>

struct launcher {
  const char *name, *rank, *size, *local_rank, *local_size;
  bool mpi;
};

static const struct launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true},
    {"PMIx", "PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID", NULL, true},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, false},
};

enum { MOST_RANKS = 1 << 24 };

static const char *lookup(const char *variable)
{
  const char *value = variable ? getenv(variable) : NULL;
  return value && *value ? value : NULL;
}

// A variable's value: digits only, below `limit`.
static bool read_number(const char *variable, long limit, int *number, struct failure *why)
{
  const char *value = lookup(variable);
  char *end = NULL;
  errno = 0;
  long n = value && *value >= '0' && *value <= '9' ? strtol(value, &end, 10) : -1;
  if (n < 0 || *end || errno)
    return failed(why, "the launcher's variable %s is \"%s\", which is not a number of ranks",
                  variable, value ? value : "");
  if (n >= limit)
    return failed(why, "the launcher's variable %s is %s: it should be below %ld", variable, value,
                  limit);
  *number = (int)n;
  return true;
}

static bool read_local(const struct launcher *from, struct identity *me, struct failure *why)
{
  if (lookup(from->local_size) &&
      !read_number(from->local_size, me->size + 1L, &me->local_size, why))
    return false;
  long limit = me->local_size > 0 ? me->local_size : me->size;
  return !lookup(from->local_rank) || read_number(from->local_rank, limit, &me->local_rank, why);
}

static bool read_launcher(const struct launcher *from, struct identity *me, struct failure *why)
{
  me->launcher = from->name;
  me->rank_variable = from->rank;
  me->size_variable = from->size;
  me->mpi = from->mpi;
  if (!lookup(from->size))
    return failed(why, "%s=%s is set, as %s does, but %s is not: unset the one or set the other",
                  from->rank, lookup(from->rank), from->name, from->size);
  if (!read_number(from->size, MOST_RANKS, &me->size, why)) return false;
  if (me->size == 0) return failed(why, "%s is 0: a job has one rank or more", from->size);
  return read_number(from->rank, me->size, &me->rank, why) && read_local(from, me, why);
}

bool launch_identity(struct identity *me, struct failure *why)
{
  *me = (struct identity){.size = 1, .local_rank = -1, .local_size = -1};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
    if (lookup(launchers[i].rank)) return read_launcher(&launchers[i], me, why);
  return true;
}

bool launch_fits(const struct identity *me, int world, int id, struct failure *why)
{
  if (me->size != world && !me->launcher && me->size == 1)
    return failed(why,
                  "nothing started the other ranks of this program, which has %d: "
                  "start it with run.sh, or under mpirun, srun or torchrun",
                  world);
  if (me->size != world)
    return failed(why,
                  "%s started %d rank%s (%s), but this program was generated for %d: "
                  "start %d, or generate it anew for a mesh of %d",
                  me->launcher ? me->launcher : "the launcher", me->size, me->size == 1 ? "" : "s",
                  me->size_variable ? me->size_variable : "MPI_COMM_WORLD", world, world, me->size);
  if (me->rank != id)
    return failed(why, "this is the program of rank %d, but %s started it as rank %d (%s)", id,
                  me->launcher ? me->launcher : "nothing", me->rank,
                  me->rank_variable ? me->rank_variable : "MPI_COMM_WORLD");
  return true;
}
