/* Counts the bytes that a generated CPU program moves: linked into it, this replaces MPI's
   functions for the collectives that the program's text calls, and forwards the calls (PMPI).

   Takes   calls on the communicators of the program's groups, from step<K>.c compiled without an
           optimizer: each statement is one address in the machine code, a loop's too. Calls of the
           runtime, on other communicators, are not counted.
   Leaves  at MPI_Finalize the file $COUNT_CALLS.<rank>, a line for each statement in the order in
           which they are first reached: `call group times brought sent received`. Bytes are those
           of one call, by the accounting of gen/sharding/traffic.c: brought is the value that the
           rank passes to the call; sent and received are the bytes that it exchanges with others,
           for an all-reduce like a reduce-scatter of torch.chunk's parts and an all-gather. */
#include "base/segments.h"
#include "base/program.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct bytes {
  int64_t brought, sent, received;
};

struct statement {
  const void *at; /* return address of the call */
  const char *call;
  int group;
  long times;
  struct bytes bytes;
};

enum { STATEMENTS = 4096 };
static struct statement statement[STATEMENTS];
static int statements;

/* The ranks of a communicator, and which of them this one is. */
static int size_of(MPI_Comm comm)
{
  int n = 1;
  PMPI_Comm_size(comm, &n);
  return n;
}

static int place_of(MPI_Comm comm)
{
  int place = 0;
  PMPI_Comm_rank(comm, &place);
  return place;
}

/* The program's group, or -1. */
static int group_of(MPI_Comm comm)
{
  for (int i = 0; rank_communicators && i < program->ngroups; i++)
    if (rank_communicators[i] == comm) return i;
  return -1;
}

/* The statement that returns to `at`; a new one if it is not known. */
static struct statement *find(const void *at, const char *call, int group)
{
  for (int i = 0; i < statements; i++)
    if (statement[i].at == at) return &statement[i];
  if (statements == STATEMENTS) fail_call(__FILE__, __LINE__, call, "too many to count");
  statement[statements] = (struct statement){.at = at, .call = call, .group = group};
  return &statement[statements++];
}

/* Adds elements of the type's size. */
static void count(const void *at, const char *call, MPI_Comm comm, MPI_Datatype type,
                  struct bytes elements)
{
  int each = 0, group = group_of(comm);
  if (group < 0) return;
  PMPI_Type_size(type, &each);
  struct statement *s = find(at, call, group);
  struct bytes b = {elements.brought * each, elements.sent * each, elements.received * each};
  if (s->times++ == 0) s->bytes = b;
  if (s->group != group || s->bytes.brought != b.brought || s->bytes.sent != b.sent ||
      s->bytes.received != b.received)
    fail_call(__FILE__, __LINE__, call, "the same statement moves other bytes than before");
}

static int64_t sum(const int *n, int ranks)
{
  int64_t total = 0;
  for (int r = 0; r < ranks; r++) total += n[r];
  return total;
}

#define HERE __builtin_return_address(0)

static bool inside;             /* a collective of the runtime's own */
static int64_t sent_in, got_in; /* it, in elements */

int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  int64_t ranks = size_of(comm), part = part_size(n, (int)ranks, place_of(comm));
  int64_t moved = n - part + part * (ranks - 1);
  count(HERE, "Allreduce", comm, type, (struct bytes){n, moved, moved});
  return PMPI_Allreduce(in, out, n, type, op, comm);
}

int MPI_Allgather(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm)
{
  int64_t others = size_of(comm) - 1;
  if (inside) {
    sent_in += n * others;
    got_in += n_out * others;
  } else {
    count(HERE, "Allgather", comm, type, (struct bytes){n, n * others, n_out * others});
  }
  return PMPI_Allgather(in, n, type, out, n_out, type_out, comm);
}

int MPI_Allgatherv(const void *in, int n, MPI_Datatype type, void *out, const int *counts,
                   const int *starts, MPI_Datatype type_out, MPI_Comm comm)
{
  int ranks = size_of(comm);
  int64_t received = sum(counts, ranks) - counts[place_of(comm)];
  count(HERE, "Allgatherv", comm, type, (struct bytes){n, (int64_t)n * (ranks - 1), received});
  return PMPI_Allgatherv(in, n, type, out, counts, starts, type_out, comm);
}

int MPI_Reduce_scatter(const void *in, void *out, const int *counts, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm)
{
  int ranks = size_of(comm);
  int64_t all = sum(counts, ranks), own = counts[place_of(comm)];
  count(HERE, "Reduce_scatter", comm, type, (struct bytes){all, all - own, own * (ranks - 1)});
  return PMPI_Reduce_scatter(in, out, counts, type, op, comm);
}

int MPI_Reduce_scatter_block(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm)
{
  int64_t ranks = size_of(comm), moved = n * (ranks - 1);
  count(HERE, "Reduce_scatter_block", comm, type, (struct bytes){n * ranks, moved, moved});
  return PMPI_Reduce_scatter_block(in, out, n, type, op, comm);
}

/* The runtime's own collectives, which the linker calls __real: each counts as one collective. */
int __real_reduce_scatter(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm);
int __wrap_reduce_scatter(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm);
int __real_gather_segments(const void *own, void *room, int n, const struct segment *p,
                           MPI_Datatype type, MPI_Comm comm);
int __wrap_gather_segments(const void *own, void *room, int n, const struct segment *p,
                           MPI_Datatype type, MPI_Comm comm);
int __real_reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype type,
                           MPI_Op op, MPI_Comm comm);
int __wrap_reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype type,
                           MPI_Op op, MPI_Comm comm);

/* The elements of a chunk of the buffer. */
static int64_t chunk_of(int n, const struct segment *p)
{
  int64_t all = 0;
  for (int k = 0; k < n; k++) all += p[k].rows * p[k].run;
  return all;
}

int __wrap_gather_segments(const void *own, void *room, int n, const struct segment *p,
                           MPI_Datatype type, MPI_Comm comm)
{
  sent_in = got_in = 0;
  inside = true;
  int error = __real_gather_segments(own, room, n, p, type, comm);
  inside = false;
  count(HERE, "gather_segments", comm, type, (struct bytes){chunk_of(n, p), sent_in, got_in});
  return error;
}

int __wrap_reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype type,
                           MPI_Op op, MPI_Comm comm)
{
  int64_t ranks = size_of(comm);
  sent_in = got_in = 0;
  inside = true;
  int error = __real_reduce_segments(room, own, n, p, type, op, comm);
  inside = false;
  count(HERE, "reduce_segments", comm, type,
        (struct bytes){chunk_of(n, p) * ranks, sent_in, got_in});
  return error;
}

int __wrap_reduce_scatter(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm)
{
  int64_t ranks = size_of(comm);
  sent_in = got_in = 0;
  inside = true;
  int error = __real_reduce_scatter(in, out, n, type, op, comm);
  inside = false;
  count(HERE, "reduce_scatter", comm, type, (struct bytes){n * ranks, sent_in, got_in});
  return error;
}

int MPI_Alltoall(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                 MPI_Datatype type_out, MPI_Comm comm)
{
  int64_t ranks = size_of(comm), others = ranks - 1;
  count(HERE, "Alltoall", comm, type, (struct bytes){n * ranks, n * others, n_out * others});
  return PMPI_Alltoall(in, n, type, out, n_out, type_out, comm);
}

int MPI_Alltoallv(const void *in, const int *counts, const int *starts, MPI_Datatype type,
                  void *out, const int *counts_in, const int *starts_in, MPI_Datatype type_in,
                  MPI_Comm comm)
{
  int ranks = size_of(comm), own = place_of(comm);
  int64_t given = sum(counts, ranks), got = sum(counts_in, ranks);
  count(HERE, "Alltoallv", comm, type,
        (struct bytes){given, given - counts[own], got - counts_in[own]});
  return PMPI_Alltoallv(in, counts, starts, type, out, counts_in, starts_in, type_in, comm);
}

int MPI_Sendrecv(const void *in, int n, MPI_Datatype type, int to, int tag, void *out, int n_in,
                 MPI_Datatype type_in, int from, int tag_in, MPI_Comm comm, MPI_Status *status)
{
  int own = place_of(comm), given = to == MPI_PROC_NULL || to == own ? 0 : n;
  int got = from == MPI_PROC_NULL || from == own ? 0 : n_in;
  if (inside) {
    sent_in += given;
    got_in += got;
  } else {
    count(HERE, "Sendrecv", comm, type, (struct bytes){given, given, got});
  }
  return PMPI_Sendrecv(in, n, type, to, tag, out, n_in, type_in, from, tag_in, comm, status);
}

int MPI_Finalize(void)
{
  char path[4096];
  const char *prefix = getenv("COUNT_CALLS");
  snprintf(path, sizeof path, "%s.%d", prefix ? prefix : "counted", rank->id);
  FILE *file = fopen(path, "w");
  if (!file) fail_call(__FILE__, __LINE__, "fopen", path);
  for (int i = 0; i < statements; i++) {
    const struct statement *s = &statement[i];
    fprintf(file, "%s %s %ld %lld %lld %lld\n", s->call, program->groups[s->group].name, s->times,
            (long long)s->bytes.brought, (long long)s->bytes.sent, (long long)s->bytes.received);
  }
  if (fclose(file) != 0) fail_call(__FILE__, __LINE__, "fclose", path);
  return PMPI_Finalize();
}
