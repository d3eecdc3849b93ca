// SPDX-License-Identifier: MIT
// The collectives over shared memory.
#include "cpu/shared_memory/shared.h"

#include <stdio.h>
#include <string.h>

static uint64_t call_of(enum shared_call call, enum shared_type type, int op)
{
  return (uint64_t)call | (uint64_t)type << 8 | (uint64_t)op << 16;
}

// Begins with the same type and operation on all ranks.
static char *begin(struct shared_group *group, uint64_t call, uint64_t size)
{
  char *room = shared_begin(group, (enum shared_call)(call & 0xff), size);
  group->announced.call = (uint32_t)call;
  return room;
}

static size_t part_n(const struct shared_parts *p, int m)
{
  return (size_t)(p->n ? p->n[m] : p->each);
}

static size_t part_first(const struct shared_parts *p, int m)
{
  size_t first = 0;
  if (!p->n) return (size_t)p->each * (size_t)m;
  if (p->first) return (size_t)p->first[m];
  for (int k = 0; k < m; k++) first += part_n(p, k);
  return first;
}

static size_t all_of(const struct shared_parts *p, int members)
{
  size_t all = 0;
  for (int m = 0; m < members; m++) all += part_n(p, m);
  return all;
}

int shared_bcast(void *at, int n, enum shared_type type, int root, struct shared_group *group)
{
  const size_t bytes = (size_t)n * shared_size(type);
  begin(group, call_of(SHARED_BCAST, type, 0), bytes);
  if (group->me == root) shared_operand(group, at, bytes);
  group->announced.is_here = bytes <= SHARED_ROOM;
  const int error = shared_meet(group);
  if (error != 0) return error;
  if (group->me != root) shared_copy(at, shared_read(group, root), bytes, false);
  shared_leave(group);
  return 0;
}

// ---- reductions ---------------------------------------------------------------------------------

// The sum of n elements of all members' operands from `first` on; `own` is this rank's.
static void sum_operands(struct shared_group *group, struct sum sum, const char *own, size_t first)
{
  const char *from[SHARED_RANKS];
  const size_t at = first * shared_size(sum.type);
  if (sum.n == 0) return;
  for (int m = 0; m < group->n; m++) from[m] = (m == group->me ? own : shared_read(group, m)) + at;
  sum.from = from;
  sum.members = group->n;
  shared_sum(&sum);
}

// The sum is made in parts, one by each member, in the place of the result; then each copies the
// others' parts.
static int reduce_in_place(const void *in, char *out, size_t n, enum shared_type type, int op,
                           struct shared_group *group)
{
  const size_t each = shared_size(type), line = 64 / each, ranks = (size_t)group->n;
  const size_t part = (n + ranks * line - 1) / (ranks * line) * line;
  char *to = out;
  struct announcement *mine = &group->announced;
  mine->out = shared_place(out, n * each, &to); // elsewhere: the operand has no room of its own
  mine->in = in == out || to != out ? mine->out : shared_place(in, n * each, NULL);
  if (to != out && in != out) memcpy(to, in, n * each);
  mine->is_here = false;
  int error = shared_meet(group);
  if (error != 0) return error;
  const size_t first = (size_t)group->me * part < n ? (size_t)group->me * part : n;
  sum_operands(group,
               (struct sum){.out = to + first * each,
                            .is_read = true,
                            .n = n - first < part ? n - first : part,
                            .type = type,
                            .op = op},
               to == out ? in : to, first);
  shared_wait(group);
  for (int k = 1; k < group->n; k++) {
    const int m = (group->me + k) % group->n;
    const size_t at = (size_t)m * part, left = at < n ? n - at : 0;
    if (left > 0)
      shared_copy(to + at * each,
                  shared_at(group, m, shared_post(group, m)->announced.out) + at * each,
                  (left < part ? left : part) * each, true);
  }
  if (to != out) memcpy(out, to, n * each);
  shared_wait(group);
  return 0;
}

int shared_allreduce(const void *in, void *out, int n, enum shared_type type, int op,
                     struct shared_group *group)
{
  const size_t bytes = (size_t)n * shared_size(type);
  begin(group, call_of(SHARED_ALLREDUCE, type, op), bytes);
  if (bytes > SHARED_ROOM) return reduce_in_place(in, out, (size_t)n, type, op, group);
  shared_operand(group, in, bytes);
  const int error = shared_meet(group);
  if (error == 0)
    sum_operands(group, (struct sum){.out = out, .n = (size_t)n, .type = type, .op = op}, in, 0);
  return error;
}

// In place a member's sum is first in its own part, which only it reads.
int shared_reduce_scatter(const void *in, void *out, struct shared_parts parts,
                          enum shared_type type, int op, struct shared_group *group)
{
  const size_t each = shared_size(type), all = all_of(&parts, group->n) * each;
  const size_t first = part_first(&parts, group->me), n = part_n(&parts, group->me);
  begin(group, call_of(SHARED_REDUCE_SCATTER, type, op), (uint64_t)all);
  shared_operand(group, in, all);
  const int error = shared_meet(group);
  if (error != 0) return error;
  char *sum = in == out ? (char *)out + first * each : out;
  sum_operands(group, (struct sum){.out = sum, .n = n, .type = type, .op = op}, in, first);
  shared_leave(group);
  if (sum != out) memmove(out, sum, n * each);
  return 0;
}

// ---- gathers ------------------------------------------------------------------------------------

int shared_allgather(const void *in, void *out, struct shared_parts parts, enum shared_type type,
                     struct shared_group *group)
{
  const size_t each = shared_size(type);
  begin(group, call_of(SHARED_ALLGATHER, type, 0), (uint64_t)(all_of(&parts, group->n) * each));
  char *own = (char *)out + part_first(&parts, group->me) * each;
  const size_t bytes = part_n(&parts, group->me) * each;
  shared_operand(group, in ? in : own, bytes);
  const int error = shared_meet(group);
  if (error != 0) return error;
  if (in) shared_copy(own, in, bytes, false);
  for (int k = 1; k < group->n; k++) {
    const int m = (group->me + k) % group->n;
    if (part_n(&parts, m) > 0)
      shared_copy((char *)out + part_first(&parts, m) * each, shared_read(group, m),
                  part_n(&parts, m) * each, false);
  }
  shared_leave(group);
  return 0;
}

// ---- exchanges ----------------------------------------------------------------------------------

// The share that a member has for another, in bytes of its operand.
struct share {
  uint64_t first, bytes;
};
_Static_assert(SHARED_RANKS * sizeof(struct share) <= SHARED_ROOM,
               "a slot has room for all shares");

static int misfit(struct shared_group *group, int m, uint64_t given, uint64_t taken)
{
  return shared_error("rank %d gives %llu bytes, and rank %d takes %llu", shared_rank_of(group, m),
                      (unsigned long long)given, shared_rank_of(group, group->me),
                      (unsigned long long)taken);
}

static int exchange_parts(const void *in, struct shared_parts give, void *out,
                          struct shared_parts get, size_t each, char *room,
                          struct shared_group *group)
{
  struct share share;
  size_t end = 0;
  for (int m = 0; m < group->n; m++) {
    share = (struct share){part_first(&give, m) * each, part_n(&give, m) * each};
    memcpy(room + (size_t)m * sizeof share, &share, sizeof share);
    if (share.bytes > 0 && share.first + share.bytes > end) end = share.first + share.bytes;
  }
  group->announced.in = shared_place(in, end, NULL);
  group->announced.is_here = false;
  const int error = shared_meet(group);
  if (error != 0) return error;
  for (int k = 0; k < group->n; k++) {
    const int m = (group->me + k) % group->n;
    const size_t bytes = part_n(&get, m) * each;
    memcpy(&share, shared_post(group, m)->room + (size_t)group->me * sizeof share, sizeof share);
    if (share.bytes != bytes) return misfit(group, m, share.bytes, bytes);
    if (bytes > 0)
      shared_copy((char *)out + part_first(&get, m) * each, shared_read(group, m) + share.first,
                  bytes, false);
  }
  shared_leave(group);
  return 0;
}

int shared_alltoall(const void *in, struct shared_parts give, void *out, struct shared_parts get,
                    enum shared_type type, struct shared_group *group)
{
  char *room = begin(group, call_of(SHARED_ALLTOALL, type, 0), 0);
  return exchange_parts(in, give, out, get, shared_size(type), room, group);
}

int shared_alltoall_rows(const void *in, struct shared_parts give, void *out,
                         struct shared_parts get, long bytes, struct shared_group *group)
{
  char *room = begin(group, call_of(SHARED_ALLTOALL, SHARED_CHAR, 0), 0);
  return exchange_parts(in, give, out, get, (size_t)bytes, room, group);
}

int shared_sendrecv(const void *in, void *out, struct shared_pair pair, enum shared_type type,
                    struct shared_group *group)
{
  const size_t each = shared_size(type), bytes = pair.to < 0 ? 0 : (size_t)pair.given * each;
  const size_t taken = (size_t)pair.taken * each;
  char *room = begin(group, call_of(SHARED_SENDRECV, type, 0), 0);
  const struct share share = {0, bytes};
  memcpy(room, &share, sizeof share);
  group->announced.in = bytes > 0 ? shared_place(in, bytes, NULL) : 0;
  group->announced.is_here = false;
  const int error = shared_meet(group);
  if (error != 0) return error;
  if (pair.from >= 0) {
    struct share theirs;
    memcpy(&theirs, shared_post(group, pair.from)->room, sizeof theirs);
    if (theirs.bytes != taken) return misfit(group, pair.from, theirs.bytes, taken);
    if (taken > 0) shared_copy(out, shared_read(group, pair.from), taken, false);
  }
  shared_leave(group);
  return 0;
}
