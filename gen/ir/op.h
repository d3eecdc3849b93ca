/* op.h: an operation, its rule, and what some kinds refer to. */
#ifndef TPGEN_IR_OP_H
#define TPGEN_IR_OP_H

#include "ir/layout.h"

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
  enum iteration iteration : 8; /* round: for which; see also `first` and `ahead` */
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
  int group;       /* collectives, pack, unpack: among whom; round, await: of their collective */
  int dim, dim_to; /* all_gather, reduce_scatter, pack, unpack: the tensor's dimension;
                      all_to_all: both */
  int exchange;    /* exchange, pack_pieces, unpack_pieces: which of graph->exchange */
  int nbody;       /* fused, epilogue, and a collective that is a bucket: the operations in it */
  bool keep;       /* those that vanish from the output, or appear there, have size 1 before */
  bool finishes;   /* redistribute: of these only where something is pending */
  bool continues;  /* a step of a redistribution: goes on with what the step before it made */
  bool held;       /* of those that gather: what it makes is not given up after the forward */
  bool packed;     /* a bucket whose members travel in `buffer`, one after the other */
  const int *body;
  struct layout to; /* redistribute: where it is wanted, on the mesh dimensions in `asked`; pack,
                       unpack: in which the members hold the parts */
  int64_t number[MAX_NUMBERS]; /* in the order of the row's names */
  const struct stages *stages; /* fused: how its kernel runs the body: row_passes.c */
  const char *why;     /* redistribute and what becomes of it: who asked, in words, or NULL */
  const char *part_of; /* "rms_norm": the function that the plan called there, or NULL */
  int buffer;
  int function;               /* loop, round: which it calls */
  int awaits;                 /* await: the collective */
  int first;                  /* FIRST_ITERATION: for which of the first, from 0 */
  int ahead;                  /* NEXT_ITERATION: for how many iterations later */
  int pieces, piece;          /* It is of one of so many pieces of its values, or 0 */
  int piece_dim, piece_group; /* matmul, of a piece: the dimension of its output that is cut in
                                 pieces, of which each member of the group has a part */
  int64_t stream_growth; /* dropout, in a loop's body: how much its number "stream" grows from one
                            module to the next */
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

/* A row of ops.h; its gradient's function lies in flat/gradients*.c. */
enum cheap { BY_ELEMENT, CHEAP, COSTLY };
enum local_step { NO_LOCAL_STEP, LOCAL_STEP, PACKING, PIECES_PACKING };
enum elements { COMPUTED, ALL_OF_FIRST, SOME_OF_FIRST, SOME_OR_ZERO };
struct op_row {
  const char *name, *rule, *linear, *numbers, *element, *flops, *type, *sign, *suffix;
  enum cheap cheap;
  enum local_step step;
  enum elements elements;
  bool compares, copies, product, updates, calls, composed, idle;
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

#endif
