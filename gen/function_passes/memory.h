/* memory.h: the pass `memory`: lifetimes, aliases, offsets in the arena. */
#ifndef TPGEN_FOLDED_MEMORY_H
#define TPGEN_FOLDED_MEMORY_H

#include "ir/ir.h"

/* Facts about a value for the search of values that share bytes. */
struct value_note {
  int slot;           /* a view of a stack's value, made outside the loop: the value's index */
  int gradient;       /* PARAMETER: the value whose place all its gradients share, or NONE */
  int sum;            /* PARAMETER: the same for its SUMS */
  int64_t within;     /* its offset in its bucket */
  bool by_own_name;   /* a member of its stack is read by its own name, not as the module's */
  bool loop_carried;  /* a loop-carried collective reads or writes its bytes */
  bool added_up;      /* PARAMETER: batches accumulate its gradient in place */
  bool taken;         /* a member of the current bucket has its bytes */
  bool touched;       /* the program reads or writes it */
  int reads, read_at; /* the number of program points that read it; the last of them */
  bool sums_up;       /* carried: the step adds to it in place, from zeros on */
  bool is_sum;        /* the result of that: it keeps its place from step to step */
};

/* Lifetimes and aliases as they are found. `at` is a program point: the index of an operation in
   the order of each_op. */
struct lifetimes {
  struct memory_plan *plan;      /* the result, before the offsets are found */
  struct list value;             /* the values under consideration */
  struct list op;                /* the operation at each program point */
  struct list storage;           /* the storages in the arena */
  struct value_note *note;       /* by value */
  int *function_of;              /* by operation */
  int *await_at;                 /* by operation: the program point of its await, or NONE */
  int *loop_first, *loop_last;   /* by function: the program points of its body */
  int end_of_batches;            /* the program point after all operations of each batch */
  int *accessed, *in, *out;      /* the values of one operation */
  int width;                     /* the capacity of these */
  size_t values, ops, functions; /* the capacities of the tables */
};

/* The answer to a trial placement. */
struct placed {
  uint64_t hash; /* of the values and the bound */
  int64_t looked_at, end;
};
enum { PLACED = 512 };

/* Storages to place in the arena: arena_offsets.c. */
struct placing {
  struct memory_plan *plan;
  int n, room;
  struct item *item;
  struct item **order, **late; /* the order of placement; see hurry */
  struct lying *lying;
  int change_room;
  int64_t *change;
  int64_t looked_at; /* placed values, in all placements */
  uint64_t random;
  struct placed placed[PLACED]; /* by hash */
};

/* ------------------------------------------------------------------------------------- alias.c */

/* Finds which values share bytes: storages, and their lifetimes. */
void find_aliases(struct lifetimes *l);
/* A value's offset in its storage. */
int64_t offset_within(const struct lifetimes *l, int value);

/* ----------------------------------------------------------------------------- arena_offsets.c */

/* Whether the value's bytes are in the arena, and its own and not another's of its stack. */
bool in_arena(int value);
/* The bytes of its whole stack there. */
int64_t arena_size(const struct memory_plan *plan, int value);
/* Takes these storages. The largest sum of their live bytes. An offset for each, below the bound if
   possible; returns the end of the last one. */
void begin_placing(struct placing *p, struct memory_plan *plan, const struct list *storage);
int64_t most_live(struct placing *p);
int64_t place_values(struct placing *p, int64_t bound, bool well);

/* ---------------------------------------------------------------------------------- in_place.c */

/* Whether the two have parts of the same shape on every rank. */
bool have_same_parts(int a, int b);
/* Whether the operation's result has the bytes of its input. */
bool is_view(const struct op *op);
/* Whether it is a product that adds to a value other than its result and its operands. */
bool adds_to_another(const struct op *op);
/* Whether the operation may make `out` in the place of an input; `in` is that input, or NONE if it
   may be any (for a kernel). */
bool overwrites(const struct op *op, int out, int *in);
/* Whether the operation may put `out` in the place of `in`, if nothing reads `in` later. The plan
   has the inputs that share bytes; NULL: none do. */
bool may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out);

/* ---------------------------------------------------------------------------------- lifetimes.c */

/* Finds the program points, and starts with empty notes and an empty plan. */
void find_program_points(struct lifetimes *l);
const struct op *op_at(const struct lifetimes *l, int at);
int function_running_at(const struct lifetimes *l, int at);
bool is_loop_body(int function);
/* The values that are needed until the point. Returns their number. */
int reads_at(const struct lifetimes *l, int at, int *list);
/* The lifetime of each value, as if none shared its bytes. */
void find_lifetimes(struct lifetimes *l);
/* A value that a loop-carried collective reads or writes lives from the loop's beginning: in an
   iteration, nothing else may use its bytes. */
void hold_loop_carried(struct lifetimes *l);
/* A value that is kept for several modules lives from the first iteration to, at least, the last,
   even if the part called after the loop is its last maker. */
void widen_lifetimes(struct lifetimes *l);
/* Whether nothing needs the value after the operation at `at`. */
bool ends_at(const struct lifetimes *l, int value, int at);

/* ------------------------------------------------------------------------------------ memory.c */

/* A plan with all but the offsets in the arena: the values that share bytes, and each value's
   offset in its storage. */
struct memory_plan *find_shared_bytes(void);
/* The largest sum of live bytes with the operations in their current order. */
int64_t live_bytes(void);
/* Whether the program fits into this number of bytes, placed with little loss. */
bool can_live_in(int64_t bytes);

#endif
