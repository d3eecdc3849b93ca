/* kernel_forms.h: the decisions of the pass `kernel_forms`: how the kernel of each fused operation
   goes over its elements. */
#ifndef TPGEN_IR_KERNEL_FORMS_H
#define TPGEN_IR_KERNEL_FORMS_H

#include "util/util.h"

struct op;

/* kernel/build.c and build_rows.c have the code of each. */
enum kernel_scheme {
  NO_KERNEL, /* the rank has no element of it: only reductions over nothing have a result */
  ELEMENT_BY_ELEMENT,
  ROW_BY_ROW,           /* what a row is reduced to is known before the next row begins */
  RESULT_BY_RESULT,     /* a reduction ends before that of the next result begins */
  RESULTS_SIDE_BY_SIDE, /* each thread of a device reduces to a result, or to a vector of them */
  RESULTS_IN_PLACE,     /* on the CPU: each element is added to its result in memory */
  ONE_RESULT            /* on the CPU: all becomes one number, in parts that threads share */
};

/* The form of one kernel on one rank. On the CPU it is only the scheme. */
struct kernel_form {
  enum kernel_scheme scheme;
  int width;   /* elements of a vector along the innermost loop; 1: no vectors */
  int threads; /* of a block; ROW_BY_ROW: that share a row, perhaps a part of a block */
  int64_t blocks, block_rows; /* that are launched; rows of so many blocks */
  int64_t parts;              /* in which sums are made, one of each block or warp; 1: at once */
  int64_t scratch;            /* floats in memory for these parts */
  /* ROW_BY_ROW: */
  int64_t row, rows; /* elements of a row that the rank has; how many rows */
  int64_t several;   /* vectors of a row that a thread has */
  bool unrolled;     /* it goes through them side by side */
  bool guarded;      /* some threads have one less */
  bool columns;      /* places in the rows are summed over all rows */
};

/* Ranks whose parts of all values are equal, in each micro-batch, are a class. */
struct rank_classes {
  int n;
  int *of;           /* by rank: its class, or NONE where it was not asked for */
  int *first;        /* by class: its first rank */
  struct list sizes; /* microbatch_sizes() */
};

struct kernel_forms {
  struct rank_classes ranks; /* rank 0, and those whose programs are written */
  int nop, *number;          /* by operation: that of a fused one, from 0, or NONE */
  int nkernel, *op;          /* the fused operations, in the order of the functions */
  struct class_forms {
    struct kernel_form *form; /* by number */
    unsigned char *alignment; /* by value: the power of two, up to 64, that divides its address;
                                 NULL: the target has no vectors, and nothing depends on it */
    int64_t scratch;          /* the most floats that a kernel needs: they run one by one */
  } * *of;                    /* by class, and size of micro-batches */
};

/* ------------------------------------------------------------------------------ kernel_forms.c */

/* The classes of rank 0 and of the ranks from the first to the last, by the shapes of their parts.
 */
struct rank_classes find_rank_classes(int first, int last);
/* The first micro-batch of each number of samples that a step's micro-batches have. */
const struct list *sizes_of_step(void);
/* The form of a fused operation's kernel on a rank. */
const struct kernel_form *kernel_form(const struct op *op, int rank);
/* The number of floats that a rank's kernels need for parts of sums: of one kernel at a time. */
int64_t kernel_scratch(int rank);
/* The power of two, up to 64, that a value's address on the rank is a multiple of. Before the pass,
   and for rank NONE: of one that is aligned well; likewise where the target has no vectors. */
enum { MOST_ALIGNED = 64 };
int64_t alignment_of(int value, int rank);

#endif
