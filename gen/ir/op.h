/* op.h: an operation, its rule, and the data that some kinds refer to. */
#ifndef TPGEN_IR_OP_H
#define TPGEN_IR_OP_H

#include "ir/layout.h"

enum op_kind {
#define OP(name, ...) OP_##name,
#include "ir/ops.h"
#undef OP
  OP_COUNT
};
_Static_assert(OP_COUNT <= 256, "struct op has a byte for the kind");

/* A step of several batches runs the forward and the backward for each. COUNT goes through all of
   them before the first one, to count the divisors of their means; GATHER gathers the values that
   all of them need. A program that generates has two entries: FORWARD takes the tokens of a prompt,
   DECODE the next token of each slot. CONSTANTS runs once, before the first step:
   hoist_constants.c. */
enum phase { FORWARD, BACKWARD, UPDATE, GATHER, DECODE, CONSTANTS, COUNT, PHASES };

/* The iteration of a loop for which a call of a part of its body is. Before and after the loop: one
   of the first, and the last. In the body: a later one, if there is one, and the one before, if
   there was one. A collective that the last iteration issues for code after the loop belongs to no
   iteration. */
enum iteration {
  FIRST_ITERATION,
  LAST_ITERATION,
  NEXT_ITERATION,
  PREVIOUS_ITERATION,
  IN_LAST_ITERATION
};

/* There are tens of thousands of values and operations, and passes scan them all: the most used
   fields come first, and small ones take a byte. */
struct op {
  enum op_kind kind : 8;
  enum phase phase : 8;
  signed char nin, nout;
  int out;            /* the values it makes: out, out + 1, ...; NONE where there are none */
  int module, line;   /* its origin */
  enum type type : 8; /* cast, redistribute, operations without inputs: of the result */
  enum type backward_type : 8;  /* redistribute: the type in which its gradient is moved */
  enum reduction reduction : 8; /* all_reduce, reduce_scatter, to_partial */
  enum iteration iteration : 8; /* iteration: which; see also `first` and `ahead` */
  bool of_unit;    /* redistribute and its lowered operations: of a unit's parameters */
  bool typed;      /* `type` is the type of the result, which otherwise follows from the inputs */
  bool constant;   /* no gradient flows through it */
  bool recomputed; /* recomputed: an operation of the forward that the backward runs again */
  bool keepdim;    /* removed or new dimensions of the output have size 1 before */
  bool finishes;   /* redistribute: only the part of these that is pending */
  bool last_batch; /* of a step of several batches only the last one runs it, in its backward: a
                      reduction of the sum of all gradients, and its steps */
  bool continues;  /* a step of a redistribution: its input is the previous step's result */
  bool held;       /* operations that gather: the result is kept after the forward */
  bool packed;     /* a bucket whose members are contiguous in `buffer` */
  signed char dim, dim_to; /* all_gather, reduce_scatter, pack, unpack: the tensor's dimension;
                              all_to_all: both */
  signed char piece_dim;   /* see `piece_group` */
  int in[MAX_INPUTS];
  const char *equation; /* its rule, if the row's is "equation", or does not fit its operands */
  double scalar;        /* $s */
  unsigned dims;        /* a bit for each dimension that a capital letter names */
  unsigned asked;       /* redistribute: a bit for each mesh dimension that `to` specifies */
  struct layout to; /* redistribute: the requested layout, on the mesh dimensions in `asked`; pack,
                       unpack: the layout in which the members hold the parts */
  int64_t number[MAX_NUMBERS]; /* in the order of the row's names */
  int custom;                  /* custom: which of graph->custom */
  int unit;                    /* of_unit: see unit_of */
  int group; /* collectives, pack, unpack: the ranks; iteration, await: those of their collective */
  int exchange; /* exchange, pack_pieces, unpack_pieces: which of graph->exchange */
  const int *body;
  const struct stages *stages; /* fused: how its kernel runs the body: row_passes.c */
  const char *why; /* redistribute and its lowered operations: the consumer, in words, or NULL */
  const char *part_of; /* "rms_norm": the plan's function that made it, or NULL */
  const char *node; /* "batch_norm (model.py:7)": of an archive, the node that made it; or NULL */
  int nbody;        /* fused, epilogue, bucket of collectives: the number of operations in it */
  int buffer;
  int function;      /* loop, iteration: the function that it calls */
  int awaits;        /* await: the collective */
  int first;         /* FIRST_ITERATION: which of the first, from 0 */
  int ahead;         /* NEXT_ITERATION: the number of iterations */
  int pieces, piece; /* one of so many pieces of its values, or 0 */
  int piece_group; /* matmul, of a piece: the dimension `piece_dim` of its output is cut in pieces;
                      each member of the group has a part of it */
  double softcap;  /* attention: scores s become softcap tanh(s / softcap); 0: they stay */
  int64_t stream_growth; /* of random numbers, in a loop's body: how its "stream" grows from one
                            module to the next */
};

/* One step of a redistribution, within each rank or among the ranks of a group, on the dimensions
   `dim` of the mesh.
     slice           R -> S, cut last: each takes its part
     to_partial      R, or the last cuts of a dimension -> P: to a sum, the first of the ranks with
                     the same data contributes it, to a maximum or minimum each; or each its part
     all_reduce      P -> R
     reduce_scatter  P -> S(d), cut last, in the order of the group
     all_gather      S(d), the last cuts of d in the order of the group -> R
     all_to_all      S(d), the last cuts of d in the order of the group -> S(e), cut last, the same
     exchange        any R and S -> any other: each rank gets each piece that it lacks from a rank
                     that has it; pending reductions over other dimensions stay pending. So many
                     of the first members, and of the last, are idle: they get no pieces, and have
                     zeros instead */
struct move {
  enum op_kind kind;
  int n, dim[MAX_MESH]; /* in the order of the group's members */
  struct layout from, to;
  int idle_first, idle_last;
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
  const char *kernel[LANGUAGES]; /* the files' text, or NULL */
  int backward[MAX_INPUTS];      /* makes an input's gradient: graph->custom, or NONE */
  int line;
};

/* A row of ops.h; its gradient's function is in graph_passes/gradients*.c. */
enum cheap { BY_ELEMENT, CHEAP, COSTLY };
enum local_step { NO_LOCAL_STEP, LOCAL_STEP, PACKING, PIECES_PACKING };
enum elements { COMPUTED, ALL_OF_FIRST, SOME_OF_FIRST, SOME_OR_ZERO };
struct op_row {
  const char *name, *rule, *linear, *numbers, *element, *flops, *type, *sign, *suffix;
  enum cheap cheap;
  enum local_step step;
  enum elements elements;
  bool compares, copies, product, updates, keeps, takes_stored, calls, composed, idle, shows;
};

/* A row of element_functions.h. */
enum function_header { MATH_H, ELEMENTS_H, INDICES_H };
struct element_function {
  const char *name;
  enum function_header header;
  bool cheap, whole;
};

/* The calls of a library for a collective; NULL: the library has none. */
struct calls {
  const char *equal;    /* parts of one size */
  const char *large;    /* the same, of many bytes: the runtime's own takes half of MPI's time */
  const char *unequal;  /* parts of several sizes */
  const char *piece;    /* a piece of a contiguous value; NULL: as parts of several sizes */
  const char *segments; /* several values, each to its own place */
};

/* A row of collectives.h. */
enum { ANY_PLACEMENT = PARTIAL + 1 };
struct collective_row {
  const char *name;
  int from, to; /* enum placement_kind, or ANY_PLACEMENT */
  int passes, tie_break;
  bool pairwise, buckets, in_place;
  const char *suffix;
  struct calls calls[LIBRARIES];
};

/* One dimension of an operand: its letters, the outermost first; none if its size is 1. */
struct axis {
  signed char n, letter[MAX_DIMS];
};
/* An operation's rule (ops.h), applied to its operands. A letter is a number from 0, in the order
   of the dimensions of the operand that the operation walks over (the first input of a reduction,
   else the output). Letters of size 1 are left out. */
struct letters {
  int n;
  int64_t size[MAX_LETTERS];    /* whole */
  char name[MAX_LETTERS];       /* its name in the rule; '.': one of the dimensions of `...` */
  bool whole[MAX_LETTERS];      /* marked `!`: never cut */
  bool gets_start[MAX_LETTERS]; /* marked `@`: the kernel gets the start of its part */
  unsigned summed[MAX_INPUTS];  /* a bit for each letter after the operand's `+` */
  int ndim_in[MAX_INPUTS], ndim_out[MAX_OUTPUTS];
  struct axis in[MAX_INPUTS][MAX_DIMS], out[MAX_OUTPUTS][MAX_DIMS];
  int nout;
  enum reduction reduction[MAX_OUTPUTS]; /* pending over a cut letter that the output lacks */
  int type[MAX_OUTPUTS];                 /* from the rule; or NONE */
};

/* How one kernel runs the operations in a body, each pointwise or a reduction. */
enum { MOST_IN_KERNEL = 64 };
enum reach {
  NO_REDUCTION,
  OVER_SOME,   /* in the plain scheme */
  OVER_ROW,    /* each row to one element */
  OVER_COLUMN, /* each place in the rows, over all rows */
  OVER_ROWS,   /* per-row values, over all rows */
  UNFIT
};

struct stages {
  int space; /* the value over whose elements the kernel loops */
  int rows;  /* the number of its dimensions before those of a row; NONE: not by rows */
  int count; /* the number of passes over a row */
  int n;
  struct task {
    bool of_row; /* it makes, or reduces, one element for each row */
    enum reach reach;
    int stage;
  } task[MOST_IN_KERNEL];
};

/* The operands of an operation: its inputs, then its outputs. */
static inline int operand_count(const struct op *op)
{
  return op->nin + op->nout;
}

static inline int nth_operand(const struct op *op, int i)
{
  return i < op->nin ? op->in[i] : op->out + i - op->nin;
}

/* The element of an operator's row as a tree: ops_table.c. */
const struct expr *row_expr(enum op_kind k);

#endif
