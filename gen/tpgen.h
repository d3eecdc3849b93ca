/* tpgen.h: what the passes share, in the order of the pipeline.

   The program is a graph: values and operations, each an index into an array, all in one arena.
   Until `redistribute` the graph is global: shapes are whole, and a value's layout says which part
   of it a rank holds. Shapes stay whole afterwards too; a rank's part is always a function of the
   whole shape, the layout and the rank's coordinates (shard.c), so that one graph serves all ranks.

   Nothing is freed: tpgen lives for some milliseconds.  */
#ifndef TPGEN_H
#define TPGEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <stdio.h>

#define TPGEN_VERSION "0.1.0"

enum {
  NONE = -1,
  MAX_DIMS = 8,
  MAX_MESH = 6,
  MAX_INPUTS = 8,
  MAX_OUTPUTS = 3,
  MAX_NUMBERS = 8,
  MAX_LETTERS = 32,
  MAX_CAPS = 16
};

/* ------------------------------------------------------------------------ meshes and placements */

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

/* ------------------------------------------------------------------------------------ the graph */

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
  /* outline.c: values that the modules of a list make alike are a family. The one of module 0
     stands for all of them in the loop's body. */
  int family, index;  /* the value of module 0 and the number of its own module, or NONE */
  int step, initial;  /* carried: the family's value at index + step, `initial` at the list's end */
  struct shape shape; /* whole */
  struct layout layout;
  unsigned order; /* of its dimensions in memory: see arrange.c; 0: as they are written */
  int of;    /* GRADIENT, STATE: of this parameter; the gradient of an activation: of this value */
  int unit;  /* PARAMETER: that it is gathered with, or NONE */
  int line;  /* of the plan */
  int style; /* that placed this parameter, or NONE */
  int depth; /* memory.c: how many values of its family are kept: index i lies at slot i % depth */
  int list, sibling; /* of module 0's: the list of modules, and the value of module 1 */
  const char *name;  /* the model's: "in_proj.weight"; of an activation its module's path  */
  const char *alias; /* PARAMETER: what files of others call it, or NULL */
  struct init init;
  /* fuse.c, memory.c */
  int storage;    /* the value whose bytes it shares: itself, mostly */
  int pieces;     /* pipeline.c: it is made in so many, or 0; apart: they lie one after the other */
  int64_t offset; /* ACTIVATION: in the arena; of module 0's value, in a family */
  int made, made_by; /* the place in the program where it is made, and in which function */
  int first, last;   /* lives from this place in the program to that */
};

enum op_kind {
#define OP(name, rule, linear, gradient, numbers, element) OP_##name,
#include "ops.h"
#undef OP
  OP_COUNT
};

/* A step of several batches runs the forward and the backward for each. What is gathered for all of
   them, ahead of them, is GATHER. */
enum phase { FORWARD, BACKWARD, UPDATE, GATHER, PHASES };

/* For the module of which round of a loop a function is called: before the loop and behind it for
   one of the first and the last; in the loop's body for the next one's, or one further on, where
   there is such, and for the one's before, where there was one. What a body's last round begins for
   what follows the loop is no module's. */
enum round { FIRST_ROUND, LAST_ROUND, NEXT_ROUND, ROUND_BEFORE, IN_LAST_ROUND };

struct op {
  enum op_kind kind;
  int nin, in[MAX_INPUTS];
  int nout, out;    /* the values it makes: out, out + 1, ...; NONE where there are none */
  int module, line; /* where it comes from */
  enum phase phase : 8;
  enum type type : 8;          /* cast, redistribute, and what makes a value of nothing: its type */
  enum type backward_type : 8; /* redistribute: in which its gradient is moved */
  enum reduction reduction : 8; /* all_reduce, reduce_scatter, to_partial */
  enum round round : 8;         /* round: for whose module; FIRST_ROUND: see `far` */
  bool typed;           /* `type` is that of what it makes, which else follows from the inputs */
  bool constant;        /* no gradient flows through it */
  bool again;           /* an operation of the forward that the backward runs once more */
  const char *equation; /* where the row's rule is "equation" */
  double scalar;        /* $s */
  unsigned dims;        /* a bit for each dimension that a capital letter stands for */
  int custom;           /* custom: which of graph->custom */
  unsigned asked;       /* redistribute: a bit for each mesh dimension that `to` speaks of */
  int unit_plus_1;      /* redistribute and what becomes of it: see unit_of */
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
  const struct stages *stages; /* fused: how its kernel runs the body: stages.c */
  const char *why;     /* redistribute and what becomes of it: who asked, in words, or NULL */
  const char *part_of; /* "rms_norm": the function that the plan called there, or NULL */
  int buffer;
  int function;      /* loop, round: which it calls */
  int far;           /* FIRST_ROUND: which of the first, from 0; NEXT_ROUND: how many rounds on */
  int pieces, piece; /* pipeline.c: it is of one of so many pieces of its values, or 0. A matmul is
                        cut in dimension `dim` of its output, of which `group` has parts */
  bool beside;       /* a collective: it runs beside what follows it, until it is awaited */
  bool behind; /* beside: it is awaited in the round of a loop behind the one that begins it */
  bool late;   /* beside: it is begun in the last round of a loop, and awaited behind that */
  bool leads;  /* beside: one follows it; what it leaves is copied out on its own stream */
  int ahead;   /* beside: it is begun so many rounds of a loop before the one that awaits it */
  int follows_plus_1; /* beside: the collective whose result it begins with when that is there,
                         whatever else is at work; the number and 1, or 0: see leader_of */
  int event; /* beside: which of the program's events tells that it is done; ahead by several:
                the first of as many: see event_slots */
  int begun; /* await: the collective */
  int64_t takes, exposed; /* a collective: by the model of cost.c, and how long of that nothing runs
                             beside it; picoseconds */
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
  const char *kernel_c, *kernel_cu; /* the files' text, or NULL where there is none */
  int backward[MAX_INPUTS];         /* that makes an input's gradient: graph->custom, or NONE */
  int line;
};

/* What parallelize was given as async_tp for a module: in how many pieces collectives over the
   dimension of the mesh are cut, 0: as the model says. pipeline.c: whether any can be. */
struct async {
  int module, mesh_dim, pieces, line;
  bool met;
};

/* What became of a collective that async_tp asks for: in how many pieces it is, 0: it is whole. */
struct pipelined {
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

struct optimizer {
  const char *name; /* "AdamW", "SGD" */
  double lr, beta1, beta2, eps, weight_decay, momentum;
  bool nesterov;
  int line;
};

/* Whether the modules of a list are given their gathered parameters ahead, by how many modules at
   most: ahead.c. */
enum prefetch { PREFETCH_WHERE_IT_PAYS, PREFETCH_NOTHING, PREFETCH_ALL };
enum { MOST_PREFETCHED = 4 };

/* Which collectives the pass `bucket` makes one of: as units, memory and the links say; those that
   follow one another (choose.c); none. */
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
  int npipelined, pipelined_room;
  struct pipelined *pipelined; /* in the order of the functions */
  int loss;                    /* the value that is trained down, or NONE: a forward-only program */
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
  bool reduce_each_batch; /* gradients that are cut over ranks in the end are so before they are
                             added up */
  int nevent;             /* as many as collectives that are pending at once */
  int64_t arena_bytes;    /* memory.c: of a rank, the same on all */
  int64_t live_bytes;     /* the largest sum of what lives at once: the bound below arena_bytes */
};

/* The one graph, in memory that the process which reads the plan shares with its parent. */
extern struct graph *graph;

/* ----------------------------------------------------------------- util.c: memory, text, errors */

/* Reserves the arena, shared with the processes forked later, and makes the empty graph in it. */
void arena_open(void);
/* What is written in the arena from here on is this process's alone: quicker, in fewer pages. */
void arena_own(void);
/* Makes some of the pages ready that this will take, until is_over() says that it is time: while
   another process reads a long plan. */
void arena_prepare(bool (*is_over)(void));
/* Zeroed memory; ends tpgen with a message when there is no more. Never NULL, never freed. */
void *alloc(size_t size);
/* The bytes of it that are taken, and all there are. */
size_t arena_used(void);
size_t arena_room(void);
/* As printf into the arena. */
char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *copy_text(const char *s);
char *grouped(int64_t n); /* 1234567 as "1,234,567" */
/* sum + n * each, of what is not negative; INT64_MAX where that is less. */
int64_t plus_times(int64_t sum, int64_t n, int64_t each);
/* Makes room for one more element in an array that grows. */
#define GROW(array, n, room)                                                                       \
  ((n) < (room) ? (void)0 : (void)((array) = grow((array), (n), &(room), sizeof *(array))))
void *grow(void *array, int n, int *room, size_t size);

/* A growing list of numbers: operations, mostly. */
struct list {
  int n, room, *at;
};
void add(struct list *list, int number);

/* A growing text; buffer.text is always terminated. */
struct buffer {
  char *text;
  size_t length, room;
};
void put(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void put_text(struct buffer *b, const char *s, size_t length);

/* Replaces the holes `$name$` of a template: pairs of name and text, then NULL. */
char *fill(const char *template, ...) __attribute__((sentinel));
/* Breaks a line of more than 100 columns after separators; the rest is led in by `lead`. A blank at
   which it must not break is KEPT_BLANK in `line`, and a blank again in what comes back. */
enum { KEPT_BLANK = 1 };
char *wrapped(const char *line, const char *separator, const char *lead);
/* Where the line behind this one begins, or the text ends. */
const char *next_line(const char *line);
/* A file of ours with every statement that has a hole on one line, which is broken again when it is
   known what is in the holes. lines.c. */
const char *joined_statements(const char *file);

/* The plan's author is told `path:line: error: ...` and tpgen ends with status 1. Where the plan is
   being read, the message goes to the parent, which prints it. line <= 0: no line. */
_Noreturn void plan_error(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `tpgen: error: ...` and this status: 2 wrong usage, 3 a file. */
_Noreturn void usage_error(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* tpgen itself is wrong: names the pass and the operation, and aborts. */
_Noreturn void bug(const char *pass, int op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A line on standard error, of printable ASCII: other bytes, which a plan's path or a name may have
   and which a terminal may obey, are shown as \x1b. All messages go through it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends tpgen, which has said why: after the function that on_failure was given. */
_Noreturn void fail_with(int status);
_Noreturn void fail_by_abort(void);
void on_failure(void (*f)(void));
/* Ends tpgen with status 0 if all that it printed could be printed. */
_Noreturn void end_printing(void);

/* From here on, in this process, plan_error leaves its message for the parent. */
void child_mode(void);
/* In the parent: if the child left a message, prints it and ends tpgen with status 1. */
void report_child_error(void);

/* Any bytes as printable ASCII that ends no comment and starts no trigraph, escape or macro. */
char *printable(const char *s);
/* Any bytes as a C identifier that is no keyword and no macro. */
char *identifier(const char *s);
/* Whether generated statements use the name themselves: no variable or parameter may have it. */
bool is_spoken(const char *name);
/* "cosine" for "cos": another word for what C's library calls so; other names as they are. */
const char *spared_name(const char *name);
/* 64-bit FNV-1a, on from `hash`; begin with HASH_START. */
#define HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n);
/* As read, up to the file's end or `size` bytes: gives how many, or -1. */
ssize_t read_up_to(int file, void *to, size_t size);

/* --------------------------------------------------------------------------- options, and lua.c */

struct definition {
  const char *name, *value;
};
struct options {
  const char *plan, *out;
  bool cuda, check, trace;
  const char *dump;    /* a pass, or NULL */
  const char *explain; /* a value, or NULL */
  int first_rank, last_rank;
  int ndefinition;
  struct definition *definition;
  const char *move; /* a tensor and two layouts: see ask.c; or NULL */
  const char *planner;
  bool json;
  int nlink;
  const char **link; /* "dp=25e9,10e-6" */
};
extern struct options options;

/* --move: what moving a tensor takes, for a person or, with --json, for a program; then ends tpgen.
   ask.c. */
void ask(void);

/* The plan, evaluated in its sandbox: leaves the global graph, its modules, calls and styles. */
void lua(void);

/* The parts of the pass lua: sandbox.c (the process), environment.c (what of Lua a plan may use),
   json.c (the files that it may read), tensor.c, bindings.c and training.c (what the Lua files in
   gen/ call to build the graph). */

/* What the process that reads the plan leaves for its parent, whatever becomes of it. */
struct sandbox {
  volatile int line; /* of the plan, where it is at work; 0: nowhere */
  char wanted[1024]; /* the path of a file without which it could not go on, or "": see json.c */
  size_t printed;
  char print[1 << 16];
};
extern struct sandbox *sandbox;
/* Runs body in a child process that can reach nothing; all such together last two seconds. Comes
   back only where it ended well, or wants a file; else tells the plan's error. */
void in_sandbox(void (*body)(void));

/* lua.c: reads a file of at most `most` bytes into the arena, with a zero behind it. NULL, and why,
   where that cannot be. */
char *read_file(const char *path, size_t most, size_t *length, const char **why);
/* Whether the file lies in the plan's directory or below it, whatever links lead there. */
bool is_below_plan(const char *directory, const char *path);
/* json.c: where the sandbox has left its wish for a file, reads it, so that the plan can be read
   anew; false where there is no wish. A file that the plan may not see is the plan's error. */
bool read_wanted_file(void);
uint64_t hash_files(uint64_t hash);

/* pool.c: memory that Lua asks for: a block that had `before` bytes, or NULL, as one of `size`, at
   least 1; NULL where there is no more. The same block stays good then. */
void *pool_move(void *block, size_t before, size_t size);
void pool_free(void *block, size_t size);

struct lua_State;
/* The plan's error, at the line where the plan is at work. */
_Noreturn void plan_fails(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Calls the function below its arguments, one of ours that calls none of the plan's, at full speed:
   what happens in it happens at the plan's line that called it. Leaves what it gives. */
void call_unwatched(struct lua_State *L, int arguments);
/* Pushes the table of all that a plan may name, as far as it is Lua's own. */
void push_environment(struct lua_State *L);
/* Makes reading an absent name of the table at the top an error. what: "math", or NULL: a
   variable. */
void forbid_absent(struct lua_State *L, const char *what);
/* Pushes what tostring gives of the thing at `at`, an index from the bottom. */
void push_text(struct lua_State *L, int at);
/* Pushes "; did you mean 'x'?" for the text in the list at `list` that is nearest to the name, or
   nothing in particular: "". */
void push_suggestion(struct lua_State *L, const char *name, int list);
/* Pushes a list of the table's keys in the order of `pairs`. */
void push_keys(struct lua_State *L, int table);
/* Pushes the table of the graph's bindings. */
void push_bindings(struct lua_State *L);
/* Add to the table at the top those that concern names, modules, tensors, training and files. */
void set_name_bindings(struct lua_State *L);
void set_module_bindings(struct lua_State *L);
void set_tensor_bindings(struct lua_State *L);
void set_training_bindings(struct lua_State *L);
void set_file_bindings(struct lua_State *L);
void set_surplus_bindings(struct lua_State *L);

/* surplus.c: how many arguments the function at `at` takes; or ANY_NUMBER. */
enum { ANY_NUMBER = -1 };
int most_arguments(struct lua_State *L, int at);
/* Fails where the arguments from `first` to the top are more than the function takes behind its
   first parameters, `skipped`. what: the function, in messages. */
void forbid_surplus(struct lua_State *L, const char *what, int function, int skipped, int first);

/* tensor.c: what Lua holds of a tensor. */
struct tensor {
  int value; /* NONE: a parameter that is not part of a model yet */
  struct shape shape;
  struct init init;
  int line;
};
/* Whether train or infer runs the model now, and in which call of a module, or NONE. */
extern struct recording {
  bool on;
  int call;
} recording;
struct tensor *push_tensor(struct lua_State *L, int value);
/* What lies there as a tensor, or NULL. */
struct tensor *tensor_at(struct lua_State *L, int at);
/* The tensor that is the argument `at`; its value, which it must have already. */
struct tensor *argument_tensor(struct lua_State *L, int at);
int argument_value(struct lua_State *L, int at);
int tensor_value(const struct tensor *t);
/* The same as the model computes with it: a parameter may be kept in another type. */
int argument_operand(struct lua_State *L, int at);
int operand_of(int value);
/* The function of the plan that runs now does more than its arguments' shapes and types say: a call
   like it is not replayed. */
void call_is_unlike(void);
/* The cast that operand_of has made of the parameter for the module that runs now, or NONE. */
int known_cast(int value);
/* range.c: the least and the largest number that an element of the value may be, as far as the plan
   tells: INT64_MIN and INT64_MAX where it doesn't. declared_range: of an input, by randint or
   tokens. */
struct range {
  int64_t low, high;
  bool taken; /* some elements may well be either: no condition of the plan's keeps them from it */
  bool alike; /* that holds for every element */
};
struct range range_of(int value);
struct range declared_range(int value);
/* Whether any operation of the step looks at indices. */
bool notes_indices(void);
void set_range_bindings(struct lua_State *L);
/* idle.c: what is said of a dimension of the mesh along which nothing is cut, or NULL; and that of
   all of them, on standard error. */
char *idle_text(int dim);
void tell_idle(void);

/* A name that is not too long; `what` says whose it is. bindings.c. */
const char *check_name(struct lua_State *L, int at, const char *what);
void check_name_text(const char *name, size_t length, const char *what);
struct placement placement_at(struct lua_State *L, int at);
/* Of a module, whose styles so far do not place the same: else it is the plan's error. */
void place_by_style(struct style s);
/* A list of sizes; `what` takes it. */
struct shape argument_shape(struct lua_State *L, int at, const char *what);
/* A type's name, such as "int32". */
enum type argument_type(struct lua_State *L, int at);
/* Adds an operation where the plan is at work; gives its value. */
int append_here(struct op op);
/* Adds one like the operation `number`, there, which takes these values; gives the first that it
   makes. */
int append_again(int number, const int *in);

/* replay.c: what is known of calls like that of the function of this number with the arguments on
   the stack; NULL: nothing, and nothing can be. Either it is noted already: then `replay` appends
   what the first one did and pushes what it gave, and says how many. Or it is to be noted when it
   has run, what it gave on the stack, its operations from first_op on; unless it must not be. */
struct noted_call;
struct noted_call *noted_call(struct lua_State *L, int function);
bool is_noted(const struct noted_call *call);
int replay(struct lua_State *L, const struct noted_call *call);
void note_call(struct lua_State *L, struct noted_call *call, int first_op);
void never_note(struct noted_call *call);

/* ----------------------------------------------------------------------------- graph.c, shape.c */

/* How the front end and the passes add to the graph. All give the index of what they added. */
int add_value(enum role role, const char *name, enum type type, struct shape shape, int module,
              int line);
int add_module(const char *name, const char *class_name, int parent, int line);
/* The group over some dimensions of the mesh, a bit for each, in its order; or in another. */
int add_group(unsigned dims);
int add_ordered_group(int n, const int *dim);
/* Whether the dimension of the mesh is that within the groups of one that was split. */
bool is_within(int mesh_dim);
/* Adds an operation and the value it makes, whose shape and type follow from the inputs and the
   attributes in `op` (kind, nin, in, equation, scalar, dims, keep, module, line, phase are given).
   A misfit is the plan's error at op->line. Appends it to the order unless told not to. */
int make_op(struct op op);   /* gives the operation; its value is graph->op[i].out */
int append_op(struct op op); /* make_op, then at the end of the order; gives the value */
/* For operators whose output's shape is not a function of the inputs: expand, full. */
int append_op_shaped(struct op op, struct shape shape);
/* The shapes of all it makes, in order. */
int append_op_outputs(struct op op, const struct shape *shape, int nout);
/* The shapes and types of the values from `like` on, which an operation like this made. */
int append_op_like(struct op op, int like);
/* An operation that writes in place and makes no value. */
int append_update(struct op op);

/* The unit whose parameter the operation gathers, or whose gradient it reduces, or casts or moves
   on the way; NONE for others. */
int unit_of(const struct op *op);
/* Whether it runs for each batch of a step. */
bool is_of_batch(enum phase phase);
/* Whether it is of a parameter's gradient, or what several batches add up for it. */
bool is_gradient(int value);
/* The type in which a collective's values travel: a packed bucket's, as its buffer has them. */
enum type moved_type(const struct op *op);
/* Where the k-th member of a packed gather or scatter begins in the chunk that each rank of the
   group has of its buffer, in elements; with k = nbody how long that is. The same on all ranks:
   parts that are smaller are followed by what nobody reads. */
int64_t bucket_chunk(const struct op *op, int k);
/* The model's name for a value; where it has none, the name of the operator that made it. */
const char *value_name(int value);
/* Whether that is the operation's that makes it; and what it is moved, or in another shape, order
   or type, where it has no name of its own. */
bool has_name_of_op(int value);
int shown_value(int value);
/* Whether the second parameter comes behind the first with no other between: as they lie. */
bool is_next_parameter(int one, int next);
/* The operator's name; a sum that is divided by the number of its terms is called a mean. */
const char *op_name(const struct op *op);

/* The shapes of the values that `op` makes, from its inputs; gives how many. */
int shapes(const struct op *op, struct shape shape[MAX_OUTPUTS]);
/* The type of the k-th of them. */
enum type type_of(const struct op *op, int k);
bool is_floating(enum type t);
int64_t elements(struct shape s);
bool same_shape(struct shape a, struct shape b);
int64_t type_bytes(enum type t);
const char *type_name(enum type t);

/* The values that an operation reads and writes in memory, those of its body among them (a fused
   kernel's inner values are neither). Give how many; list has room for op_width(op). */
int op_reads(const struct op *op, int *list);
int op_writes(const struct op *op, int *list);
int op_width(const struct op *op);
/* Of a collective that is pending, what it reads and writes meanwhile: of a bucket that is copied
   in before and out when it is awaited no more than the buffer, and what it leaves in place. And
   all that an operation writes until its await, with that, as op_writes has it where nothing is
   pending. */
int pending_reads(const struct op *op, int *list);
int pending_writes(const struct op *op, int *list);
int op_makes(const struct op *op, int *list);
/* Whether what comes in a bucket's chunks is copied out of them when it is awaited. */
bool copies_late(const struct op *op);

/* Where the function runs the operation, or NONE. */
int runs_at(const struct function *f, int op);
/* Calls `visit` for every operation in the order of the program, a loop's body once, after its
   call, with how many times it runs in a step. What a body's rounds do for each other comes once,
   too: what is begun for the next where it is begun for the first, before the loop, what is ended
   for the one before where it is ended for the last. */
void each_op(void (*visit)(void *to, int op, int times), void *to);
/* Likewise, of a phase's function and what it calls. */
void each_op_of(const struct function *f, void (*visit)(void *to, int op, int times), void *to);
/* Whether the function is a phase's, which a step calls: no loop's body, nor a part of one. */
bool is_phase(const struct function *f);
/* Calls `visit` for every operation as a run of a phase's function runs them, with the number of
   its module, NONE outside of loops. */
void each_run_of(const struct function *f, void (*visit)(void *to, int op, int module), void *to);
/* The module of a loop's round, counted from 0; and the round that a call in round `from` is for,
   or NONE where there is none. */
int module_of_round(const struct function *f, int round);
int round_called(const struct op *op, int from);
/* The collective that this one follows, or NULL. */
const struct op *leader_of(const struct op *op);
/* How many events a collective has that runs beside others: as many as modules that it is pending
   for at once. That of module l is the l % event_slots-th. */
int event_slots(const struct op *op);

/* A row of ops.h; its gradient is gradients.c's. */
struct op_row {
  const char *name, *rule, *linear, *numbers, *element;
};
extern const struct op_row op_row[OP_COUNT];
/* How an operator is computed: each element of the output by an expression, or a reduction of such;
   by a kernel of its own, a file in templates/kernels or the plan's; or in a way of its own. */
bool is_pointwise(enum op_kind k);
bool is_reduce(enum op_kind k);
/* Whether it takes its inputs element by element, broadcast: "...,...->...". */
bool is_broadcast(enum op_kind k);
bool has_kernel(enum op_kind k);
bool is_collective(enum op_kind k);
/* The rule and linearity of an operation: its row's, its equation, or its custom operator's. "":
   it has none, and says itself where its values lie. */
const char *rule_of(const struct op *op);
const char *linear_of(const struct op *op);
/* The attribute of that name, which the row has. */
int64_t number_of(const struct op *op, const char *name);

/* --------------------------------------------------------------------------------------- memo.c */

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
void begin_query(struct query *q);
static inline void ask_number(struct query *q, int64_t number)
{
  GROW(q->at, q->n, q->room);
  q->at[q->n++] = number;
}
void ask_text(struct query *q, const char *s);
void ask_piece(struct query *q, const char *s, size_t length);
/* A layout, a value's type and shape, an operation's kind and rule. */
void ask_layout(struct query *q, const struct layout *layout);
void ask_value(struct query *q, const struct value *v);
void ask_rule(struct query *q, const struct op *op);
/* The question's number, in the order in which they were first asked: a new one is the last. */
int number_of_query(struct memo *memo, const struct query *q);
/* The place of its answer, of so many bytes; *is_new: it was not asked before, and is to be written
   there. It stays where it is. */
void *answer_to(struct memo *memo, const struct query *q, size_t size, bool *is_new);

/* -------------------------------------------------------------------------------------- shard.c */

struct part {
  struct shape shape;
  int64_t first[MAX_DIMS]; /* where it begins in the whole */
};
int world_size(void);
void coordinate_of(int rank, int coordinate[MAX_MESH]);
/* How much of its dimension is outside of what a shard cuts: 1 for a plain one. */
int64_t shard_stride(struct placement p);
/* The mesh dimensions that cut `dim`, the one that cuts it first before the others; how many. */
int cuts_of(const struct mesh *mesh, struct layout layout, int dim, int cut[MAX_MESH]);
/* Whether `dim` is cut in another order than that of the mesh. */
bool is_reordered(const struct mesh *mesh, struct layout layout, int dim);
/* The size of part `index` of n, cut as torch.chunk does. */
int64_t chunk_size(int64_t n, int parts, int index);
/* Whether the layout cuts the dimension in strides. */
bool is_strided(const struct mesh *mesh, struct layout layout, int dim);
/* The part of `whole` that the rank at `coordinate` holds; of a dimension that is cut in strides
   `first` says nothing. */
struct part local_part(const struct mesh *mesh, struct shape whole, struct layout layout,
                       const int coordinate[MAX_MESH]);
struct shape local_shape(int value, int rank);
/* Whether the parts that ranks hold are equally long in a dimension: the first rank's is the
   longest, and only where all are equal the last rank's is as long. */
bool is_cut_evenly(int value, int dim);
/* The largest local shard of any rank, in bytes. */
int64_t largest_bytes(int value);
/* The ranks that `rank` meets in a group, in its order; gives how many. */
int group_members(int group, int rank, int *members);
int first_member(int group, int rank);
/* Which member of its group a rank is. */
int place_in_group(int group, int rank);
int group_size(int group);
/* The same layout with its turns told in one way: 0 where a dimension is cut in the order of the
   mesh, else 0, 1, 2 ... in the order of the cuts. Every value that is placed lies so. */
struct layout usual_turns(struct layout layout);
/* Turns are compared too; layouts by what they mean. */
bool same_placement(struct placement a, struct placement b);
bool same_layout(struct layout a, struct layout b);
/* Whether they differ at most on dimensions of the mesh that have one rank. */
bool lies_alike(struct layout a, struct layout b);
/* Whether all ranks' parts are as large in both: what one has pending the other may have whole. */
bool as_large(struct layout a, struct layout b);
/* "R S(0)": on each mesh dimension of more than one rank; "S(0/4)" is strided, with outer 4;
   "S(0)[1] S(0)[0]" tells the turns where the second cuts before the first. */
char *layout_text(struct layout layout);
char *placement_text(struct placement p);
char *shape_text(struct shape s); /* "[20, 10]" */

/* --------------------------------------------------------------------------------------- rule.c */

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
/* Fits the rule to the inputs' shapes, and to the outputs' where the operation has them already. A
   misfit is the plan's error. */
void op_letters(const struct op *op, struct letters *l);
/* The type that the rule names for the k-th output, or NONE. */
int rule_type(const struct op *op, int k);
/* NULL if a plan's rule and linearity are well formed, else what is wrong. */
const char *rule_error(const char *rule, const char *linear);

/* view.c: the rule of a view between two shapes of as many elements. line: of the plan. */
const char *view_equation(struct shape from, struct shape to, int line);
/* Of a value that stays as it is: "abc->abc". */
const char *identity_equation(int ndim);

/* ------------------------------------------------------------------------------------ choices.c */

/* One way in which an operation may run on one dimension of the mesh. */
struct choice {
  struct placement in[MAX_INPUTS], out[MAX_OUTPUTS];
  int letter; /* that is cut, or NONE */
};
/* All legal ways, the one with everything replicated first; gives how many. Cuts in strides, and
   those in another order than the mesh's, are among them where an input lies so. */
enum { MAX_CHOICES = 64 };
int choices(const struct op *op, const struct letters *l, struct choice *list);
/* Whether one choice for each dimension of the mesh, list[pick[d]], goes together: merged
   dimensions are cut where their letters are, and turns are told as usual. */
bool fits_together(const struct letters *l, int nin, const struct choice *list, const int *pick);
/* The same of one operand, in the layout that the choices give it: an input, or output o - nin. */
bool operand_fits(const struct letters *l, int o, int nin, struct layout layout,
                  const struct choice *list, const int *pick);
/* A maximum of sums is not the sum of maxima: pending results of one value are of one kind. */
bool reductions_agree(struct layout layout);

/* ------------------------------------------------------------------------------------- decide.c */

/* How an operation runs: where it takes its inputs, and where its outputs lie. */
struct way {
  struct layout in[MAX_INPUTS], out[MAX_OUTPUTS];
};
/* What is known around it, while `propagate` goes through the program; NONE where there is none. */
struct surroundings {
  int *asked_of;     /* by value: the plan's redistribute of it */
  int *taken_by;     /* by value: the first operation that takes it, but redistributes */
  int *moved_to;     /* by value: the last redistribute already made of it */
  int *moved_before; /* by operation: the redistribute before it, of the same value */
};
struct way best_way(const struct surroundings *around, const struct op *op);
/* What a redistribute makes of a layout. */
struct layout layout_after(const struct op *op, struct layout now);
/* The value as it was redistributed to this layout before, or NONE. */
int moved_before_to(const struct surroundings *around, int value, struct layout to);

/* -------------------------------------------------------------------------------------- einop.c */

/* What DTensor's rules say of an operation: it runs as its inputs lie, or on other layouts, or
   not. */
struct ruling {
  enum { RULE_RUNS, RULE_RESHARDS, RULE_ERROR } what;
  struct layout out;            /* RULE_RUNS */
  struct layout in[MAX_INPUTS]; /* RULE_RESHARDS: what the inputs should become */
  char error[96];               /* RULE_ERROR */
};
/* An operation as the rules see it. */
struct ruled {
  int nin;
  struct shape shape[MAX_INPUTS];
  struct layout layout[MAX_INPUTS];
  bool linear;
  const struct layout *enforce; /* pointwise_rule: of what is written in place; or NULL */
};
/* enforce: by letter the mesh dimension that must shard it, NONE for none, -2 where nothing is
   asked; or NULL. */
struct ruling einop_rule(const char *equation, const struct ruled *op, const int *enforce);
struct ruling pointwise_rule(const struct ruled *op);

/* ----------------------------------------------------------------------------------- the passes */

void plan(void);
void propagate(void);
void grad(void);
void optimize(void);
void redistribute(void);
void uncast(void);
void recompute(void);
void arrange(void);
void outline(void);
void pipeline(void);
void bucket(void);
void fuse(void);
void epilogue(void);
void schedule(void);
void memory(void);
void emit(void);
/* Ends tpgen where --ranks names ranks that the mesh has not, or where more programs are to be
   written than it writes at once: before anything is planned. */
void check_ranks(void);

/* What the passes ask of each other. */
/* units.c: places the parameters of units, whose other cuts are known; tells of an operation that
   comes next in the order; whether a value is a parameter that is to be gathered before it is used;
   whether the operation casts one to the type that the model computes with; the parameter as the
   reader takes it, gathered, by operations that are added to the order where there is none yet. */
void place_units(void);
void note_list(const struct op *op, const struct list *order);
bool is_kept_cut(int value);
bool casts_for_use(const struct op *op);
int gathered(int parameter, const struct op *reader, struct list *order);
/* recompute.c: whether it gathers a unit's parameter for the forward, and whether that is given up
   behind it. */
bool gathers(const struct op *op);
bool reshards(const struct op *op);
/* The dimension of a value that lies in memory at this place from the outermost, and the place of a
   dimension. */
int dimension_at(int value, int place);
int dimension_place(int value, int dim);
/* The order of `ndim` dimensions in memory with one of them outermost, the others as written; and
   how it is told: "dimension 1 outermost". */
unsigned raised(int dim, int ndim);
const char *order_text(const struct value *v);
/* By dimension: how many elements lie from one to the next along it, in the rank's part. */
void local_strides(int value, int rank, int64_t stride[MAX_DIMS]);
/* Whether the operation takes and makes its values as their dimensions lie in memory. */
bool is_arranged(const struct op *op);
/* pipeline.c: which piece of the value the operation touches; NONE: all of it. */
int piece_touched(const struct op *op, int value);
/* drop.c: takes out of the graph what no function runs, behind outline. */
void drop_rest(void);
/* cut.c: the cheapest way to part nodes, which count from 0, in a near and a far side. */
struct cut;
struct cut *new_cut(void);
int add_node(struct cut *c);
/* Paid if `near` is on the near side and `far` is not; if the node is on the near side, or with a
   price below 0 if it is not. */
void add_price(struct cut *c, int near, int far, int64_t price);
void add_own_price(struct cut *c, int node, int64_t price);
/* By node, whether it is on the near side: of the cheapest ways the one with the fewest there. */
bool *near_side(struct cut *c);
/* Whether the backward may always run the operation again, if less is kept for it. */
bool is_cheap(const struct op *op);
/* Whether the value's bytes are the arena's, and are its own and not another's of its family; how
   many bytes all of its family take there. */
bool in_arena(int value);
int64_t arena_size(int value);
/* Whether two values have the same bytes: one storage, and one place in the arena. */
bool same_place(int a, int b);
/* place.c: the largest sum of what lives at once of these storages; and a place for each, if that
   can be below the bound. Gives where the last one ends. */
int64_t most_live(const int *value, int n);
int64_t place_values(int *value, int n, int64_t bound, bool well);
/* device.c: by name, or NULL, and the names that there are; what the plan tells, else the CUDA
   target's, else NULL. How many seconds products of these sizes, attention of so many operations,
   or reading and writing so many bytes takes. */
struct product_sizes {
  double count, rows, columns, terms;
};
const struct device *device_named(const char *name);
const char *device_names(void);
const struct device *device(void);
double product_seconds(const struct product_sizes *p, enum arithmetic a);
double attention_seconds(double flops, enum arithmetic a);
double memory_seconds(double bytes);
/* cost.c: how long an operation takes, but a loop, and what it costs to run a collective beside
   others, by a model; in picoseconds. No more than LONGEST_TIME, so that the times of some thousand
   can be added up. */
#define LONGEST_TIME INT64_C(1000000000000000)
int64_t time_taken(const struct op *op);
/* How many numbers rank 0 multiplies in a matmul's product, or in each of them. */
double multiplications(const struct op *op);
int64_t events_time(void);
/* The kernels that fill a bucket's buffer, and that empty it; 0 where there are none. */
int64_t copies_in_time(const struct op *op);
int64_t copies_out_time(const struct op *op);
/* The largest sum of what would live at once if the operations ran as they stand. */
int64_t live_bytes(void);
/* Whether so many bytes are enough for it, placed with little loss. */
bool can_live_in(int64_t bytes);
/* Whether what the operation makes is what it reads, byte for byte. */
bool is_view(const struct op *op);
/* Whether the operation may make `out` in the place of something that it reads, and of what: `in`
   is NONE where it may be anything (of a kernel). */
bool overwrites(const struct op *op, int out, int *in);
/* Whether the operation may leave `out` where `in` lies, if nothing reads that later. */
bool may_overwrite(const struct op *op, int in, int out);
/* epilogue.c: what such an operation does; NONE where there is no such value. */
struct epilogue {
  enum op_kind function; /* relu, gelu_tanh, gelu_tanh_back; matmul: none */
  int bias;              /* that is added first; or, with `summed`, its gradient, which is made */
  int kept;              /* what gelu is applied to: stored, or for the gradient read */
  int summed;            /* what is summed into bias: the result, or an operand over the terms */
  int result;
};
struct epilogue epilogue_of(const struct op *op);
/* The bytes from one of a family to the next. */
int64_t arena_stride(int value);
/* accumulate.c: where a step takes several batches, adds their gradients up; by parameter, which
   value is its gradient then. Later on: products that are added to a gradient are added where it
   lies, as the product's third input. */
void accumulate_gradients(int *gradient);
/* By parameter: the value SUMS that a step's first batch begins with, or NONE. */
const int *sums_by_parameter(void);
void add_products_in_place(void);
/* Adds the operations that take g, the gradient of what `op` made, to the gradients of its inputs
   that are wanted. Both lists are by value; gradient[value] is NONE where nothing has reached it.
   `op` is a copy: adding operations moves the graph's. */
void write_gradient(const struct op *op, int g, const bool *wanted, int *gradient);
/* Whether it is a redistribution that leaves its value as and where it lies: its gradient too. */
bool stays(const struct op *op);
/* Gives layouts to the values that operations order[first...] make, adding redistributions. */
void propagate_from(int first);

/* ------------------------------------------------------ moves.c, steps.c, traffic.c, exchange.c */

enum { MAX_MOVES = 2 * MAX_MESH };
struct moves {
  int n;
  const struct move *move;
  double time;   /* in seconds, by the model of the links (traffic.c) */
  int64_t bytes; /* that the rank which receives most receives */
};
/* The steps from one layout to another, of plain shards only: of DTensor's greedy planner, or of
   the fastest way, as the plan asks. Remembered: the pointer stays good. */
const struct moves *plan_moves(struct shape whole, enum type type, struct layout from,
                               struct layout to);
/* DTensor's greedy planner, each step along one dimension of the mesh; gives how many. */
int greedy_moves(struct layout from, struct layout to, struct move *move);
/* Adds the bytes that each rank of the mesh sends and receives in a step. */
void add_traffic(const struct move *m, struct shape whole, enum type type, int64_t *sent,
                 int64_t *received);
/* The bytes that no way can do without: what the rank that lacks most lacks of its part, and what
   the reduction of pending sums takes on average, whichever is more. */
int64_t least_bytes(struct shape whole, enum type type, struct layout from, struct layout to);
/* The bytes that the rank which receives most receives on the greedy way. */
int64_t greedy_bytes(struct shape whole, enum type type, struct layout from, struct layout to);
/* What a rank's link along a dimension of the mesh carries, and a collective over it costs: the
   plan's figures, or the defaults. */
double link_bandwidth(int mesh_dim);
double link_latency(int mesh_dim);

/* A piece of a tensor that one rank gives another, which is the member-th of the group. */
struct piece {
  int member;
  struct part part; /* `first` counts from where the part of the rank that is asked begins */
};
/* What a rank gives in an exchange, and gets, by member; its own part of it, which stays, too. How
   many; the list has room for as many as are in the group. */
int pieces_given(const struct move *m, struct shape whole, int rank, struct piece *list);
int pieces_got(const struct move *m, struct shape whole, int rank, struct piece *list);
/* Whether on every rank every piece lies in one run, so that none needs to be copied first. */
bool gives_runs(const struct move *m, struct shape whole);
bool gets_runs(const struct move *m, struct shape whole);
/* Whether no rank gives to, or gets from, more than one other. */
bool is_permutation(const struct move *m, struct shape whole);

/* redistribute.c: from one layout to another, strided shards too: in legs, on each of which the
   tensor is seen with its dimensions taken apart so that all its shards are plain. How many; NONE
   where that gives more dimensions than a tensor has. */
enum { MAX_LEGS = 4 };
struct leg {
  struct shape whole; /* taken apart */
  const struct moves *moves;
};
int legs_of(struct shape whole, enum type type, struct layout from, struct layout to,
            struct leg leg[MAX_LEGS]);
/* Bytes that the rank which receives most receives for it. */
double move_cost(struct shape whole, enum type type, struct layout from, struct layout to);

/* -------------------------------------------------------------------------------------- align.c */

/* Finds how the values of a rank are aligned. */
void find_alignments(int rank);
/* The power of two, up to 64, that a value's address is a multiple of. */
int64_t alignment_of(int value);
/* The bytes of the parts of sums on rank 0. */
int64_t parts_bytes(void);

/* ------------------------- what emit.c is made of: names.c, kernel.c, collective.c, statement.c */

/* Gives every stored value its name in the program of `rank` and of all ranks like it. */
void name_values(int rank);
/* The address of a value's first element: "m->w.in_proj.weight", "relu". NULL where this rank
   has no part of it. */
const char *c_name(int value);
/* Whether this rank has a part of any value with this role that no operation computes. */
bool has_some_of(enum role role);
/* The value's name for a reader of the function that c_name speaks of; a view has another's. */
const char *local_name(int value);
const char *spoken_name(int value);
/* Whether the value is a buffer of pieces that an exchange gives, or gets. */
bool holds_pieces(int value);
/* The declarations of the rank's memory: struct parameters, struct memory. */
char *memory_declaration(void);
/* From here on c_name and local_name speak of values as this function names them. */
void name_locals(const struct function *f);
/* Whether a kernel has the name of a variable: then the functions are to be named again. */
bool clashes_with_kernels(void);
/* A line for each activation that the function's statements name: `float *const relu = ...;`. */
char *local_declarations(const char *code);
/* Whether the C text names this variable, outside its comments. */
bool has_word(const char *text, const char *word);
/* "int" or "long": what counts to n. */
const char *counter_type(int64_t n);
const char *c_type(enum type t);

/* stages.c: how one kernel runs the operations in a body, each pointwise or a reduction. */
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
/* Whether one kernel can run them, and how. */
bool find_stages(const int *body, int n, struct stages *stages);
/* Which of the operations on elements are computed while a row is gone through in this stage;
   gives whether the stage goes through it at all. Values are marked `stored` already. */
bool made_in_stage(const int *body, const struct stages *stages, int stage, bool *made);
/* The last stage in which body[k] is computed. */
int last_stage(const int *body, const struct stages *stages, int k);
/* Whether the operation on rows reads no other than its own row of input i, `rows` dimensions of
   which come before those of a row. */
bool stays_in_row(const struct op *op, int i, int rows);
/* The value whose elements an operation walks over. */
int space_of(const struct op *op);

/* The statement that runs a fused operation or an update, and the kernel's text added to those of
   the program. A kernel that is there already is used again. */
char *kernel_call(const struct op *op, int rank);
/* How many floats the kernels of this rank need for parts of sums: those of one at a time. */
int64_t parts_room(int rank);
/* update.c: the statements that sum the squares of gradients, and that make the norm of their sum;
   the lines that begin the update, or that compute the constants of a step: these are named in
   update_rates; the function that gives the learning rate. */
char *squares_text(const struct op *op, int rank);
char *norm_text(const struct op *op);
char *update_constants(void);
const char *update_rates(void);
char *learning_rate_text(void);
/* prepare.c: whether inputs are read from a file of tokens; whether an operation updates
   parameters, or needs random numbers; where the number of the batch lies that these depend on;
   whether the batches of a step are kept, each in a place of its own; the struct of what changes
   from step to step, and the function `prepare`: both "" where a program needs none. */
bool reads_tokens(void);
bool is_update(const struct op *op);
bool is_random(const struct op *op);
const char *batch_number(void);
bool keeps_batches(void);
char *constants_text(void);
char *prepare_text(void);
/* Adds a kernel; gives the name that it has in the end, which replaces `$name$` in both texts. The
   prototypes are the heads of the functions that are called, one a line; the definition is all of
   the text, of which every line is broken that is too long, if it is ours: of what a plan's author
   wrote only the heads. A kernel of the same texts is used again, whatever its comment says. */
const char *add_kernel(const char *wanted, const char *prototypes, const char *comment,
                       const char *definition, bool ours);
/* Whether a pointwise or reduce operation reads elements of input i that stand at other places than
   its own: permuted, broadcast, or by an index. */
bool reads_elsewhere(const struct op *op, int i);
/* Whether it reads input i's elements by an index, and in which dimension: that of the first letter
   of the operand. */
bool reads_by_index(const struct op *op, int i);
int indexed_dimension(const struct op *op, int i);
/* Where the rank's part of a value begins in dimension `dim` of the whole: "25L *
   rank.coordinate[0]", the same text on all ranks; "0" where it is not cut. Of a rank without a
   part it says nothing. */
char *first_text(int value, int dim);
/* Where the part begins, times `factor`, that these cuts, one after the other, leave of n elements;
   "0" where there are none. The sizes of parts that are cut again may depend on the rank: then the
   program finds them out. */
char *begin_text(const int *cut, int ncut, int64_t n, int64_t factor);
/* matmul.c: the statement of a matmul; kernel_file.c: of an operation that has a kernel of its
   own. */
char *matmul_text(const struct op *op, int rank);
/* Of a product with an epilogue. */
char *epilogue_text(const struct op *op, int rank);
/* How many products of matrices that takes, as the operands lie now. */
double matmul_calls(const struct op *op, int rank);
/* Whether that is one call on the rank, with a batch or without, that writes rows without gaps. */
bool matmul_is_one_call(const struct op *op, int rank);
/* products.c: of a CUDA program. Empties the table; gives the row of these fields its name, which
   begins with the one wanted; the table, and how the runtime is told of it; the bytes in which
   cuBLASLt may work, 0 where there are no products. */
void forget_products(void);
const char *add_product(const char *wanted, const char *fields);
char *product_table(void);
char *product_list(void);
int64_t product_workspace(void);
char *file_kernel_call(const struct op *op, int rank);
/* Whether the kernel of the operation asks how operand i lies, and takes it in any order that
   leaves the last dimension innermost. */
bool takes_steps(const struct op *op, int i);
/* tiles.c: of attention, which of its files the kernel is ("_mma": NAME_mma.cu); and what a hole
   for the sizes of its tiles is filled with, or NULL. Of other operations "" and NULL. */
enum { MOST_SHARED = 163 * 1024 }; /* bytes of a block's shared memory, on any GPU from sm_80 on */
const char *attention_variant(const struct op *op);
const char *attention_hole(const struct op *op, const char *hole, int64_t depth, int64_t width);
/* copies.c: sets the rank's part of a value to zero; the statement of an operation that moves bytes
   within a rank's memory. */
char *zero_text(int value, int rank);
/* The statement that makes these bytes zeros. */
char *zeros_at_text(const char *at, int64_t bytes);
bool is_copy(enum op_kind k);
char *copies_text(const struct op *op, int rank);
/* The statement of a collective, and of its await; the tables of a rank's exchanges; the names of a
   group's communicator and stream. */
char *collective_text(const struct op *op, int rank);
char *await_text(const struct op *op, int rank);
/* Whether the await has more to do: what came in a bucket is copied out of it. */
bool awaits_copies(const struct op *op);
/* parcel.c: whether a packed bucket's buffer has a chunk for each rank; whether what a rank
   gathers, or what is scattered to it, lies elsewhere as it would in its chunk, so that it is sent
   from there, or left there; whether what is reduced lies in the buffer; whether anything is copied
   before the call and after it; whether one call takes its parcels, so many, from their places to
   their places, and that call with their table; where the rank's own chunk begins; the copies, and
   the call with those before it and, where `out` says so, behind it. */
bool has_chunks(const struct op *op);
bool lies_as_chunk(const struct op *op);
bool lies_in_buffer(const struct op *op);
bool is_copied_in(const struct op *op);
bool is_copied_out(const struct op *op);
bool goes_by_parcels(const struct op *op);
int count_parcels(const struct op *op, int rank);
char *with_parcels(const struct op *op, int rank, const char *call);
const char *own_chunk_text(const struct op *op);
char *copies_in_text(const struct op *op, int rank);
char *copies_out_text(const struct op *op, int rank);
char *with_copies(const struct op *op, int rank, const char *call, bool out);
char *exchanges_text(int rank);
const char *group_name(int group);
const char *stream_name(int group);
/* streams.c: what runs beside a collective, for a reader: "d_wq, d_wk and 2 more", each by what it
   makes as `name` calls it; "nothing". Whether any of a group's runs on the group's stream. */
char *beside_text(const struct op *op, const char *(*name)(int value));
bool has_stream(int group);
/* The elements that `rank` gives to each member of the group, and gets from it; for all_gather what
   each member gives to all, for reduce_scatter what each gets. */
void collective_counts(const struct op *op, int rank, int64_t *give, int64_t *get);
/* The definition of an array in the program: by member a count, or, `starts`, where it begins. Of
   many members at the end that have nothing neither is told: C makes them 0. */
char *list_text(const char *type, const char *name, const int64_t *n, int ranks, bool starts);
/* Whether all members of the group hold equal parts; of an exchange, whether it is a permutation.
   Every one of them has to choose the same call, so it is asked of the group, not of this rank. */
bool equal_parts(const struct op *op, int rank);
/* The bytes of the value that `rank` brings to it. */
int64_t collective_bytes(const struct op *op, int rank);
/* The bytes that the rank sends which sends most, and those of the one that receives most, in some
   of the graph's operations, so many times each (NULL: once); or in one. */
struct busiest {
  int64_t sent, received;
};
struct busiest busiest_in(int n, const int *op, const int *times);
struct busiest busiest_of(const struct op *op);
/* The floating-point operations of the products of a step, of all ranks together: where it trains,
   three times those of the forward. */
double step_flops(void);
/* What most of them are done in. */
enum arithmetic step_arithmetic(void);
/* The head of a step file: mesh, parameters, communication, a line each. */
char *summary_text(int rank);
/* The kernels that there are, then NULL: names that nothing else in the program may have. */
const char *const *kernel_names(void);
/* All kernels, their prototypes, and the headers that these ask for. */
char *kernel_definitions(void);
char *kernel_prototypes(void);
const char *kernel_includes(void);

/* The shortest text that reads back as the number, as a double and as a float: "0.1f". */
char *double_text(double x);
char *number_text(double x);
/* A factor in the same way; "(1.0 / 96)" and "(1.0f / 96)" where that is shorter, and the same
   number to the bit. */
char *double_factor(double x);
char *float_factor(double x);
/* The whole number, where x is one over it and takes more than three digits; or 0. */
int one_over(double x);
/* The plan's path as it may stand in comments and files: of an absolute one only the last name. */
const char *plan_shown(void);
/* An operation in the model's words: "relu = relu(in_proj + in_proj.bias)". */
char *expression_text(const struct op *op);
/* Layouts of what it takes and makes: "S(1), S(0) -> S(1)". */
char *layouts_text(const struct op *op);
/* What a reader wants to know of an operation before its statement, and its statement in C, ""
   where this rank has nothing to do. */
char *comment_text(const struct op *op);
char *comment_lines(const char *text, int indent);
/* What a bucket reduces: "7 gradients", or the names of other values. */
char *reduced_text(const struct op *op);
char *statement_text(const struct op *op, int rank);

/* ------------------------------------------------------------------------------------- family.c */

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
/* The n values as families, each where its first member stands. `alike` says whether a value may
   join one. */
struct families find_families(int n, const int *value,
                              bool (*alike)(const struct family *f, int value));
/* "layers.0-31.wq.weight" */
char *family_text(const struct family *f);
/* What files of others call it, parted in the same way; name is NULL where nothing does. */
void family_alias(const struct family *f, const char **name, const char **rest);
/* Whether the value's alias goes on with those of the family that it is to join. */
bool alias_goes_on(const struct family *f, int value);
/* Whether two tensors are alike in all but their names and places. */
bool same_tensor(int a, int b);

/* ----------------------------------------------------------- check.c, prove.c, dump.c, report.c */

enum pass {
  PASS_LUA,
  PASS_PLAN,
  PASS_PROPAGATE,
  PASS_GRAD,
  PASS_OPTIMIZE,
  PASS_REDISTRIBUTE,
  PASS_UNCAST,
  PASS_RECOMPUTE,
  PASS_ARRANGE,
  PASS_OUTLINE,
  PASS_PIPELINE,
  PASS_BUCKET,
  PASS_FUSE,
  PASS_EPILOGUE,
  PASS_SCHEDULE,
  PASS_MEMORY,
  PASS_COUNT
};
extern const char *const pass_name[PASS_COUNT];
/* Asserts what the pass promises to leave; bug() where it does not hold. */
void check(enum pass after);
void check_order(void);     /* check_order.c */
void check_in_pieces(void); /* pieces.c */
/* Prints the graph as it stands, where --dump asks for this pass, and ends tpgen. */
void dump(enum pass after);

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
/* What a rank issues in these operations, in order; what they call is left out. */
struct sequence issued_by(const int *op, int n, int rank);
/* Runs all ranks' sequences against each other. NULL when every rank comes to its end, else what
   would hang, in words. */
const char *prove_order(const struct sequence *of_rank);
void prove(void);

/* --explain NAME: what becomes of the values of that name, and why; then ends tpgen. */
void explain(void);
/* The plan's error where a step has more collectives than the plan expects. expect.c. */
void expect(void);
/* The plan's error where a rank needs more memory than device_mesh gives it. fit.c. */
void fit(void);
void report_text(struct buffer *b); /* plan.txt */
void report_json(struct buffer *b); /* plan.json */

/* -------------------------------------------------------------------------------------- write.c */

struct embedded {
  const char *name;
  const unsigned char *text;
  size_t size;
};
extern const struct embedded embedded[];
/* The Lua side of the front end as functions of Lua's, and what its lua_ident is that made them:
   compile.c. */
#define OWN_NAME "(tpgen)" /* in messages */
extern const struct embedded compiled[];
extern const char compiled_by[];
const char *embedded_text(const char *name);
/* Collects the files of out/; nothing is on disk before write_files, and then all or none. */
void add_file(const char *name, const char *contents, size_t size, bool executable);
void write_files(void);

#endif
