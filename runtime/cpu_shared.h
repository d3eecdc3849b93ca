// How ranks of one machine talk through memory: the inside of cpu_shared_mpi.h.
//
// Each rank has a slot for each group. In a collective a rank writes there what it calls, and where
// its operand is (a small one stands in the slot itself), and waits until all others have: they
// meet. Then it reads the others' operands where they are. If one did not stand in a slot, it waits
// until all have read: they part. A slot has two posts, which take turns: no rank is two
// collectives ahead of another.
#ifndef CPU_SHARED_H
#define CPU_SHARED_H

#ifndef TPGEN_SHARED
#define TPGEN_SHARED // for program.h: no other MPI
#endif
#include "cpu_shared_mpi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARED_RANKS = 256, SHARED_ROOM = 4096 };

// The place of bytes in the memory of a rank: 0, none.
typedef uint64_t location;

// What a rank tells of its call.
struct told {
  uint32_t call;    // enum shared_call, type and operation
  uint32_t is_here; // whether the operand is in `room`
  uint64_t size;    // equal for all ranks that call the same
  location in, out;
};

// The others look at its first cache line until it comes. So all that is there is written at once.
struct posted {
  _Alignas(64) _Atomic uint32_t arrived; // the number of this call
  _Atomic uint32_t sleepers;             // ranks that sleep until it changes
  struct told told;
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
  SHARED_GATHER_PARCELS,
  SHARED_REDUCE_PARCELS
};

struct shared_group {
  int n, me; // the members, and which of them this rank is
  int world[SHARED_RANKS];
  int index;         // of their slots
  uint32_t calls;    // collectives so far
  uint32_t partings; // waits for all, beyond the one of each collective
  struct told told;  // what it will tell of the next call
  MPI_Errhandler handler;
};

// Begins a collective; `size` must be equal on all ranks. Returns the room in this rank's slot.
char *shared_begin(MPI_Comm group, enum shared_call call, uint64_t size);

// The place of the rank's own bytes for the others; of bytes outside of shared memory a copy's.
// `copy`, unless NULL: the copy, or the bytes themselves.
location shared_place(const void *bytes, size_t n, char **copy);

// The operand of this rank: in the slot, or where it is.
void shared_operand(MPI_Comm group, const void *in, size_t bytes);

// Waits until all have begun. An error where one calls another collective than this rank.
int shared_meet(MPI_Comm group);

// What a member has posted, its operand, and the bytes at a place in its memory.
const struct posted *shared_post(MPI_Comm group, int member);
const char *shared_read(MPI_Comm group, int member);
const char *shared_at(MPI_Comm group, int member, location place);

// Waits until all have come here.
void shared_wait(MPI_Comm group);

// Waits until nobody needs this rank's operand any more.
void shared_part(MPI_Comm group);

// Returns an error with this text.
__attribute__((format(printf, 2, 3))) int shared_error(MPI_Comm group, const char *format, ...);

// out[i] = from[0][i] + from[1][i] + ..., in this order; `out` may be one of them.
struct sum {
  char *out;
  bool is_read; // other ranks have read the bytes there, or will
  const char *const *from;
  int members;
  size_t n;
  MPI_Datatype type;
  MPI_Op op;
};
void shared_sum(const struct sum *s);
size_t shared_size(MPI_Datatype type);
void shared_copy(void *to, const void *from, size_t bytes, bool is_read);

#define SHARED_ALIAS(name) __attribute__((weak, alias(#name)))

#endif
