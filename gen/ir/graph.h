/* graph.h: the data that the passes share.

   The program is a graph: values and operations, each an index into an array, all in one arena.
   Until `redistribute` the graph is global: shapes are whole, and a value's layout says which part
   of it a rank holds. Shapes stay whole afterwards too; a rank's part is always a function of the
   whole shape, the layout and the rank's coordinates (shard.c), so that one graph serves all ranks.

   Nothing is freed: tpgen lives for some milliseconds. */
#ifndef TPGEN_GRAPH_H
#define TPGEN_GRAPH_H

#include "base/base.h"
#include "ir/schedule.h"

/* What a rank computes with: device.c. */
enum arithmetic { IN_FLOAT32, IN_TFLOAT32, IN_BFLOAT16 };
struct device {
  const char *name; /* "H100"; NULL: not told */
  double flops[3];  /* multiplications and additions a second, by enum arithmetic: the peak */
  double bandwidth; /* bytes a second that its memory carries */
  int processors;   /* that share a product; 0: not told */
};

struct mesh {
  int ndim;
  const char *name[MAX_MESH];
  int size[MAX_MESH];
  double bandwidth[MAX_MESH];  /* bytes a second that a rank's link along it carries; 0: not told */
  double latency[MAX_MESH];    /* seconds that a collective over it takes besides; 0: not told */
  const char *whole[MAX_MESH]; /* of the two that the plan's dimension was split in: its name */
  int64_t memory;              /* bytes that a rank has; 0: not told */
  struct device device;
  int line;
};

enum placement_kind { REPLICATE, SHARD, PARTIAL };
enum reduction { SUM, MAX, MIN };

/* On one dimension of the mesh. SHARD: the ranks along it hold consecutive parts of dimension
   `dim`, cut as torch.chunk does. Where `outer` is more than 1 the shard is strided: the dimension
   is seen as [outer, size / outer], and the second of these is cut: what a cut dimension becomes
   that is merged with one outside it. PARTIAL: the value is the `reduction` of what they hold.
   Eight bytes: every value and operation holds six of them. */
struct placement {
  enum placement_kind kind : 4;
  int dim : 6;
  enum reduction reduction : 4;
  int turn : 6;       /* SHARD: see struct layout */
  int64_t outer : 44; /* 0 and 1: a plain shard */
};

/* Several mesh dimensions on one tensor dimension cut it one after the other, the first one's parts
   are cut again by the second: in the order of their turns, and where these are equal in that of
   the mesh. */
struct layout {
  struct placement on[MAX_MESH];
};

struct shape {
  int ndim;
  int64_t size[MAX_DIMS];
};

/* A plan can't name F64: the norm of the gradients is summed in it. */
enum type { F32, BF16, I32, I64, BOOL, F64 };

enum role {
  ACTIVATION, /* made and used within a step; lives in the arena                    */
  PARAMETER,  /* trained, or read from a file of weights                            */
  GRADIENT,   /* of the parameter `of`, as it is laid out. What micro-steps add up, its shards as
                 large, but perhaps pending, has the role too, and lies at its place  */
  SUMS,       /* what micro-steps add up, where its shards are larger than the gradient's: they are
                 reduced once, in the update */
  STATE,      /* the optimizer's, of the parameter `of`                             */
  BATCH,      /* an input of the step                                               */
  LOSS,       /* the scalar that is trained down: replicated, kept for the metrics  */
  NORM        /* of all gradients together; so too                                  */
};

/* How a parameter or an input is filled where no file gives it; an input that is INIT_TOKENS is
   filled from the data in every step: see runtime/program.h. */
enum init_kind { INIT_CONSTANT, INIT_UNIFORM, INIT_NORMAL, INIT_TOKENS };
struct init {
  enum init_kind kind;
  double a, b;
};

/* There are tens of thousands of values and operations, and passes go through them all: what is
   asked most stands first, in one line of the processor's cache, and a small thing takes a byte. */
struct value {
  enum role role : 8;
  enum type type : 8;
  enum type used_as : 8;    /* PARAMETER: the type that the model computes with */
  enum type reduced_as : 8; /* PARAMETER: in which its gradient is moved between ranks */
  bool placed;              /* the layout is known */
  bool is_output;           /* of an inference program: written to a file */
  bool stored;              /* takes bytes at all: not so inside a fused kernel */
  bool apart;
  int op;     /* that makes it, or NONE */
  int module; /* in which it was made */
  /* Values that the modules of a list make alike are a family. The one of module 0
     stands for all of them in the loop's body. */
  int family, index;  /* the value of module 0 and the number of its own module, or NONE */
  int step, initial;  /* carried: the family's value at index + step, `initial` at the list's end */
  struct shape shape; /* whole */
  struct layout layout;
  unsigned order; /* of its dimensions in memory: see assign_dim_order.c; 0: as they are written */
  int of;    /* GRADIENT, STATE: of this parameter; the gradient of an activation: of this value */
  int unit;  /* PARAMETER: that it is gathered with, or NONE */
  int line;  /* of the plan */
  int style; /* that placed this parameter, or NONE */
  int list, sibling; /* of module 0's: the list of modules, and the value of module 1 */
  const char *name;  /* the model's: "in_proj.weight"; of an activation its module's path  */
  const char *alias; /* PARAMETER: what files of others call it, or NULL */
  struct init init;
  int pieces; /* It is made in so many, or 0; apart: they lie one after the other */
};

/* Where a value lies and when it lives. A program point is the index of an operation in the order
   of each_op. */
struct allocation {
  int storage;       /* the value whose bytes it shares: itself, mostly */
  int depth;         /* how many values of its family are kept: index i lies at slot i % depth */
  int64_t offset;    /* ACTIVATION: in the arena; of module 0's value, in a family */
  int made, made_by; /* the program point at which it is made, and in which function; or NONE */
  int first, last;   /* it lives from this program point to that */
};
/* What the pass `memory` decides. */
struct memory_plan {
  struct allocation *of; /* by value */
  bool placed;           /* each has its offset */
};

enum op_kind {
#define OP(name, ...) OP_##name,
#include "ir/ops.h"
#undef OP
  OP_COUNT
};

/* A step of several batches runs the forward and the backward for each. What is gathered for all of
   them, ahead of them, is GATHER. */
enum phase { FORWARD, BACKWARD, UPDATE, GATHER, PHASES };

/* For which iteration of a loop a part of its body is called: before and behind the loop for one of
   the first and for the last; in the body for a later one, where there is such, and for the one
   before, where there was one. What the last iteration issues for what follows the loop belongs to
   no iteration. */
enum iteration {
  FIRST_ITERATION,
  LAST_ITERATION,
  NEXT_ITERATION,
  PREVIOUS_ITERATION,
  IN_LAST_ITERATION
};

struct op {
  enum op_kind kind;
  int nin, in[MAX_INPUTS];
  int nout, out;    /* the values it makes: out, out + 1, ...; NONE where there are none */
  int module, line; /* where it comes from */
  enum phase phase : 8;
  enum type type : 8;          /* cast, redistribute, and what makes a value of nothing: its type */
  enum type backward_type : 8; /* redistribute: in which its gradient is moved */
  enum reduction reduction : 8; /* all_reduce, reduce_scatter, to_partial */
  enum iteration iteration : 8; /* round: for which; see also `distance` */
  bool of_unit;                 /* redistribute and what becomes of it: of a unit's parameters */
  bool typed;           /* `type` is that of what it makes, which else follows from the inputs */
  bool constant;        /* no gradient flows through it */
  bool again;           /* an operation of the forward that the backward runs once more */
  const char *equation; /* where the row's rule is "equation" */
  double scalar;        /* $s */
  unsigned dims;        /* a bit for each dimension that a capital letter stands for */
  int custom;           /* custom: which of graph->custom */
  unsigned asked;       /* redistribute: a bit for each mesh dimension that `to` speaks of */
  int unit;             /* of_unit: see unit_of */
  int group;            /* collectives, pack, unpack: among whom */
  int dim, dim_to;      /* all_gather, reduce_scatter, pack, unpack: the tensor's dimension;
                           all_to_all: both */
  int exchange;         /* exchange, pack_pieces, unpack_pieces: which of graph->exchange */
  int nbody;     /* fused, epilogue, and a collective that is a bucket: the operations in it */
  bool keep;     /* those that vanish from the output, or appear there, have size 1 before */
  bool finishes; /* redistribute: of these only where something is pending */
  bool held;     /* of those that gather: what it makes is not given up after the forward */
  bool packed;   /* a bucket whose members travel in `buffer`, one after the other */
  const int *body;
  struct layout to; /* redistribute: where it is wanted, on the mesh dimensions in `asked`; pack,
                       unpack: in which the members hold the parts */
  int64_t number[MAX_NUMBERS]; /* in the order of the row's names */
  const struct stages *stages; /* fused: how its kernel runs the body: row_passes.c */
  const char *why;     /* redistribute and what becomes of it: who asked, in words, or NULL */
  const char *part_of; /* "rms_norm": the function that the plan called there, or NULL */
  int buffer;
  int function;      /* loop, round: which it calls */
  int awaits;        /* await: the collective */
  int distance;      /* FIRST_ITERATION: which of the first, from 0; NEXT_ITERATION: how many on */
  int pieces, piece; /* It is of one of so many pieces of its values, or 0. A matmul is
                        cut in dimension `dim` of its output, of which `group` has parts */
};

/* The module tree. A module's path is its dotted name from the root, "" for the root itself. */
struct module {
  const char *name, *path;
  const char *class_name; /* "Linear" */
  int parent, line;
  int unit; /* to which its own parameters belong, or NONE */
};

/* One call of a module: operations first <= i < last of the flat graph were made inside it. Calls
   are in the order in which they began; parent is the call around it. */
struct call {
  int module, parent, first, last;
  int nin, in[MAX_INPUTS];
  int nout, out[MAX_INPUTS];
};

/* What a style asks of one module, along one dimension of the mesh. */
struct wish {
  enum { WISH_PARAMETER, WISH_INPUT, WISH_OUTPUT } what;
  int value; /* WISH_PARAMETER */
  int index; /* WISH_INPUT, WISH_OUTPUT: which of them, from 0 */
  struct placement to;
};
struct style {
  const char *name; /* "Rowwise" */
  int module, mesh_dim, line;
  int nwish;
  struct wish *wish;
};

/* Parameters that are gathered together, where the modules of the unit first use them, and whose
   gradients are reduced together: one call of fully_shard. */
struct unit {
  const char *name; /* the path of its first module; "" for the root */
  int module, line; /* its first module; of the call */
  const char *who;  /* "fully_shard", "replicate" */
  unsigned shards;  /* a bit for each mesh dimension over which its parameters are kept cut */
  unsigned copies;  /* and for each over which these parts are kept alike */
  unsigned again;   /* of `shards`, those over which it is gathered again for the backward: what was
                       gathered over them is given up after the forward, over the others kept */
  int dim;          /* that is cut where there is such, negative: from the last; or ANY_DIM */
  bool once;        /* it is gathered for all batches of a step, ahead of them */
  bool reduces_each; /* where a step takes several batches: the gradients of each, not their sum */
};
enum { ANY_DIM = MAX_DIMS };

/* Ranks that differ in the mesh dimensions `dim` alone meet in a group: "tp", "dp_tp". Its members
   stand in the order of these: those that differ in the last of them follow one another. */
struct group {
  int n, dim[MAX_MESH];
  unsigned dims; /* a bit for each */
  const char *name;
};

/* One step of a redistribution, within each rank or among the ranks of a group, on the dimensions
   `dim` of the mesh.
     slice           R -> S, cut last: each takes its part
     to_partial      R, or the last cuts of a dimension -> P: of a sum the first of those that hold
                     the same has it, of a maximum or minimum each; or each has its part
     all_reduce      P -> R
     reduce_scatter  P -> S(d), cut last, in the order of the group
     all_gather      S(d), the last cuts of d in the order of the group -> R
     all_to_all      S(d), the last cuts of d in the order of the group -> S(e), cut last, so too
     exchange        any R and S -> any other: each rank gets each piece that it lacks from one that
                     has it; what is pending over other dimensions stays so */
struct move {
  enum op_kind kind;
  int n, dim[MAX_MESH]; /* in the order of the group's members */
  struct layout from, to;
};

/* An exchange of the program. */
struct exchange {
  struct shape whole;
  enum type type;
  struct move move;
  int group;
};

/* An operator that the plan declares: a row of its own, and the files of its kernels. */
struct custom {
  const char *name, *rule, *linear;
  const char *kernel[LANGUAGES]; /* the files' text, or NULL where there is none */
  int backward[MAX_INPUTS];      /* that makes an input's gradient: graph->custom, or NONE */
  int line;
};

/* What parallelize was given as async_tp for a module: in how many pieces collectives over the
   dimension of the mesh are cut, 0: as the model says. async_tp.c: whether any can be. */
struct async {
  int module, mesh_dim, pieces, line;
  bool met;
};

/* What became of a collective that async_tp asks for: in how many pieces it is, 0: it is whole. */
struct async_tp_result {
  int op, async, pieces;
  int times;                /* in a step */
  int tried;                /* where the model decided: how many pieces are quickest */
  int64_t whole, in_pieces; /* picoseconds that it and its products take, whole and in so many */
  const char *why_not;      /* it cannot be cut */
};

/* Whole numbers that the plan uses as indices and that may be out of range, as far as tpgen knows:
   each must be at least 0 and less than `below`, or `ignored`. */
struct index_use {
  const char *what; /* "embedding": the function that the plan calls */
  int line;         /* of the plan */
  int64_t below, ignored;
  bool ignores;
  int input; /* the input whose numbers they are, unchanged: the runtime looks at those of this part
                of it when it fills it; or NONE: they are computed, and the operation index_within
                looks at them */
  struct shape part;
  int64_t first[MAX_DIMS];
};

/* A search, or a check, that its bound ended before all was looked at. */
struct early_end {
  const char *where; /* the pass, or "check" */
  const char *what;  /* "a better order" */
  const char *unit;  /* "operations looked at" */
  int64_t most;      /* of these */
};

struct optimizer {
  const char *name; /* "AdamW", "SGD" */
  double lr, beta1, beta2, eps, weight_decay, momentum;
  bool nesterov;
  int line;
};

/* Whether the modules of a list are given their gathered parameters ahead, by how many modules at
   most: loop_carried.c. */
enum prefetch { PREFETCH_WHERE_IT_PAYS, PREFETCH_NOTHING, PREFETCH_ALL };
enum { MOST_PREFETCHED = 4 };

/* Which collectives the pass `bucket` makes one of: as units, memory and the links say; those that
   follow one another (bucket_select.c); none. */
enum bucketing { BUCKETS_BY_UNIT, BUCKETS_GREEDY, BUCKETS_NONE };

/* Of the learning rate: up to the optimizer's along a line, in the steps 1 to `warmup`, then down
   to `least` of it along a cosine, in the steps to `steps`. steps 0: it stays as it is. */
struct rates {
  int warmup, steps;
  double least;
};

/* A run of the program that is emitted as one C function. The phases' functions run in the order in
   which they stand; a loop's body is called by one of them. What of a round another round does, or
   nobody's, is a part of the body: called by the body, and around the loop. */
struct function {
  const char *name;
  enum phase phase;
  int count;    /* 1: a phase, or a part for what follows a loop; else how many modules of a list it
                   is called for */
  bool is_part; /* of a loop's body */
  int body;     /* is_part: of which function */
  bool upward;  /* from module 0 to the last, or back */
  int nop, *op; /* in the order in which they run */
};

struct graph {
  const char *path; /* the plan's, as it appears in messages and in the output */
  const char *hash; /* 16 hexadecimal digits: of all that decides the output */
  struct mesh mesh;
  bool greedy;     /* redistributions by the greedy planner, else by the fastest way */
  bool tf32;       /* products may round what they take of float32 to TF32 */
  bool checkpoint; /* of each module of a list only the inputs are kept for its backward */
  int nvalue, value_room;
  struct value *value;
  int nop, op_room;
  struct op *op; /* all there ever were, but for what drop.c takes out: append only */
  int norder, order_room;
  int *order; /* the flat program, until outline: these operations, in this order; then empty */
  int nmodule, module_room;
  struct module *module;
  int ncall, call_room;
  struct call *call;
  int nstyle, style_room;
  struct style *style;
  int nunit, unit_room;
  struct unit *unit;
  int ngroup, group_room;
  struct group *group;
  int nfunction, function_room;
  struct function *function;
  int nexchange, exchange_room;
  struct exchange *exchange;
  int ncustom, custom_room;
  struct custom *custom;
  int nindex_use, index_use_room;
  struct index_use *index_use;
  enum prefetch prefetch;
  int prefetched; /* how many modules ahead */
  enum bucketing bucketing;
  int ncap; /* the most that goes into the first bucket of a kind, the second, ...: the last is that
               of all that follow; 0: the pass chooses */
  int64_t cap[MAX_CAPS]; /* bytes */
  int nasync, async_room;
  struct async *async;
  int nasync_tp_result, async_tp_result_room;
  struct async_tp_result *async_tp_result; /* in the order of the functions */
  int nended, ended_room;
  struct early_end *ended; /* in the order in which they were met, each once */
  int loss;                /* the value that is trained down, or NONE: a forward-only program */
  int train_line;
  int steps;
  uint64_t seed;
  struct {
    bool told;
    int most[OP_COUNT]; /* of each collective, in a step */
    int line;
  } expected; /* what the plan says by expect */
  struct optimizer optimizer;
  struct rates rates;
  double clip;     /* gradients are scaled so that the norm of them all is at most this; 0: they are
                      left alone */
  bool wants_norm; /* it is computed */
  int norm;        /* the value, or NONE */
  int accumulate;  /* a step's gradients are the mean of those of so many batches */
  bool reduce_each_batch;     /* gradients that are cut over ranks in the end are so before they are
                                 added up */
  struct schedule *schedule;  /* of collectives; NULL before the pass `schedule` */
  struct memory_plan *memory; /* where values lie; NULL before the pass `memory` */
  int64_t arena_bytes;        /* Of a rank, the same on all */
  int64_t live_bytes; /* the largest sum of what lives at once: the bound below arena_bytes */
};

/* A row of ops.h; its gradient is gradients.c's. */
enum cheap { BY_ELEMENT, CHEAP, COSTLY };
struct op_row {
  const char *name, *rule, *linear, *numbers, *element, *flops, *type, *sign;
  enum cheap cheap;
  bool compares, copies, product, updates;
};

/* The calls of a library for a collective; NULL: it has no such call. */
struct calls {
  const char *equal;    /* parts of one size */
  const char *large;    /* so too, of many bytes: the runtime's own takes half of MPI's time */
  const char *unequal;  /* parts of several sizes */
  const char *piece;    /* a piece of a value that lies whole; NULL: as parts of several sizes */
  const char *segments; /* of several values, each to its place */
};

/* A row of collectives.h. */
enum { ANY_PLACEMENT = PARTIAL + 1 };
struct collective_row {
  const char *name;
  int from, to; /* enum placement_kind, or ANY_PLACEMENT */
  int passes, rare;
  bool pairwise, buckets, in_place;
  const char *suffix;
  struct calls calls[LIBRARIES];
};

/* A question, a row of numbers, and those that were asked before. */
struct query {
  const struct graph *of;
  int n, room;
  int64_t *at;
};
struct memo {
  const struct graph *of;
  int n, room, places;
  struct asked *asked;
  int *last;
};

static inline void ask_number(struct query *q, int64_t number)
{
  GROW(q->at, q->n, q->room);
  q->at[q->n++] = number;
}

struct part {
  struct shape shape;
  int64_t first[MAX_DIMS]; /* where it begins in the whole */
};

/* One dimension of an operand: the letters that it is made of, the outermost first; none where its
   size is 1. */
struct axis {
  signed char n, letter[MAX_DIMS];
};
/* An operation's rule (ops.h) put to its operands. A letter is a number from 0, in the order of the
   dimensions of the operand that the operation walks over (the first input of a reduction, else the
   output). Letters of size 1 are left out. */
struct letters {
  int n;
  int64_t size[MAX_LETTERS]; /* whole */
  char name[MAX_LETTERS];    /* as the rule calls it; '.': one of the dimensions of `...` */
  bool whole[MAX_LETTERS];   /* marked `!`: never cut */
  bool told[MAX_LETTERS];    /* marked `@`: the kernel knows where its part begins */
  int ndim_in[MAX_INPUTS], ndim_out[MAX_OUTPUTS];
  struct axis in[MAX_INPUTS][MAX_DIMS], out[MAX_OUTPUTS][MAX_DIMS];
  int nout;
  enum reduction reduction[MAX_OUTPUTS]; /* what a cut letter leaves that the output lacks */
  int type[MAX_OUTPUTS];                 /* the rule names it; or NONE */
};

/* By name, or NULL, and the names that there are; what the plan tells, else the CUDA
   target's, else NULL. How many seconds products of these sizes, attention of so many operations,
   or reading and writing so many bytes takes. */
struct product_sizes {
  double count, rows, columns, terms;
};

/* How one kernel runs the operations in a body, each pointwise or a reduction. */
enum { MOST_IN_KERNEL = 64 };
enum reach {
  NO_REDUCTION,
  OVER_SOME,   /* in the plain way */
  OVER_ROW,    /* each row to one element */
  OVER_COLUMN, /* each place in the rows, over all rows */
  OVER_ROWS,   /* what rows have one of, over all rows */
  UNFIT
};
struct stages {
  int space; /* the value over whose elements the kernel goes */
  int rows;  /* how many of its dimensions come before those of a row; NONE: not by rows */
  int count; /* how often a row is gone through */
  int n;
  struct task {
    bool of_row; /* it makes, or reduces, one element for each row */
    enum reach reach;
    int stage;
  } task[MOST_IN_KERNEL];
};

/* Values that are told as one: the members' names are `name`, a number from 0 on, `rest`. Of one
   value alone `name` is all of it, and `rest` NULL. */
struct family {
  const char *name, *rest;
  struct list member;
};
struct families {
  int n;
  struct family *at;
};

enum pass {
#define PASS(NAME, name) PASS_##NAME,
#include "ir/passes.h"
#undef PASS
  PASS_COUNT,
  PASS_LAST = PASS_COUNT - 1
};

/* The program's functions and the schedule as they were, to go back to: a new order is a new list.
   Operations that were added since stay, and nothing runs them. */
struct edit_state {
  int nfunction;
  struct function *function;
  struct schedule schedule;
};

/* The slowest of the group's links. */
struct link {
  double bandwidth, latency;
};

#endif
