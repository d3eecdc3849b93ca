/* value.h: a tensor: its properties, and its place in memory from the pass `memory`. */
#ifndef TPGEN_IR_VALUE_H
#define TPGEN_IR_VALUE_H

#include "ir/layout.h"

enum role {
  ACTIVATION, /* made and used within a step; lives in the arena                    */
  PARAMETER,  /* trained, or read from a file of weights                            */
  GRADIENT, /* of the parameter `of`, in its layout. An accumulator over micro-steps with shards of
               the same size, but perhaps pending, has the role too, and is at its place */
  SUMS,     /* an accumulator over micro-steps, which is reduced once, in the update: of a gradient
               where its shards are larger than the gradient's; or of a metric's terms, and then
               `of` is the value with which it begins */
  STATE,    /* the optimizer's, of the parameter `of`                             */
  BATCH,    /* an input of the step                                               */
  CACHE,    /* kept from call to call, and written in place: the keys of earlier tokens   */
  LOSS,     /* the scalar to minimize: replicated, kept for the metrics */
  NORM      /* of all gradients together; likewise */
};

/* The initial values of a parameter or an input without a file. INIT_TOKENS: every step fills the
   input from the data: see runtime/base/program.h. INIT_NESTED: the tables of NF4 blocks. */
enum init_kind {
  INIT_CONSTANT,
  INIT_UNIFORM,
  INIT_NORMAL,
  INIT_TOKENS,
  INIT_PRESENT,
  INIT_NORMAL_ROWS,
  INIT_TRUNC_NORMAL,
  INIT_ORTHOGONAL,
  INIT_SPARSE,
  INIT_DIRAC,
  INIT_NESTED
};
struct init {
  enum init_kind kind;
  double a, b, low, high; /* between the last two a truncated normal distribution is */
};

/* An output of a program that only goes forward: it is of all samples of the batch together, or
   that is not known; row i is of sample i; or it is the same for all samples. */
enum output_rows { ROWS_OF_BATCH, ROWS_OF_SAMPLES, ROWS_OF_NONE };

/* The most used fields come first: see struct op. */
struct value {
  enum role role : 8;
  enum type type : 8;
  enum type used_as : 8;    /* PARAMETER: the model's compute type */
  enum type reduced_as : 8; /* PARAMETER: the type in which its gradient moves between ranks */
  bool placed;              /* the layout is known */
  bool is_output;           /* of an inference program: written to a file; or a metric */
  signed char rows;         /* of an output: which samples its rows are of, as output_rows */
  bool stored;              /* it is in memory: false inside a fused kernel */
  bool is_separate;
  bool on_other_stages;  /* of a parameter that only ranks of other stages have */
  bool frozen;           /* PARAMETER: not trained: it has no gradient and no state */
  signed char file_dim;  /* see `file_first` */
  signed char alias_dim; /* see `alias_first` */
  int op;                /* that makes it, or NONE */
  int module;            /* that made it */
  unsigned order;     /* the memory order of its dimensions: see assign_dim_order.c; 0: row-major */
  int of;             /* the value whose gradient, sums or optimizer's state it is, or NONE */
  int counts;         /* it is stored by rows: the value that counts them (rows.c); or NONE */
  struct shape shape; /* whole */
  struct layout layout;
  const char *name;  /* the model's: "in_proj.weight"; of an activation its module's path  */
  int line;          /* of the plan */
  int unit;          /* PARAMETER: its unit, or NONE */
  int optimizer;     /* PARAMETER: which of plan_options->optimizer */
  int style;         /* that placed this parameter, or NONE */
  int pieces;        /* the number of its pieces, or 0; apart: each piece is contiguous */
  const char *alias; /* PARAMETER: its name in files of others, or NULL */
  const char *why;   /* CACHE: for which operation it is kept; or NULL */
  /* PARAMETER, STATE: files hold it as a part of a larger tensor of its name: along `file_dim` the
     part begins at `file_first` of `file_size`; 0: it is the whole tensor. A parameter with
     file_first above 0 follows the one before it, which is the part before it. */
  int64_t file_first, file_size;
  /* PARAMETER: files of others hold it as a part of a larger tensor, which `alias` names: along
     `alias_dim` it begins at `alias_first` of `alias_size`, with all its own parts; 0: that is the
     whole tensor. */
  int64_t alias_first, alias_size;
  struct init init;
};

/* A value's place and lifetime. A program point is the index of an operation in the order of
   each_op. */
struct allocation {
  int storage;    /* the value whose bytes it shares: mostly itself */
  int depth;      /* the number of values of its stack that are kept: index i has slot i % depth */
  int64_t offset; /* ACTIVATION: in the arena; in a stack, that of module 0's value */
  int in_flight;  /* the stage of a pipeline of whose micro-batches each in flight has one, in its
                     slot; NONE: there is one. The offset counts the slots as if each stage had one,
                     and they lay side by side */
  int64_t slice;  /* the storage holds the slices of a scan, one after the other: the bytes of one;
                     0:  it is none */
  int made, made_by; /* the program point that makes it, and its function; or NONE */
  int first, last;   /* its first and last program point */
};

/* The result of the pass `memory`. */
struct memory_plan {
  struct allocation *of; /* by value */
  bool placed;           /* each has its offset */
  int64_t arena_bytes;   /* of a rank, the same on all */
  int64_t live_bytes;    /* the largest sum of live bytes: the lower bound of arena_bytes */
  struct slots {
    int n;         /* of one stage: all slots of the rank; of several: the most it has at once */
    int64_t bytes; /* that each holds of the stage */
  } * slots;       /* by stage of a pipeline: they are the end of the arena */
  int64_t scratch_bytes; /* outside the arena, for parts of sums: on rank 0, which has the most */
};

#endif
