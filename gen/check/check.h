/* check.h: checks of the passes' results; no check shares a predicate with the code it checks. */
#ifndef TPGEN_CHECK_H
#define TPGEN_CHECK_H

#include "util/util.h"
#include "ir/ir.h"
#include "pipeline/pipeline.h"
#include "sharding/sharding.h"
#include "target/target.h"
#include "naming/naming.h"

/* One collective as one rank issues it. */
struct issue {
  int group;
  enum op_kind kind;
  enum type type;
  enum reduction reduction;
  const int64_t *give, *get; /* elements to and from each member, by collective_counts */
  bool equal;                /* the call is the one for equal parts, or for a permutation */
  int line;
};
struct sequence {
  int n;
  struct issue *issue;
};

/* Whether this check already looked at an operation with the same rule, moves and operand layouts,
   in the same mode. */
enum { LIES_IN_NO_WAY = 1, IS_STEP = 2, IS_MOVE = 4, IS_COPIED = 8 };

/* A value, and its index in its stack. */
struct one {
  int value, index; /* index NONE: it belongs to a module that is left out */
};

/* The facts about a value. Most values need no entry. */
struct known {
  int modules;        /* of a stack's first value: the size of the stack */
  int *members;       /* if these have storage of their own: that storage, by module that is run */
  int own, grad, sum; /* own storage of the value, its gradient, its gradient sum; or NONE */
  int left;           /* the first of the numbers left for it; NONE */
};

/* Bytes `from` up to `to`, of the arena or of the storage outside of it. Outside, the first `bytes`
   belong to the value, the rest to modules that are left out. */
struct place {
  bool own;
  int64_t from, to, bytes;
};

/* The pieces of a value, first up to last, that an operation (NULL: none) touches. In a chunked
   stack, values other than `one` are touched as a whole. */
struct pieces {
  int first, end, all;
};

/* Intervals of bytes with equal facts, each with a row of `width` numbers, at first 0. An interval
   ends where the next begins. */
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

/* A tensor, cut so. */
struct cut_tensor {
  struct shape whole;
  struct layout layout;
};

/* Whether all pieces of an exchange are contiguous in the senders' parts, and in the receivers'
   parts. `all`: the check compared all pairs of ranks. */
struct piece_runs {
  bool given, got, all;
};

/* A hash by value of its form, and by operation of itself and its operands' forms, from the last
   check. Between two passes most stay the same, and so do the facts about them. Hashes have 64
   bits: equal hashes count as equal things. The facts required of values change once they have
   layouts, those of operations once these are steps: hashes start with that. */
struct marks {
  const struct graph *of;
  int nvalue, nop, value_room, op_room;
  uint64_t *value, *op;
  struct list changed; /* operations whose marks are new in this check */
};
extern struct marks marks;

/* ------------------------------------------------------------------------------------- check.c */

/* Asserts what the pass promises to leave; else calls bug(). */
void check(enum pass after);

/* ----------------------------------------------------------------------------- check_buffers.c */

/* Whether a bucket in this module needs a copy of its members into its buffer, and out of it; or
   has them in the buffer. */
bool needs_copy_in(const struct op *op, int module);
bool needs_copy_out(const struct op *op, int module);
bool is_in_buffer(const struct op *op, int module);
/* Asserts that the program makes just these copies. */
void check_bucket_copies(int id, int module);

/* ------------------------------------------------------------------------------ check_chunks.c */

/* Checks values that are made in pieces. */
void check_in_pieces(void);

/* ------------------------------------------------------------------------------ check_counts.c */

/* The number of elements that the rank has of the values that a collective sums or of its shards;
   of a bucket, all of its members'. */
int64_t elements_together(const struct op *op, int rank);
/* Asserts that the counts which the rank's program states are those of its members' parts. */
void check_counts(const struct op *op, int rank, const int64_t *give, const int64_t *get,
                  bool equal);

/* ----------------------------------------------------------------------------- check_kernels.c */

/* Checks that the kernels of fused operations, and the calls of products, compute what these do. */
void check_kernels(void);
/* After the pass `kernel_forms`: checks that kernel forms fit the parts of a rank. */
void check_forms(void);

/* ------------------------------------------------------------------------------ check_memory.c */

/* Checks that every value is found where it is read. */
void check_memory(void);

/* ------------------------------------------------------------------------------- check_moves.c */

/* Checks that an operation which moves data does what its kind says. begin_moves comes before the
   first one in each check. */
void begin_moves(void);
void check_moves_of(int id);

/* ------------------------------------------------------------------------------- check_order.c */

/* Checks the order of operations on different streams. */
void check_order(void);
/* The same for a class of ranks for CUDA: one of its ranks, and the statement of each operation. */
void check_issued(int rank, const char *const *statement);

/* ------------------------------------------------------------------------------ check_places.c */

/* check_places.c. From begin_run to end_run the program has fewer iterations of long loops. Returns
   the most modules of any loop or stack. Modules are numbered among those that are run. */
int begin_run(void);
void end_run(void);
/* The sizes of micro-batches in the run, as microbatch_sizes() gives them. */
const struct list *sizes_in_run(void);
/* The value and index that `value` refers to while `module` runs; NONE: outside of loops. */
struct one one_of(int value, int module);
struct known *known_of(int value);
/* The storage of the value, which is not of a module that is left out; piece k of n of a
   storage. */
struct place place_of(int value, int module);
struct place piece_of(struct place p, int k, int n);
bool lies_within(struct place inner, struct place outer);
/* The number of modules that are run and that have a value of the stack. */
int modules_run(int stack);
struct pieces pieces_of(const struct op *op, int value, struct one one);
void open_bytes(struct bytes *b, int width);
/* The intervals of a storage. cut: intervals are split at its ends; else they may reach beyond
   it. */
struct intervals intervals_of(struct bytes *b, struct place p, bool cut);
int *row_of(struct intervals s, int k);
/* Merges them into one interval, with the first one's row. */
void make_one(struct intervals s);

/* ----------------------------------------------------------------------------- check_replace.c */

/* Whether an operation that has read its input in time may write `out` there: a fused kernel; an
   operation that moves values within a rank or among ranks. */
bool kernel_may_replace(const struct op *kernel, int out, bool (*overlaps)(int value, int out));
bool product_may_replace(const struct op *op, int in, int out,
                         bool (*overlaps)(int value, int out));
bool move_may_replace(const struct op *op, int in, int out);

/* ------------------------------------------------------------------------------ pending_sums.c */

/* The pass after which check() runs, and its assertion: if that fails, bug() names the pass. */
extern const char *checked_pass;
_Noreturn void require_fails(int op, const char *what);
static inline void require(bool fact, int op, const char *what)
{
  if (!fact) require_fails(op, what);
}
bool is_known(const struct op *op, int way);
/* Whether its output is the bytes of its input, so that both may share storage. */
bool shows_bytes(const struct op *op);
/* Constants of one element are literals: fuse.c drops the operations that make them. */
void mark_constants(bool *made);
/* The placement of an operand on one dimension of the mesh. */
struct placement placement_in(const struct op *op, int value, int d);
uint64_t mark_of_value(const struct value *v, bool laid_out);
uint64_t mark_of_op(const struct op *op, bool are_steps);
void make_marks(void);

/* ------------------------------------------------------------------------------------- prove.c */

/* The collectives that a rank issues in these operations, in order, without the functions that they
   call. */
struct sequence issued_by(const int *op, int n, int rank);
/* Runs all ranks' sequences against each other. NULL if every rank reaches its end, else a text
   that says what would hang. */
const char *prove_order(const struct sequence *of_rank);
void prove(void);

/* ------------------------------------------------------------------------------- check_runs.c */

struct piece_runs piece_runs_of(const struct exchange *e);
/* A rank's part; the number of elements that it and another rank's part of such a tensor have in
   common; and the number of common indices along a dimension. */
struct part part_on(const struct cut_tensor *t, int rank);
int64_t common_part(const struct cut_tensor *t, int rank, const struct cut_tensor *u, int other);
int64_t common_along(const struct cut_tensor *t, const struct part *a, const struct part *b, int d);

/* --------------------------------------------------------------------------- check_absorbed.c */

void check_absorbed(void);

/* ------------------------------------------------------------------------------- check_rows.c */

void check_rows(void);

/* ------------------------------------------------------------------------------ check_slots.c */

void check_slots(void);

/* --------------------------------------------------------------------------- check_transfers.c */

/* Checks the values that the stages of a pipeline take from each other. */
void check_transfers(void);

/* ------------------------------------------------------------------------------ check_waits.c */

/* Whether an action does that work of its stage. */
bool action_does(enum action_kind kind, enum stage_work work);
/* The actions of a pipeline's ranks that wait for each other forever, as a text; or NULL. */
const char *waits_forever(const struct pipeline *p);

/* ------------------------------------------------------------------------------- check_ways.c */

/* Asserts that the operation runs on the layouts of its operands. */
void check_way(int id);

/* --------------------------------------------------------------------------- match_transfers.c */

/* Where sends and receives match by their order: the stages, of those whose programs were passed
   in, whose order differs from that of the other end; or NULL. */
const char *unlike_ends(void);
/* The same of collectives of several stages' ranks: whether the programs have others. */
const char *unlike_joins(void);

#endif
