/* Ranks of one machine that take themselves for ranks of several, two on each: a library to load
   before MPI (LD_PRELOAD). A collective that goes by MPI though all its ranks are on one machine
   ends the job.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_OF_A_MACHINE = 2, MOST_RANKS = 64 };

static int machine_of(int rank)
{
  return rank / RANKS_OF_A_MACHINE;
}

static void *next(const char *name)
{
  void *function = dlsym(RTLD_NEXT, name);
  if (!function) abort();
  return function;
}

int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made)
{
  int rank;
  (void)type, (void)info;
  MPI_Comm_rank(comm, &rank);
  return PMPI_Comm_split(comm, machine_of(rank), key, made);
}

static void check(MPI_Comm comm, const char *call)
{
  MPI_Group all, its;
  int n, one[MOST_RANKS], in_all[MOST_RANKS], machines = 0;
  PMPI_Comm_size(comm, &n);
  PMPI_Comm_group(MPI_COMM_WORLD, &all);
  PMPI_Comm_group(comm, &its);
  for (int m = 0; m < n; m++) one[m] = m;
  PMPI_Group_translate_ranks(its, n, one, all, in_all);
  for (int m = 1; m < n; m++) machines += machine_of(in_all[m]) != machine_of(in_all[0]);
  if (machines > 0) return;
  fprintf(stderr, "%s within a machine goes by MPI\n", call);
  abort();
}

#define CHECKED(name, parameters, arguments)                                                       \
  int PMPI_##name parameters                                                                       \
  {                                                                                                \
    check(comm, #name);                                                                            \
    return ((int(*) parameters)next("PMPI_" #name))arguments;                                      \
  }
CHECKED(Allreduce, (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (in, out, n, type, op, comm))
CHECKED(Allgather,
        (const void *in, int n, MPI_Datatype type, void *out, int n_out, MPI_Datatype type_out,
         MPI_Comm comm),
        (in, n, type, out, n_out, type_out, comm))
