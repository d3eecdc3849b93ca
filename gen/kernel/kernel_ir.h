/* kernel_ir.h: a kernel before it is text.

   A kernel is a block of code: declarations, assignments, reductions, conditions, and loops with
   marks for their parallelism. Expressions are trees (util/expr.h), made from the rows of ir/ops.h,
   and the same on every target. build.c makes the code of a fused operation, print_kernel.c prints
   it, kernel_ir.c walks over it and compares it. */
#ifndef TPGEN_KERNEL_IR_H
#define TPGEN_KERNEL_IR_H

#include "ir/ir.h"

enum statement_kind {
  DECLARE, /* type name = value; or without a value: type name; */
  SET,     /* to = value; */
  REDUCE,  /* to = the sum, the maximum or the minimum of itself and the value */
  COMBINE, /* the same over one number of each of `threads` threads, which all get the result */
  RUN,     /* value; */
  WHEN,    /* if (value) body */
  LOOP     /* for (type name = value; name < below; name += step) body */
};

/* How a loop runs; without a mark one thread runs it sequentially. */
enum loop_mark {
  PARALLEL = 1, /* threads share the iterations, and those of the next inner loops: `collapse` */
  VECTOR = 2,   /* several iterations at once, in the lanes of a vector */
  UNROLLED = 4  /* unrolled, with the iterations' values in registers */
};

struct statement {
  enum statement_kind kind;
  const char *type, *name;                      /* of a DECLARE or a LOOP */
  const struct expr *to, *value, *below, *step; /* step: NULL is 1 */
  bool lazy;                                    /* DECLARE: dropped if no later code names it */
  unsigned marks;                               /* of a LOOP */
  int collapse, threads;                        /* of a LOOP; of a COMBINE */
  enum reduction how;                           /* of a REDUCE or a COMBINE */
  enum type of;                                 /* of the values that are reduced */
  struct code *body;
};

struct code {
  struct statement *list;
  int n, room;
};

#endif
