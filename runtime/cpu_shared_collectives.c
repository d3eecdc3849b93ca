// MPI's collectives over shared memory.
#include "cpu_shared.h"

#include <stdio.h>
#include <string.h>

static uint64_t call_of(enum shared_call call, MPI_Datatype type, MPI_Op op)
{
  return (uint64_t)call | (uint64_t)type << 8 | (uint64_t)op << 16;
}

// Begins with the same type and operation on all ranks.
static char *begin(MPI_Comm group, uint64_t call, uint64_t size)
{
  char *room = shared_begin(group, (enum shared_call)(call & 0xff), size);
  group->told.call = (uint32_t)call;
  return room;
}

int PMPI_Bcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
  const size_t bytes = (size_t)n * shared_size(type);
  begin(comm, call_of(SHARED_BCAST, type, 0), bytes);
  if (comm->me == root) shared_operand(comm, at, bytes);
  comm->told.is_here = bytes <= SHARED_ROOM;
  const int error = shared_meet(comm);
  if (error != MPI_SUCCESS) return error;
  if (comm->me != root) shared_copy(at, shared_read(comm, root), bytes, false);
  shared_part(comm);
  return MPI_SUCCESS;
}

// ---- reductions ---------------------------------------------------------------------------------

// The sum of n elements of all members' operands from `first` on; `own` is this rank's.
static void sum_operands(MPI_Comm comm, struct sum sum, const char *own, size_t first)
{
  const char *from[SHARED_RANKS];
  const size_t at = first * shared_size(sum.type);
  if (sum.n == 0) return;
  for (int m = 0; m < comm->n; m++) from[m] = (m == comm->me ? own : shared_read(comm, m)) + at;
  sum.from = from;
  sum.members = comm->n;
  shared_sum(&sum);
}

// The sum is made in parts, one by each member, in the place of the result; then each copies the
// others' parts.
static int reduce_in_place(const void *in, char *out, size_t n, MPI_Datatype type, MPI_Op op,
                           MPI_Comm comm)
{
  const size_t each = shared_size(type), line = 64 / each, ranks = (size_t)comm->n;
  const size_t part = (n + ranks * line - 1) / (ranks * line) * line;
  char *to = out;
  struct told *mine = &comm->told;
  mine->out = shared_place(out, n * each, &to); // elsewhere: the operand has no room of its own
  mine->in = in == out || to != out ? mine->out : shared_place(in, n * each, NULL);
  if (to != out && in != out) memcpy(to, in, n * each);
  mine->is_here = false;
  int error = shared_meet(comm);
  if (error != MPI_SUCCESS) return error;
  const size_t first = (size_t)comm->me * part < n ? (size_t)comm->me * part : n;
  sum_operands(comm,
               (struct sum){.out = to + first * each,
                            .is_read = true,
                            .n = n - first < part ? n - first : part,
                            .type = type,
                            .op = op},
               to == out ? in : to, first);
  shared_wait(comm);
  for (int k = 1; k < comm->n; k++) {
    const int m = (comm->me + k) % comm->n;
    const size_t at = (size_t)m * part, left = at < n ? n - at : 0;
    if (left > 0)
      shared_copy(to + at * each, shared_at(comm, m, shared_post(comm, m)->told.out) + at * each,
                  (left < part ? left : part) * each, true);
  }
  if (to != out) memcpy(out, to, n * each);
  shared_wait(comm);
  return MPI_SUCCESS;
}

int PMPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  const size_t bytes = (size_t)n * shared_size(type);
  begin(comm, call_of(SHARED_ALLREDUCE, type, op), bytes);
  if (in == MPI_IN_PLACE) in = out;
  if (bytes > SHARED_ROOM) return reduce_in_place(in, out, (size_t)n, type, op, comm);
  shared_operand(comm, in, bytes);
  const int error = shared_meet(comm);
  if (error == MPI_SUCCESS)
    sum_operands(comm, (struct sum){.out = out, .n = (size_t)n, .type = type, .op = op}, in, 0);
  return error;
}

// In place a member's sum first lies in its own part, which only it reads.
static int reduce_scatter_from(const void *in, void *out, size_t all, size_t first, size_t n,
                               MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  const size_t each = shared_size(type);
  const bool in_place = in == MPI_IN_PLACE;
  begin(comm, call_of(SHARED_REDUCE_SCATTER, type, op), (uint64_t)(all * each));
  shared_operand(comm, in_place ? out : in, all * each);
  const int error = shared_meet(comm);
  if (error != MPI_SUCCESS) return error;
  char *sum = in_place ? (char *)out + first * each : out;
  sum_operands(comm, (struct sum){.out = sum, .n = n, .type = type, .op = op}, in_place ? out : in,
               first);
  shared_part(comm);
  if (sum != out) memmove(out, sum, n * each);
  return MPI_SUCCESS;
}

int PMPI_Reduce_scatter_block(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm)
{
  const size_t part = (size_t)n;
  return reduce_scatter_from(in, out, part * (size_t)comm->n, part * (size_t)comm->me, part, type,
                             op, comm);
}

int PMPI_Reduce_scatter(const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm)
{
  size_t all = 0, first = 0;
  for (int m = 0; m < comm->n; m++) {
    if (m == comm->me) first = all;
    all += (size_t)n[m];
  }
  return reduce_scatter_from(in, out, all, first, (size_t)n[comm->me], type, op, comm);
}

// ---- gathers ------------------------------------------------------------------------------------

// The part of each member: how many elements, and where they begin; NULL: each has n, side by side.
struct parts {
  const int *n, *first;
  int each;
};

static size_t part_n(const struct parts *p, int m)
{
  return (size_t)(p->n ? p->n[m] : p->each);
}
static size_t part_first(const struct parts *p, int m)
{
  return p->n ? (size_t)p->first[m] : (size_t)p->each * (size_t)m;
}

static int gather(const void *in, void *out, struct parts parts, MPI_Datatype type, MPI_Comm comm)
{
  const size_t each = shared_size(type);
  size_t all = 0;
  for (int m = 0; m < comm->n; m++) all += part_n(&parts, m);
  begin(comm, call_of(SHARED_ALLGATHER, type, 0), (uint64_t)(all * each));
  char *own = (char *)out + part_first(&parts, comm->me) * each;
  const size_t bytes = part_n(&parts, comm->me) * each;
  shared_operand(comm, in == MPI_IN_PLACE ? own : in, bytes);
  const int error = shared_meet(comm);
  if (error != MPI_SUCCESS) return error;
  if (in != MPI_IN_PLACE) shared_copy(own, in, bytes, false);
  for (int k = 1; k < comm->n; k++) {
    const int m = (comm->me + k) % comm->n;
    if (part_n(&parts, m) > 0)
      shared_copy((char *)out + part_first(&parts, m) * each, shared_read(comm, m),
                  part_n(&parts, m) * each, false);
  }
  shared_part(comm);
  return MPI_SUCCESS;
}

int PMPI_Allgather(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                   MPI_Datatype type_out, MPI_Comm comm)
{
  (void)n, (void)type;
  return gather(in, out, (struct parts){.each = n_out}, type_out, comm);
}

int PMPI_Allgatherv(const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
                    const int *first, MPI_Datatype type_out, MPI_Comm comm)
{
  (void)n, (void)type;
  return gather(in, out, (struct parts){.n = n_out, .first = first}, type_out, comm);
}

// ---- exchanges ----------------------------------------------------------------------------------

// What a member has for another, in bytes of its operand.
struct share {
  uint64_t first, bytes;
};
_Static_assert(SHARED_RANKS * sizeof(struct share) <= SHARED_ROOM,
               "a slot has room for all shares");

static int misfit(MPI_Comm comm, int m, uint64_t given, uint64_t taken)
{
  return shared_error(comm, "rank %d gives %llu bytes, and rank %d takes %llu", comm->world[m],
                      (unsigned long long)given, comm->world[comm->me], (unsigned long long)taken);
}

static int exchange(const void *in, struct parts give, void *out, struct parts get,
                    MPI_Datatype type, MPI_Comm comm)
{
  const size_t each = shared_size(type);
  char *room = begin(comm, call_of(SHARED_ALLTOALL, type, 0), 0);
  struct share share;
  size_t end = 0;
  for (int m = 0; m < comm->n; m++) {
    share = (struct share){part_first(&give, m) * each, part_n(&give, m) * each};
    memcpy(room + (size_t)m * sizeof share, &share, sizeof share);
    if (share.bytes > 0 && share.first + share.bytes > end) end = share.first + share.bytes;
  }
  comm->told.in = shared_place(in, end, NULL);
  comm->told.is_here = false;
  const int error = shared_meet(comm);
  if (error != MPI_SUCCESS) return error;
  for (int k = 0; k < comm->n; k++) {
    const int m = (comm->me + k) % comm->n;
    const size_t bytes = part_n(&get, m) * each;
    memcpy(&share, shared_post(comm, m)->room + (size_t)comm->me * sizeof share, sizeof share);
    if (share.bytes != bytes) return misfit(comm, m, share.bytes, bytes);
    if (bytes > 0)
      shared_copy((char *)out + part_first(&get, m) * each, shared_read(comm, m) + share.first,
                  bytes, false);
  }
  shared_part(comm);
  return MPI_SUCCESS;
}

int PMPI_Alltoall(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm)
{
  (void)type_out;
  return exchange(in, (struct parts){.each = n}, out, (struct parts){.each = n_out}, type, comm);
}

int PMPI_Alltoallv(const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
                   const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm)
{
  (void)type_out;
  return exchange(in, (struct parts){.n = n, .first = first}, out,
                  (struct parts){.n = n_out, .first = first_out}, type, comm);
}

int PMPI_Sendrecv(const void *in, int n, MPI_Datatype type, int to, int tag, void *out, int n_out,
                  MPI_Datatype type_out, int from, int tag_from, MPI_Comm comm, MPI_Status *status)
{
  (void)tag, (void)tag_from, (void)status, (void)type_out;
  const size_t bytes = (size_t)n * shared_size(type), taken = (size_t)n_out * shared_size(type);
  char *room = begin(comm, call_of(SHARED_SENDRECV, type, 0), 0);
  const struct share share = {0, to == MPI_PROC_NULL ? 0 : bytes};
  memcpy(room, &share, sizeof share);
  comm->told.in = share.bytes > 0 ? shared_place(in, bytes, NULL) : 0;
  comm->told.is_here = false;
  const int error = shared_meet(comm);
  if (error != MPI_SUCCESS) return error;
  if (from != MPI_PROC_NULL) {
    struct share theirs;
    memcpy(&theirs, shared_post(comm, from)->room, sizeof theirs);
    if (theirs.bytes != taken) return misfit(comm, from, theirs.bytes, taken);
    if (taken > 0) shared_copy(out, shared_read(comm, from), taken, false);
  }
  shared_part(comm);
  return MPI_SUCCESS;
}

// ---- the first names ----------------------------------------------------------------------------

int MPI_Bcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm) SHARED_ALIAS(PMPI_Bcast);
int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
    SHARED_ALIAS(PMPI_Allreduce);
int MPI_Reduce_scatter_block(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) SHARED_ALIAS(PMPI_Reduce_scatter_block);
int MPI_Reduce_scatter(const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm) SHARED_ALIAS(PMPI_Reduce_scatter);
int MPI_Allgather(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm) SHARED_ALIAS(PMPI_Allgather);
int MPI_Allgatherv(const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
                   const int *first, MPI_Datatype type_out, MPI_Comm comm)
    SHARED_ALIAS(PMPI_Allgatherv);
int MPI_Alltoall(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                 MPI_Datatype type_out, MPI_Comm comm) SHARED_ALIAS(PMPI_Alltoall);
int MPI_Alltoallv(const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
                  const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm)
    SHARED_ALIAS(PMPI_Alltoallv);
int MPI_Sendrecv(const void *in, int n, MPI_Datatype type, int to, int tag, void *out, int n_out,
                 MPI_Datatype type_out, int from, int tag_from, MPI_Comm comm, MPI_Status *status)
    SHARED_ALIAS(PMPI_Sendrecv);
