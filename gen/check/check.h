/* check.h: checks of what the passes leave; each shares no predicate with what it checks. */
#ifndef TPGEN_CHECK_H
#define TPGEN_CHECK_H

#include "base/base.h"
#include "ir/ir.h"
#include "sharding/sharding.h"
#include "target/target.h"
#include "flat/flat.h"
#include "folded/folded.h"
#include "emit/emit.h"

/* One collective as one rank issues it. */
struct issue {
  int group;
  enum op_kind kind;
  enum type type;
  enum reduction reduction;
  const int64_t *give, *get; /* elements to and from each member, as collective_counts says */
  bool equal;                /* the call is the one for equal parts, or for a permutation */
  int line;
};
struct sequence {
  int n, room;
  struct issue *issue;
};

/* Whether an operation was looked at before, in this way, that is the same in all that is to be
   seen: its rule, what it moves, and how its operands lie when this check began. */
enum { LIES_IN_NO_WAY = 1, IS_STEP = 2, IS_MOVE = 4, IS_COPIED = 8 };

/* A value, and its place among those of its family. */
struct one {
  int value, index; /* index NONE: it is a module's that is left out */
};

/* Of a value that is looked at. There are many of which none needs to be known. */
struct known {
  int modules;        /* of a family's first: how many there are of it */
  int *members;       /* if these have places of their own: they, by module of those that are run */
  int own, grad, sum; /* which places are its own, its gradient's, that of the sum for it; NONE */
  int left;           /* Where the numbers begin that were left for it; NONE */
};

/* Bytes: `from` up to `to`, of the arena or of the places of their own. There the first `bytes` are
   the value's, and those behind them of modules that are left out. */
struct place {
  bool own;
  int64_t from, to, bytes;
};

/* Which pieces of a value an operation (NULL: none) touches: from the first up to the last. Of a
   family in pieces others than what stands for it, `one`, are touched as a whole. */
struct pieces {
  int first, end, all;
};

/* Stretches of bytes that are known to be alike, each with a row of `width` numbers, 0 at first;
   one ends where the next begins. */
struct space {
  int n, room, width;
  int64_t *from;
  int *row;
};
struct bytes {
  struct space arena, own;
};
struct intervals {
  struct space *in;
  int first, n;
};

/* By value a mark of its form, by operation one of itself and its operands' forms, when they were
   last looked at: between two passes most stay as they are, and what was found true of them is.
   Marks are 64 bits of a hash: equal ones are of equal things. What is to be true of values differs
   once they are laid out, of operations once these are steps: marks begin with that. */
struct marks {
  const struct graph *of;
  int nvalue, nop, value_room, op_room;
  uint64_t *value, *op;
  struct list changed; /* operations whose marks are new in this check */
};
extern struct marks marks;

/* ------------------------------------------------------------------------------------- check.c */

/* Asserts what the pass promises to leave; bug() where it does not hold. */
void check(enum pass after);

/* ------------------------------------------------------------------------------ check_chunks.c */

/* Values that are made in pieces. */
void check_in_pieces(void);

/* ----------------------------------------------------------------------------- check_kernels.c */

/* That the kernels of fused operations, and the calls of products, compute what these do. */
void check_kernels(void);
/* That their forms fit what a rank has, behind the pass `kernel_forms`. */
void check_forms(void);

/* ------------------------------------------------------------------------------ check_memory.c */

/* That every value is found where it is read. */
void check_memory(void);

/* ------------------------------------------------------------------------------- check_moves.c */

/* That an operation which moves data does what it says; before the first of a check
   begin_moves. */
void begin_moves(void);
void check_moves_of(int id);

/* ------------------------------------------------------------------------------- check_order.c */

/* The order of what runs on different streams. */
void check_order(void);
/* The same of a class of ranks for CUDA: of one of them, by operation its statement. */
void check_issued(int rank, const char *const *statement);

/* ------------------------------------------------------------------------------ check_places.c */

/* check_places.c. The program is run from begin_run to end_run with fewer rounds of long loops than
   there are: gives the most rounds of any. Modules are numbered among those that are run. */
int begin_run(void);
void end_run(void);
/* What is meant by a value where `module` is at work, NONE: outside of loops. */
struct one one_of(int value, int module);
struct known *known_of(int value);
/* Where the value lies, which is not of a module that is left out; the piece of a place that is the
   k-th of n. */
struct place place_of(int value, int module);
struct place piece_of(struct place p, int k, int n);
struct pieces pieces_of(const struct op *op, int value, struct one one);
void open_bytes(struct bytes *b, int width);
/* The intervals of a place: cut at its ends, or, for a look, with what is around it. */
struct intervals intervals_of(struct bytes *b, struct place p, bool cut);
int *row_of(struct intervals s, int k);
/* They become one interval, with the first one's row. */
void make_one(struct intervals s);

/* ----------------------------------------------------------------------------- check_replace.c */

/* Whether an operation that is done with what it reads in time may leave `out` there: a fused
   kernel; what moves values within or among ranks. */
bool kernel_may_replace(const struct op *kernel, int out, bool (*overlaps)(int value, int out));
bool move_may_replace(const struct op *op, int in, int out);

/* ------------------------------------------------------------------------------------- facts.c */

/* The pass after which check() looks at the program; and its assertion: where it does not hold,
   bug() tells of that pass. */
extern const char *checked_pass;
void require(bool fact, int op, const char *what);
bool is_known(const struct op *op, int way);
/* Whether what it makes is the bytes that it takes, so that it may lie there. */
bool shows_bytes(const struct op *op);
/* Constants of one element are written as numbers: fuse.c drops what makes them. */
void mark_constants(bool *made);
/* The choice by which the operation runs on one dimension of the mesh, or NONE. */
int choice_taken(const struct op *op, const struct choice *list, int n, int d);
uint64_t mark_of_value(const struct value *v, bool laid_out);
uint64_t mark_of_op(const struct op *op, bool are_steps);
void make_marks(void);

/* ------------------------------------------------------------------------------------ limits.c */

/* The plan's error where a step has more collectives than the plan expects. limits.c. */
void expect(void);
/* The plan's error where a rank needs more memory than device_mesh gives it. limits.c. */
void fit(void);

/* ------------------------------------------------------------------------------------- prove.c */

/* What a rank issues in these operations, in order; what they call is left out. */
struct sequence issued_by(const int *op, int n, int rank);
/* Runs all ranks' sequences against each other. NULL when every rank comes to its end, else what
   would hang, in words. */
const char *prove_order(const struct sequence *of_rank);
void prove(void);

#endif
