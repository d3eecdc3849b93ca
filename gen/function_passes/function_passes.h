/* function_passes.h: the passes over functions: equal layers are loops. */
#ifndef TPGEN_FUNCTION_PASSES_H
#define TPGEN_FUNCTION_PASSES_H

#include "util/util.h"
#include "ir/ir.h"
#include "sharding/sharding.h"
#include "target/target.h"
#include "graph_passes/graph_passes.h"
#include "function_passes/memory.h"

/* Longer functions are ordered in parts. */
enum { LONGEST_ORDERED = 512 };

/* A collective as the choice sees it. */
struct single {
  enum op_kind kind;
  int group;
  enum reduction reduction;
  enum type type;        /* the type that travels */
  bool last_batch;       /* only the last batch of a step runs it */
  int unit;              /* it may share a bucket only with members of this unit; or NONE */
  int64_t bytes;         /* of its input or its output, the larger one */
  const uint64_t *needs; /* by number, the earlier ones that it depends on: a bit for each, in words
                            of 64; NULL: none */
};
/* Capacity in bytes of the 1st, 2nd, ... bucket of a kind; the last entry applies to all later
   ones. n == 0: unlimited. */
struct caps {
  int n;
  const int64_t *bytes;
};

struct buckets {
  int n, room;
  struct list *at; /* the numbers of the members */
};

/* A collective that is in flight from one iteration of a loop to another one has a node that issues
   it and a node that awaits it. */
enum carried {
  NOT_CARRIED,
  PREFETCHES,     /* in the body, both: awaits a collective of an earlier iteration, and issues the
                     one that a later iteration awaits */
  AWAITED_NEXT,   /* in the body: issues a collective that the next iteration awaits */
  AWAITS_EARLIER, /* in the body or after the loop: awaits a collective that the iteration before
                     issued; in the body also: issues the one that is awaited after the loop */
  ISSUES_FIRST    /* before the loop: issues a collective that one of the first iterations awaits */
};

/* A node of the dependence graph: an operation of a span. */
struct op_node {
  int op;
  int next;  /* PREFETCHES: `op` awaits, `next` issues */
  int group; /* of a collective, else NONE */
  int body;  /* of a loop, else NONE */
  enum carried carried;
  int collective;             /* that is carried */
  bool movable;               /* the search may move it */
  bool async;                 /* a collective: issued at its place, awaited where its result is
                                 needed */
  int predecessor, successor; /* the collective that this one can be chained to, and the one that
                                 can be chained to it; or NONE */
  int64_t time;               /* of a collective on its group's stream, else on the main stream */
  int64_t time_before;        /* on the main stream: of copies and arithmetic before the issue */
  int64_t time_after;         /* and after the await */
  int64_t exposed;            /* the time for which the main stream waits, in the last simulation */
  int64_t end[MOST_PREFETCHED]; /* PREFETCHES: the ends of those in flight, the oldest first */
  int nend;
  struct list dependences; /* the nodes that it depends on */
  struct list collectives; /* those of them that are collectives */
  struct list dependents;  /* the nodes that depend on it */
};

/* The streams while a span is simulated. */
struct streams {
  struct stream_times times;
  int64_t *end; /* by node: the end of an issued collective; 0: it has been awaited */
  struct list in_flight;
  bool *is_in_flight; /* by node */
};

/* Operations of a function that are ordered together: all, or LONGEST_ORDERED of a longer one. */
struct span {
  struct overlap *program;
  int number; /* of the program's spans, from 1 */
  int nnode;
  struct op_node *node;
  int *order;                          /* the nodes in their order */
  int *place;                          /* by node: its place in that */
  bool (*depends_on)[LONGEST_ORDERED]; /* by node: its list `dependences` as a table */
  int most_ahead; /* the largest number of iterations between the issue of a collective and its
                     await */
  int *await;     /* by node: the operation that awaits a collective */
  struct streams streams;
};

/* The facts about the program's functions that a run of `schedule` uses. */
struct liveness; /* the times at which values live: liveness.c */
struct overlap {
  struct liveness *live;
  int64_t *time; /* by function: its time by the model */
  bool **blocks; /* by function and group: whether a collective of the group is not asynchronous */
  struct left_in_flight *left; /* collectives that are in flight when a loop ends */
  int nleft, left_room;
  int *alias_class;                    /* by value */
  struct accesses *accesses;           /* by alias class */
  int *accessed, accessed_room;        /* a list that is filled again for each operation */
  bool (*depends_on)[LONGEST_ORDERED]; /* the table of the present span */
  int nspan;
  int64_t visited; /* the number of nodes that the search has visited */
  int64_t asked;   /* the number of queries to memory.c: see within_budget */
};

/* The kinds of memory that a rank holds outside its arena, as plan.txt calls them. */
enum { MEMORY_PARTS = 6 };
extern const struct memory_part {
  const char *name;
  enum role role;
} memory_part[MEMORY_PARTS];

/* ------------------------------------------------------------------------------ bucket_merge.c */

/* The value that represents this one in a loop: one value of a stack represents all of it. */
int alias_root(int value);
struct merging;
/* Finds the operations that the functions run, and the values that they read: before the first call
   of those below, and after other code changed functions. */
struct merging *find_running(void);
/* Whether this function runs the operation, which may be NONE; the number of running operations
   that read the value, or one of its stack. */
bool runs_in(struct merging *m, const struct function *f, int id);
int readers_of(struct merging *m, int value);
/* Notes that the function now runs the operation, too; that the operation reads this value
   first. */
void run_now(struct merging *m, const struct function *f, int id);
void read_instead(struct merging *m, int id, int value);
/* Sorts the members by the order of their parameters in memory; those without a parameter come
   last. */
void put_in_order(int *member, int n);
/* Finds, for each of a function's operations in the list, n singles, the others that it depends
   on. */
void find_needs(struct merging *m, const struct function *f, const int *op, struct single *s,
                int n);
/* A walk over operations of a function. begin_noting starts it, with nothing noted. note_op notes
   an operation. depends: whether the operation has to keep its order with those noted; the caller
   then notes it, too. is_in_the_way: whether the operation, a collective, cannot be a member with
   those noted, as one of them needs the other. back: the walk goes from the last operation to the
   first. */
void begin_noting(struct merging *m);
void note_op(struct merging *m, const struct op *op);
bool depends(struct merging *m, const struct op *op);
bool is_in_the_way(struct merging *m, const struct op *op, bool back);
/* The collectives that can run as one with the first, in *member; the others in *rest. */
void take_of_one_kind(struct merging *m, const struct function *f, const struct list *all,
                      struct list *member, struct list *rest);
/* Makes one collective of the members, if they are several and can run as one: at the place of the
   first of them if they gather, otherwise at that of the last. packed: they travel in a buffer.
   Returns whether it did. */
bool merge(struct merging *m, struct function *f, const int *member, int n, bool packed);
/* The same, unless --explain-cost forces the members to stay apart; it notes what it asks about. */
bool merge_explained(struct merging *m, struct function *f, const int *member, int n, bool packed);
/* Whether the collective can be a member: the bucket can absorb the packing or unpacking next to
   it, if it has one. */
bool is_mergeable(struct merging *m, const struct function *f, int id);

/* ----------------------------------------------------------------------------- bucket_select.c */

/* Whether one call can make both, whatever their units. */
bool travels_like(const struct single *a, const struct single *b);
/* The capacity of the bucket with this number, from 0 on. */
int64_t cap_of(const struct caps *caps, int bucket);
/* Buckets of consecutive collectives; of all that travel in the same way. */
struct buckets choose_in_order(const struct single *s, int n, const struct caps *caps);
struct buckets choose_of_one_kind(const struct single *s, int n, const struct caps *caps);

/* ---------------------------------------------------------------------- contiguous_gradients.c */

/* By operation of the function, the time at which everything up to it has been computed, by the
   model of cost.c; without collectives, in picoseconds. The table is valid until the next call. */
int64_t *times_in(const struct function *f);
/* Makes buckets of the function's gradients that are summed in place. */
void bucket_gradients(struct merging *m, struct function *f);

/* ------------------------------------------------------------------------------- dependences.c */

/* The number of the set of values whose bytes are, or may be, the same: that of the first value of
   a stack or of the value that a view shows. A gradient, a sum over micro-steps and the loss have
   numbers from nvalue to 3 nvalue. */
int alias_class(int value);
/* Whether the operation, a collective, can start when the other one ends, whatever else runs: it
   reads only the other's results, and needs no copy before it. */
bool can_chain(const struct op *op, const struct op *predecessor);
/* Before the first span of the program. */
void open_dependences(struct overlap *o);
/* Finds the nodes of a span, their dependences, and the collectives' predecessors. The tables of
   the span before are gone then. */
struct span *find_span(struct overlap *o, const int *op, int n);
void add_dependence(struct span *s, int later, int earlier);

/* ---------------------------------------------------------------------------------- epilogue.c */

struct epilogue epilogue_of(const struct op *op);

/* --------------------------------------------------------------------------------- footprint.c */

/* The bytes for the parts of sums on rank 0. */
int64_t parts_bytes(void);
/* The bytes in which cuBLASLt may work; 0 without products. */
int64_t product_workspace(void);
/* The bytes at its end in which operands of a product are transposed. */
int64_t product_copies(void);
/* Bytes of rank 0, which has the largest parts: of its values by role (outputs for ACTIVATION), of
   all memory that the program requests, and an allowance for the memory of libraries. */
const int64_t *memory_by_role(void);
int64_t memory_of_role(enum role role);
int64_t memory_of_rank(void);
int64_t library_reserve(void); /* limits.c */
/* "91.3 GiB", the bytes that are needed, rounded up. limits.c. */
char *size_text(int64_t bytes);
/* Elements of the values with this role, of parameters in blocks their numbers: of a rank's parts,
   or of the whole with rank NONE. */
int64_t held_elements(enum role role, int rank);
/* The bytes of the parameters on rank 0 that are not trained. */
int64_t frozen_bytes(void);

/* -------------------------------------------------------------------------- hoist_reductions.c */

/* Gives every gradient that is summed a value that may be summed in its place, and, if
   asked, brings small sums of gradients out of the loops over modules. */
void prepare_gradients(struct merging *m, bool out_of_loops);

/* ---------------------------------------------------------------------------- last_iteration.c */

/* Issues the gathers that follow a loop in a phase's function in the loop's last iteration.
   most_live: the bytes that may live in the program. */
void issue_in_last_iterations(struct overlap *o, int function, int64_t most_live);

/* ---------------------------------------------------------------------------------- liveness.c */

/* The facts about the program's values before its functions are ordered. */
struct liveness *open_liveness(void);
/* The most bytes that are alive while some of a function's operations run in this order, relative
   to the bytes before it. */
int64_t peak_of(struct liveness *l, const int *op, int n);
/* Each query for the live bytes of an order visits the whole program. Returns whether one more
   query is allowed; `of` counts the operations visited, and `most` bounds them. */
bool within_budget(int64_t *of, int64_t most);
/* Prepares for this function's operations. */
void enter_function(struct liveness *l, const struct function *f);
/* Whether the value is a view, which has no bytes of its own: it shows those of its input. */
bool has_no_bytes(int value);
/* Whether the operation touches the gradients that this one makes for any module of a list. */
bool touches_gradients_of(const struct op *op, const struct op *reduction);
/* Whether the collective may be in flight beyond its place, and takes longer than the overhead of
   that. A piece is treated like its products. */
bool is_worth_it(const struct op *op);
/* Orders the operations of each function of a batch so that few bytes are alive at once; returns
   the most bytes that are then alive. */
int64_t order_functions(struct liveness *l);
bool is_of_stack(int value, int of);

/* ------------------------------------------------------------------------------ loop_carried.c */

/* Overlaps the collectives of a loop's body with other operations, some of them with those of
   another iteration. most_live: the live bytes of the present program; returns the bytes that may
   then live in it. */
int64_t overlap_body(struct overlap *o, int body, int64_t most_live);
/* The plan's error if it asks for prefetch, and nothing could be prefetched. */
void check_prefetch(void);

/* ----------------------------------------------------------------------------------- overlap.c */

/* Before the first function of the program. */
struct overlap *open_overlap(struct liveness *live);
/* Orders the function so that its collectives run beside other operations. The functions that it
   calls come first. most_live: the bytes that may live in the program. Returns the function's time
   by the model. */
int64_t overlap_function(struct overlap *o, struct function *f, int64_t most_live);

/* ------------------------------------------------------------------------------- stream_model.c */

/* Prepares the streams of a span, and makes an await for each of its collectives. */
void open_streams(struct span *s);
/* Whether the collective is chained to its predecessor; whether its successor is chained to it. */
bool is_chained(const struct span *s, int n);
bool has_chained(const struct span *s, int n);
/* The place of the first node that depends on this one; nnode without one. */
int first_dependent(const struct span *s, int n);
/* The time of the span in its order; of a loop's body, that of a later iteration. Finds the exposed
   time of each collective. */
int64_t simulate_span(struct span *s);
/* Writes the operations in their order, with an await for each asynchronous collective. Returns
   their number. */
int write_order(struct span *s, int *op);
/* Makes a collective asynchronous if one of its group is in flight where it is issued: it runs on
   the same stream. If it would be awaited at once, it comes after the other one's await. */
void queue_behind_in_flight(struct span *s);
/* Notes that the collective is in flight when the loop ends, and the time that it takes from
   there. */
void leave_in_flight(struct overlap *o, int collective, int body, int64_t time);

/* ------------------------------------------------------------------------------ bucket_kinds.c */

/* Whether it sums a gradient over ranks in the gradient's place. */
bool is_gradient_sum(const struct op *op);
/* Whether one call can make the two collectives: they have the same kind and group, and move values
   of the same type. */
bool same_kind(int a, int b);
/* Whether neither has a unit with bounds, or both have the same. */
bool may_share(int a, int b);
/* Whether it takes longer to start a collective over the group than to send so many bytes; and the
   most bytes of such collectives that are packed into one. */
bool is_small(int group, int64_t bytes);
int64_t most_of_small(void);

/* ---------------------------------------------------------------------------- concat_buffers.c */

enum { MOST_TOGETHER = 8 }; /* parts of a concat buffer */

/* A value, and the values that show its bytes in another shape. */
struct shown {
  int n, value[2 * MOST_TOGETHER];
};

/* A candidate for a concat buffer: the roots of its parts, the lengths of their rows, and all
   values that show them; and which parts are copied out of it. */
struct widening {
  int n, root[MOST_TOGETHER];
  int64_t row[MOST_TOGETHER];
  struct shown shown[MOST_TOGETHER];
  bool leaves[MOST_TOGETHER];
  int buffer; /* the value, when it is made */
  int ncopy,
      copy[MOST_TOGETHER]; /* the operations that copy out of it: they come after its maker */
};

/* The places of the program's operations, and the values that they read: the state of
   merge_products. */
struct placed_ops {
  struct list *readers; /* by value, or its stack: the operations that read it */
  int *function_of;     /* by operation: the function that runs it, or the kernel that contains
                           it */
  int *place_of;        /* likewise: its place in the function */
  bool *is_tight;       /* by operation: it is in an epilogue, whose operands have no gaps */
  bool *by_own_name;    /* by stack: a member is read by its own name, or as that of another
                           module */
  struct list order;    /* a function's operations from a place on, in their new order */
};
struct placed_ops find_all_readers(void);
/* Notes the place of a new operation. */
void note_place(struct placed_ops *p, int op, int function, int place);
/* Whether the values, each with its parts along its dimension d, can be parts of a new one that the
   function makes; may_leave: those that live longer may be copied out of it. */
bool can_widen(struct placed_ops *p, struct widening *w, int n, const int *value, const int *dim,
               int function, bool may_leave);
/* Makes the concat buffer. The caller notes its operation, and the place of the copies. */
void make_wide(struct placed_ops *p, struct widening *w);
/* Whether the value has parts of one size on all ranks, with elements. */
bool parts_are_equal(int value);
/* Whether they are all parts of one concat buffer, from its first to its last. */
bool are_parts(int n, const int *value);

#endif
