/* value.h: a tensor: what it is, and where the pass `memory` puts it. */
#ifndef TPGEN_IR_VALUE_H
#define TPGEN_IR_VALUE_H

#include "ir/layout.h"

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
enum init_kind { INIT_CONSTANT, INIT_UNIFORM, INIT_NORMAL, INIT_TOKENS, INIT_PRESENT };
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
  int family, index; /* the value of module 0, or NONE; the number of the module that it is of */
  /* Carried from one iteration to the next: the value of `family` that the module `step` further
     made, 1 or -1; where there is no such module, `initial`. 0: it is not carried. */
  int step, initial;
  struct shape shape; /* whole */
  struct layout layout;
  unsigned order; /* of its dimensions in memory: see assign_dim_order.c; 0: as they are written */
  int of;    /* the value that it is the gradient, the sums or the optimizer's state of, or NONE */
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
  int64_t arena_bytes;   /* of a rank, the same on all */
  int64_t live_bytes;    /* the largest sum of what lives at once: the bound below arena_bytes */
  int64_t scratch_bytes; /* besides the arena, for parts of sums: on rank 0, which has the most */
};

#endif
