// SPDX-License-Identifier: MIT
// Collectives of ranks that are processes of one machine: they talk through memory that they share,
// and need no MPI. A rank reads the operands of the others where they are.
//
// All functions return 0, or an error, whose text shared_error_text() has: ranks that call
// different collectives, or one with sizes that do not fit, get one. Sums are added in the order of
// the group's members, for any size: the same bits on all ranks, in every run.
#ifndef CPU_SHARED_COLLECTIVES_H
#define CPU_SHARED_COLLECTIVES_H

#include <stddef.h>

enum { SHARED_RANKS = 256 }; // the most of a machine

enum shared_type {
  SHARED_CHAR,
  SHARED_UINT16,
  SHARED_INT32,
  SHARED_UINT32,
  SHARED_INT64,
  SHARED_FLOAT,
  SHARED_DOUBLE
};

// Operations from SHARED_MADE on are the caller's.
enum shared_op { SHARED_SUM, SHARED_MAX, SHARED_MIN, SHARED_BXOR, SHARED_MADE };

// The caller has this function: combines n elements of `in` into `inout`, by its operation `op`.
void shared_combine(int op, void *in, void *inout, int n, enum shared_type type);

struct shared_group;

size_t shared_size(enum shared_type type);

// An error with this text, and the text of the last one.
__attribute__((format(printf, 1, 2))) int shared_error(const char *format, ...);
const char *shared_error_text(void);

int shared_bcast(void *at, int n, enum shared_type type, int root, struct shared_group *group);

// `in` may be `out`.
int shared_allreduce(const void *in, void *out, int n, enum shared_type type, int op,
                     struct shared_group *group);

// The part of each member: the number of its elements, and their start (NULL: one part after the
// other); without `n` each has `each`.
struct shared_parts {
  const int *n, *first;
  int each;
};

// in == out: in place, and the rank's part of the sum is then at the beginning of `out`.
int shared_reduce_scatter(const void *in, void *out, struct shared_parts parts,
                          enum shared_type type, int op, struct shared_group *group);

// in == NULL: this rank's part is already in its place.
int shared_allgather(const void *in, void *out, struct shared_parts parts, enum shared_type type,
                     struct shared_group *group);

int shared_alltoall(const void *in, struct shared_parts give, void *out, struct shared_parts get,
                    enum shared_type type, struct shared_group *group);
// The same of elements of so many bytes.
int shared_alltoall_rows(const void *in, struct shared_parts give, void *out,
                         struct shared_parts get, long bytes, struct shared_group *group);

// The ranks that a rank gives its elements to, and takes elements from; NOBODY: -1.
struct shared_pair {
  int to, from;
  int given, taken;
};

// All ranks of the group call it, those without a partner, too.
int shared_sendrecv(const void *in, void *out, struct shared_pair pair, enum shared_type type,
                    struct shared_group *group);

// gather_segments and reduce_segments of program.h: nothing is packed, for each rank reads and
// writes the values where they are.
struct segment;
int shared_gather_segments(const void *own, int n, const struct segment *p, enum shared_type type,
                           struct shared_group *group);
int shared_reduce_segments(void *own, int n, const struct segment *p, enum shared_type type, int op,
                           struct shared_group *group);

// ---- the ranks of a machine ---------------------------------------------------------------------

// A rank's number among those of its machine, and how it finds them.
struct shared_ranks {
  int n, me;          // the ranks of the machine, and which of them this one is
  int rank;           // its number in the job, for messages
  int first;          // the process of the first of them; unless it is this one
  const char *job;    // a secret of these ranks: the same for all, at most 100 characters
  void (*idle)(void); // unless NULL: called about every millisecond while a rank waits
};

// Once in a process, by all ranks of the machine: they then wait for each other.
int shared_start(const struct shared_ranks *ranks);

// All ranks of the machine.
extern struct shared_group *const shared_machine;

// Makes a group of ranks of this machine; `ranks` are their numbers on it, in order. All ranks of
// the machine make equally many groups, in the same order. Groups that are made at the same time
// have no rank in common. NULL: no room.
struct shared_group *shared_make_group(int n, const int *ranks);
void shared_free_group(struct shared_group *group);
int shared_members(const struct shared_group *group);  // how many
int shared_place_in(const struct shared_group *group); // which of them this rank is

// Waits until all have come here.
int shared_barrier(struct shared_group *group);

#endif
