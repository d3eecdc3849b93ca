/* Collectives that a rank does not wait for at once, and the link. */
#include "deferred.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mpi.h"
#include "rings.h"

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the link -------------------------------------------------------------------------------- */

static double began;     /* when the deferred collective began that is done now; 0: none is */
static double free_from; /* when all that was sent has gone over the link */
static double slept;     /* the seconds that this rank has waited for it */

void ranks_go_over_link(size_t bytes)
{
  static double rate = -1;
  if (rate < 0) {
    const char *given = getenv("LOCAL_MPI_LINK");
    rate = given ? strtod(given, NULL) : 0;
  }
  if (rate <= 0) return;
  const double start = began > 0 ? began : now();
  free_from = (free_from > start ? free_from : start) + (double)bytes / rate;
  const double left = free_from - now();
  if (left <= 0) return;
  slept += left;
  struct timespec t = {.tv_sec = (time_t)left,
                       .tv_nsec = (long)(1e9 * (left - (double)(time_t)left))};
  nanosleep(&t, NULL);
}

void ranks_tell_slept(int rank)
{
  const char *path = getenv("LOCAL_MPI_SLEPT");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%d %.6f\n", rank, slept);
  fclose(file);
}

/* ---- what is deferred ------------------------------------------------------------------------ */

enum kind { ALLREDUCE, ALLGATHER, ALLGATHERV, SCATTER_BLOCK, SCATTER, ALLTOALL, ALLTOALLV };

struct deferred {
  bool is_open;
  double began;
  enum kind kind;
  const void *in;
  void *out;
  int n, n_out;
  const int *counts, *first, *counts_out, *first_out;
  MPI_Datatype type, type_out;
  MPI_Op op;
  MPI_Comm comm;
};

enum { MOST_DEFERRED = 64, FIRST_NUMBER = 1 << 20 };
static struct deferred list[MOST_DEFERRED];

static int defer(struct deferred d, MPI_Request *request)
{
  int i = 0;
  while (i < MOST_DEFERRED && list[i].is_open) i++;
  if (i == MOST_DEFERRED) ranks_misuse("a collective without a wait", "too many", i, MOST_DEFERRED);
  list[i] = d;
  list[i].is_open = true;
  list[i].began = now();
  *request = FIRST_NUMBER + i;
  return MPI_SUCCESS;
}

static int run(const struct deferred *d)
{
  switch (d->kind) {
  case ALLREDUCE:
    return MPI_Allreduce(d->in, d->out, d->n, d->type, d->op, d->comm);
  case ALLGATHER:
    return MPI_Allgather(d->in, d->n, d->type, d->out, d->n_out, d->type_out, d->comm);
  case ALLGATHERV:
    return MPI_Allgatherv(d->in, d->n, d->type, d->out, d->counts_out, d->first_out, d->type_out,
                          d->comm);
  case SCATTER_BLOCK:
    return MPI_Reduce_scatter_block(d->in, d->out, d->n, d->type, d->op, d->comm);
  case SCATTER:
    return MPI_Reduce_scatter(d->in, d->out, d->counts, d->type, d->op, d->comm);
  case ALLTOALL:
    return MPI_Alltoall(d->in, d->n, d->type, d->out, d->n_out, d->type_out, d->comm);
  case ALLTOALLV:
    break;
  }
  return MPI_Alltoallv(d->in, d->counts, d->first, d->type, d->out, d->counts_out, d->first_out,
                       d->type_out, d->comm);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
  (void)status;
  if (*request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  const int i = *request - FIRST_NUMBER;
  if (i < 0 || i >= MOST_DEFERRED || !list[i].is_open)
    ranks_misuse("MPI_Wait", "no request", *request, 0);
  began = list[i].began;
  const int error = run(&list[i]);
  began = 0;
  list[i].is_open = false;
  *request = MPI_REQUEST_NULL;
  return error;
}

int MPI_Query_thread(int *given)
{
  *given = MPI_THREAD_FUNNELED;
  return MPI_SUCCESS;
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *is_there, MPI_Status *status)
{
  (void)from, (void)tag, (void)comm, (void)status;
  *is_there = 0;
  return MPI_SUCCESS;
}

int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
  return defer(
      (struct deferred){
          .kind = ALLREDUCE, .in = in, .out = out, .n = n, .type = type, .op = op, .comm = comm},
      request);
}

int MPI_Iallgather(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                   MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request)
{
  return defer((struct deferred){.kind = ALLGATHER,
                                 .in = in,
                                 .out = out,
                                 .n = n,
                                 .n_out = n_out,
                                 .type = type,
                                 .type_out = type_out,
                                 .comm = comm},
               request);
}

int MPI_Iallgatherv(const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
                    const int *first, MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request)
{
  return defer((struct deferred){.kind = ALLGATHERV,
                                 .in = in,
                                 .out = out,
                                 .n = n,
                                 .counts_out = n_out,
                                 .first_out = first,
                                 .type = type,
                                 .type_out = type_out,
                                 .comm = comm},
               request);
}

int MPI_Ireduce_scatter_block(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, MPI_Request *request)
{
  return defer((struct deferred){.kind = SCATTER_BLOCK,
                                 .in = in,
                                 .out = out,
                                 .n = n,
                                 .type = type,
                                 .op = op,
                                 .comm = comm},
               request);
}

int MPI_Ireduce_scatter(const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm, MPI_Request *request)
{
  return defer(
      (struct deferred){
          .kind = SCATTER, .in = in, .out = out, .counts = n, .type = type, .op = op, .comm = comm},
      request);
}

int MPI_Ialltoall(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request)
{
  return defer((struct deferred){.kind = ALLTOALL,
                                 .in = in,
                                 .out = out,
                                 .n = n,
                                 .n_out = n_out,
                                 .type = type,
                                 .type_out = type_out,
                                 .comm = comm},
               request);
}

int MPI_Ialltoallv(const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
                   const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm,
                   MPI_Request *request)
{
  return defer((struct deferred){.kind = ALLTOALLV,
                                 .in = in,
                                 .out = out,
                                 .counts = n,
                                 .first = first,
                                 .counts_out = n_out,
                                 .first_out = first_out,
                                 .type = type,
                                 .type_out = type_out,
                                 .comm = comm},
               request);
}
