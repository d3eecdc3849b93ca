// SPDX-License-Identifier: MIT
// Communication of one machine's ranks through memory: the inside of
// cpu/shared_memory/collectives.h.
//
// Each rank has a slot for each group. In a collective a rank writes there its call and the place
// of its operand (a small one is in the slot itself), and waits until all others have: they meet.
// Then it reads the others' operands where they are. If one was not in a slot, it waits until all
// have read: they part. A slot has two posts, which take turns: no rank is two collectives ahead of
// another.
#ifndef CPU_SHARED_H
#define CPU_SHARED_H

#include "cpu/shared_memory/collectives.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARED_ROOM = 4096 };

// The place of bytes in the memory of a rank: 0, none.
typedef uint64_t location;

// A rank's announcement of its call.
struct announcement {
  uint32_t call;    // enum shared_call, type and operation
  uint32_t is_here; // whether the operand is in `room`
  uint64_t size;    // equal for all ranks that call the same
  location in, out;
};

// The others look at its first cache line until the call comes. So all of that line is written at
// once.
struct posted {
  _Alignas(64) _Atomic uint32_t arrived; // the number of this call
  _Atomic uint32_t sleepers;             // ranks that sleep until it changes
  struct announcement announced;
  char room[SHARED_ROOM + 24]; // a small operand; the first bytes are in the same line
};

enum shared_call {
  SHARED_MEET,
  SHARED_BCAST,
  SHARED_ALLREDUCE,
  SHARED_REDUCE_SCATTER,
  SHARED_ALLGATHER,
  SHARED_ALLTOALL,
  SHARED_SENDRECV,
  SHARED_GATHER_SEGMENTS,
  SHARED_REDUCE_SEGMENTS
};

struct shared_group {
  int n, me;                     // the members, and which of them this rank is
  int ranks[SHARED_RANKS];       // their numbers in the machine
  int index;                     // of their slots
  uint32_t calls;                // collectives so far
  uint32_t partings;             // waits for all, beyond the one of each collective
  struct announcement announced; // what it will announce of the next call
};

// Begins a collective; `size` must be equal on all ranks. Returns the room in this rank's slot.
char *shared_begin(struct shared_group *group, enum shared_call call, uint64_t size);

// The place of the rank's own bytes for the others; of bytes outside of shared memory a copy's.
// `copy`, unless NULL: the copy, or the bytes themselves.
location shared_place(const void *bytes, size_t n, char **copy);

// The operand of this rank: in the slot, or where it is.
void shared_operand(struct shared_group *group, const void *in, size_t bytes);

// Waits until all have begun. An error where one calls another collective than this rank.
int shared_meet(struct shared_group *group);

// A member's post, its operand, and the bytes at a place in its memory.
const struct posted *shared_post(struct shared_group *group, int member);
const char *shared_read(struct shared_group *group, int member);
const char *shared_at(struct shared_group *group, int member, location place);

// Waits until all have come here.
void shared_wait(struct shared_group *group);

// Waits until nobody needs this rank's operand any more.
void shared_leave(struct shared_group *group);

// A member's number in the job.
int shared_rank_of(const struct shared_group *group, int member);

// ---- sends between stages of a pipeline (cpu/shared_memory/stages.c)

enum { LETTERS = 1024 };

// The place of a value that a rank has sent.
struct letter {
  _Atomic uint32_t number; // 0: it has been taken
  int to, tag;             // to which rank of the machine
  location value;
  uint64_t bytes;
};

// Those of a rank, counted from 1: number n is in letter[n % LETTERS]. Receivers wait for further
// ones, and the rank itself until some are taken.
struct mailbox {
  _Alignas(64) _Atomic uint32_t sent, receivers;
  _Alignas(64) _Atomic uint32_t taken, senders;
  struct letter letter[LETTERS];
};

struct mailbox *shared_box(struct shared_group *group, int member);

// A member's number in the machine.
int shared_number_of(const struct shared_group *group, int member);

// Waits until the word is at least this number; `sleepers` counts those that sleep. Adds one to it,
// and wakes them.
void shared_wait_for(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t number);
void shared_add(_Atomic uint32_t *word, _Atomic uint32_t *sleepers);

// out[i] = from[0][i] + from[1][i] + ..., in this order; `out` may be one of them.
struct sum {
  char *out;
  bool is_read; // other ranks have read the bytes there, or will
  const char *const *from;
  int members;
  size_t n;
  enum shared_type type;
  int op;
};
void shared_sum(const struct sum *s);
void shared_copy(void *to, const void *from, size_t bytes, bool is_read);

#endif
