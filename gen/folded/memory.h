/* memory.h: the pass `memory`: lifetimes, aliases, offsets in the arena. */
#ifndef TPGEN_FOLDED_MEMORY_H
#define TPGEN_FOLDED_MEMORY_H

#include "ir/ir.h"

/* What is noted of a value while it is found which bytes it shares. */
struct value_note {
  int slot;          /* of a view of one of a family, made outside the loop: which of them */
  int gradient;      /* PARAMETER: the value whose place all its gradients share, or NONE */
  int sum;           /* PARAMETER: likewise its SUMS */
  int64_t within;    /* where it begins in the bucket that it lies in */
  bool told_apart;   /* one of its family is read by itself, not as the module's */
  bool loop_carried; /* a loop-carried collective reads or writes its bytes */
  bool added_up;     /* PARAMETER: batches add its gradient up where it lies */
  bool taken;        /* a member of the bucket at hand has its bytes */
  bool touched;      /* the program reads or writes it */
};

/* Lifetimes and aliases as they are found. `at` is a program point: the index of an operation in
   the order of each_op. */
struct lifetimes {
  struct memory_plan *plan;      /* what is found: before the offsets are */
  struct list value;             /* the values that are looked at */
  struct list op;                /* the operation at each program point */
  struct list storage;           /* the storages in the arena */
  struct value_note *note;       /* by value */
  int *function_of;              /* by operation */
  int *await_at;                 /* by operation: the program point of its await, or NONE */
  int *loop_first, *loop_last;   /* by function: the program points of its body */
  int end_of_batches;            /* the program point behind all that runs for each batch */
  int *accessed, *in, *out;      /* the values of one operation */
  int width;                     /* how many values these have room for */
  size_t values, ops, functions; /* how many the tables have room for */
};

/* Storages that are placed in the arena: arena_offsets.c. */
struct placing {
  struct memory_plan *plan;
  int n, room;
  struct item *item;
  struct item **order, **late; /* in which they are placed; see hurry */
  struct lying *lying;
  int change_room;
  int64_t *change;
  int64_t looked_at; /* how many lying values, in all placings */
  uint64_t random;
};

/* ------------------------------------------------------------------------------------- alias.c */

/* Finds which values share bytes: storages, and their lifetimes. */
void find_aliases(struct lifetimes *l);
/* Where a value begins in the storage that it lies in. */
int64_t offset_within(const struct lifetimes *l, int value);

/* ----------------------------------------------------------------------------- arena_offsets.c */

/* Whether the value's bytes are the arena's, and are its own and not another's of its family. */
bool in_arena(int value);
/* How many bytes all of its family take there. */
int64_t arena_size(const struct memory_plan *plan, int value);
/* Takes these storages; the largest sum of what lives at once of them; and a place for each, if
   that can be below the bound. Gives where the last one ends. */
void begin_placing(struct placing *p, struct memory_plan *plan, const struct list *storage);
int64_t most_live(struct placing *p);
int64_t place_values(struct placing *p, int64_t bound, bool well);

/* ---------------------------------------------------------------------------------- in_place.c */

/* Whether the two are as large on every rank, element for element. */
bool have_same_parts(int a, int b);
/* Whether what the operation makes is what it reads, byte for byte. */
bool is_view(const struct op *op);
/* Whether the operation may make `out` in the place of something that it reads, and of what: `in`
   is NONE where it may be anything (of a kernel). */
bool overwrites(const struct op *op, int out, int *in);
/* Whether the operation may leave `out` where `in` lies, if nothing reads that later. The plan says
   which of its inputs share bytes; NULL: none do. */
bool may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out);

/* ---------------------------------------------------------------------------------- lifetimes.c */

/* Finds the program points, and begins with no note of a value and with an empty plan. */
void find_program_points(struct lifetimes *l);
const struct op *op_at(const struct lifetimes *l, int at);
int function_running_at(const struct lifetimes *l, int at);
bool is_loop_body(int function);
/* The values that are needed until there. Gives how many. */
int reads_at(const struct lifetimes *l, int at, int *list);
/* From when to when each value lives, as if none shared its bytes. */
void find_lifetimes(struct lifetimes *l);
/* What a loop-carried collective reads and writes lives from the loop's begin. The bytes are not to
   be those of anything else in an iteration. */
void hold_loop_carried(struct lifetimes *l);
/* What is kept for several modules lives from the first iteration to, at least, the last; though
   its last maker is the part that is called behind the loop. */
void widen_lifetimes(struct lifetimes *l);
/* Whether nothing needs the value any more when the operation at `at` has come to its end. */
bool ends_at(const struct lifetimes *l, int value, int at);

/* ------------------------------------------------------------------------------------ memory.c */

void memory(void);
/* A plan with all but the offsets in the arena: which values share bytes, and where each begins in
   the storage that it lies in. */
struct memory_plan *find_shared_bytes(void);
/* The largest sum of what would live at once if the operations ran as they stand. */
int64_t live_bytes(void);
/* Whether so many bytes are enough for it, placed with little loss. */
bool can_live_in(int64_t bytes);

#endif
