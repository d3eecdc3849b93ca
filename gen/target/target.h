/* target.h: what a target can do and what it costs. No text of a program is written here. */
#ifndef TPGEN_TARGET_H
#define TPGEN_TARGET_H

#include "base/base.h"
#include "ir/ir.h"
#include "sharding/sharding.h"

/* How long an operation takes, but a loop, and what it costs to run a collective beside
   others, by a model; in picoseconds. No more than LONGEST_TIME, so that the times of some thousand
   can be added up. */
#define LONGEST_TIME INT64_C(1000000000000000)

/* What such an operation does; NONE where there is no such value. */
struct epilogue {
  enum op_kind function; /* relu, gelu_tanh, gelu_tanh_back; matmul: none */
  int bias;              /* that is added first; or, with `summed`, its gradient, which is made */
  int kept;              /* what gelu is applied to: stored, or for the gradient read */
  int summed;            /* what is summed into bias: the result, or an operand over the terms */
  int result;
};

enum { BLOCK = 256 }; /* threads */

/* The loops of a kernel, over the dimensions of its space: the local shape of the value whose
   elements it walks over. Neighbouring dimensions that lie behind one another in every operand are
   one loop. */
struct loops {
  struct shape space;
  int order[MAX_DIMS]; /* its dimensions, from the outermost loop's to the innermost */
  int n;
  int64_t size[MAX_DIMS];
  int first[MAX_DIMS], last[MAX_DIMS]; /* the dimensions that it runs over */
  bool reduced[MAX_DIMS];              /* or, by rows, a row's own */
  const char *type;  /* of indices: "int" where that counts to every element, else "long" */
  const char *inner; /* the innermost loop's variable, where it is not the usual one: "j + v" */
};

/* A place in memory that the kernel is given. */
struct argument {
  int value;
  bool written;
  bool in_place;    /* what is read there first is another value, or the same before the kernel */
  const char *name; /* within the kernel */
};
/* What it is given besides: a number, or a stream of random ones. */
struct extra {
  const char *type, *name, *call;
};
/* The element of an inner value. */
struct temporary {
  int value; /* or NONE: an index */
  const char *name;
};

/* Neighbours in memory that a thread of a CUDA kernel reads, or writes, at once. */
struct vector {
  int value;
  const char *first;    /* where its first element is: "in + i * 2048 + j" */
  const char *name;     /* the variable */
  int from, until;      /* the first and the last stage that speak of it */
  bool indexed;         /* by an index that is made in its stage */
  const char *where;    /* the condition under which it is there, else it is zero; "": always */
  bool written, spoken; /* spoken: in the stage that is written now */
};
struct vectors {
  int width;     /* elements of each; 1: there are none */
  bool inside;   /* what is written now stands in the loop over a vector's elements */
  int stage;     /* in which it stands */
  bool kept;     /* from a stage to the next, in registers */
  bool several;  /* a thread has more than one of a row: "[part]" */
  bool declared; /* those that are kept, before they are read: in a loop, or under a condition */
  struct code *lead; /* statements before the loads that the loop asks for */
  int temporaries;   /* how many there were before the loop: later ones are known in it alone */
  int n, room;
  struct vector *list;
};

/* A kernel while it is written. */
struct draft {
  const struct op *group;
  int rank;
  const char *words; /* of the kernel's name, without sizes: "add_relu" */
  struct launch *launch;
  struct stages stages;
  const char *guard; /* the condition under which a thread stores what a row has one of */
  const struct kernel_form *form;
  bool parted; /* sums of columns are in parts, which threads share */
  struct loops loops;
  int nargument, argument_room, nextra, extra_room, ntemporary, temporary_room;
  struct argument *argument;
  struct extra *extra;
  struct temporary *temporary;
  struct vectors vectors;
};

/* How one operand lies in the rank's memory: along which dimension of the space each of its own
   runs, or NONE. */
struct operand {
  int value, ndim, along[MAX_DIMS];
  int64_t size[MAX_DIMS], stride[MAX_DIMS];
};

enum gemm_operand { GEMM_A, GEMM_B, GEMM_C, GEMM_OPERANDS };

struct letter_run {
  char letter; /* the first of those folded into it */
  unsigned in; /* a bit for each operand that has it */
  int64_t size, stride[GEMM_OPERANDS];
};

/* A matrix as it lies in memory: its rows, or where it is transposed its columns, are `ld` elements
   apart; tight: without gaps. ld 0: no such matrix. */
struct matrix {
  bool transposed, tight;
  int64_t ld;
};

struct gemm {
  const struct letter_run *m, *n, *k;
  struct matrix matrix[GEMM_OPERANDS];
};

enum { MAX_RUNS = GEMM_OPERANDS * MAX_DIMS };

struct product {
  const struct op *op;
  bool apart;                                /* of the result: see struct value */
  const struct epilogue *then;               /* or NULL */
  char letters[GEMM_OPERANDS][MAX_DIMS + 1]; /* the equation's */
  int nrun;
  struct letter_run run[MAX_RUNS];
  struct gemm call;
  const struct letter_run *batch; /* or NULL */
  int64_t offset[GEMM_OPERANDS];  /* of a piece, where it begins */
  int nloop;
  const struct letter_run *loop[MAX_RUNS]; /* from the outermost to the innermost */
  char variable[MAX_RUNS];
};

enum {
  WARP = 32,
  WIDEST = 1024,     /* threads of a block */
  OF_THREAD = 8,     /* elements of a row that a thread has, if there are threads enough */
  OF_LANE = 16,      /* where a warp goes through it */
  MOST_UNROLLED = 8, /* vectors that are kept side by side in registers */
  BLOCKS = 512       /* that share the rows, where there are columns: some for each processor */
};

/* --------------------------------------------------------------------------------- alignment.c */

/* By value: the power of two, up to 64, that the value's address is a multiple of on a rank. The
   plan says which values share bytes; its offsets in the arena may be found later. */
unsigned char *find_alignments(const struct memory_plan *plan, int rank);

/* --------------------------------------------------------------------------- attention_tiles.c */

/* Whether it is attention or its gradient. */
bool is_attention(const struct op *op);
/* Of attention, which of its files the kernel on the rank is ("_mma": NAME_mma.cu); and what a hole
   for the sizes of its tiles is filled with, or NULL. Of other operations "" and NULL. rank NONE:
   of one whose values are aligned well. */
const char *attention_variant(const struct op *op, int rank);
const char *attention_hole(const struct op *op, int rank, const char *hole, int64_t depth,
                           int64_t width);

/* ----------------------------------------------------------------------------------- c_types.c */

/* "int" or "long": what counts to n. */
const char *counter_type(int64_t n);
const char *c_type(enum type t);

/* -------------------------------------------------------------------------------------- cost.c */

int64_t time_taken(const struct op *op);
/* How many numbers rank 0 multiplies in a matmul's product, or in each of them. */
double multiplications(const struct op *op);
int64_t events_time(void);
/* The kernels that fill a bucket's buffer, and that empty it; 0 where there are none. */
int64_t copies_in_time(const struct op *op);
int64_t copies_out_time(const struct op *op);

/* ------------------------------------------------------------------------------------- flops.c */

/* The floating-point operations of one operation, of all ranks together, by its row: two for each
   product of two numbers. Attention is counted as if nothing were masked. */
double flops_of(const struct op *op);
/* The floating-point operations of the products of a step, of all ranks together: where it trains,
   three times those of the forward. */
double step_flops(void);
/* What most of them are done in. */
enum arithmetic step_arithmetic(void);
/* The tokens of a step, of all ranks together; 0: no input is tokens. */
double step_tokens(void);

/* -------------------------------------------------------------------------------------- form.c */

/* The form of a fused operation's kernel on the rank. It asks for alignments. */
struct kernel_form form_of(const struct op *group, int rank);
/* Whether the kernel reduces anything. */
bool has_reductions(const struct op *group);
/* Whether a reduction adds up floats. */
bool is_float_sum(const struct op *op);
/* Whether body[n] is a sum that ends with the kernel, which is in parts where any is. */
bool ends_in_parts(const struct draft *k, int n);
/* The k-th operation of a kernel. */
const struct op *body_op(const struct op *group, int k);
enum reduction reduction_of(const struct op *op);
enum type type_reduced(const struct op *op);
int64_t partial_sums_of(const struct draft *k, int n);
struct operand sum_operand(const struct draft *k, int n);
/* How many floats so many parts of sums take: each part begins at 16 bytes. */
int64_t sum_room(int64_t sums, int64_t parts);
bool is_vector(const struct draft *k, int value, const struct operand *operand);
/* Whether `width` elements lie in one piece, from wherever the other loops stand. */
bool fits_vector(const struct draft *k, int value, const struct operand *operand, int width);
bool is_kept_in_vector(const struct vector *v);
bool find_row_sums(const struct draft *k, enum reach reach, int stage, bool *these);
void find_sums_of_rows(const struct draft *k, int stage, bool *these);
/* Whether the vectors that several stages speak of find room in registers. */
bool fits_in_registers(const struct draft *k, const struct kernel_form *f);

/* -------------------------------------------------------------------------------- gemm_shape.c */

/* How many calls of a library a product takes, as its operands lie now. */
double matmul_calls(const struct op *op, int rank);
/* The same of a piece whose result would lie as struct value's `apart` says, or not. */
double piece_calls(const struct op *op, int rank, bool apart);
/* Whether a product is one call on the rank, with a batch or without, that writes rows without
 * gaps. */
bool matmul_is_one_call(const struct op *op, int rank);
int product_value(const struct op *op, enum gemm_operand o);
bool is_summed(const struct letter_run *r);
enum type type_at(const struct op *op, enum gemm_operand o);
/* Operands are of one type; of bfloat16 they may make float32. Else tpgen itself is wrong. */
void check_types(const struct op *op);
/* The plan's error where a size of the call does not fit into an int. */
void check_sizes(const struct product *p);
bool is_empty_product(const struct op *op, int rank);
void choose_product(struct product *p, const struct op *op, int rank);

/* ----------------------------------------------------------------------------- kernel_traits.c */

/* Whether the kernel of the operation asks how operand i lies, and takes it in any order that
   leaves the last dimension innermost. */
bool takes_steps(const struct op *op, int i);
/* The text of the operation's kernel file, or NULL where the plan names none; which operand its
   n-th parameter is; the name that the parameter for operand i has in the file. */
const char *kernel_file(const struct op *op, int rank);
int operand_of_parameter(const struct op *op, int n);
const char *kernel_parameter(const struct op *op, const char *file, int i);

/* ------------------------------------------------------------------------------------- loops.c */

/* Input i of an operation, or its output: i == op->nin. */
void find_operand(const struct op *op, const struct letters *l, int i, int rank,
                  struct operand *operand);
void find_loops(struct draft *k);
/* The dimension of an operation's space that has the letter of this name, or NONE: of size 1. */
int space_dimension(const struct op *op, const struct letters *l, char name);
/* Whether a name in a row's expression, behind its `$`, is a letter of the rule. */
bool names_letter(const struct op *op, const char *name);
/* By rows: how many elements the rank has of one. */
int64_t row_elements(const struct loops *loops);
/* The innermost loop, or NONE; how far apart an operand's neighbours along a loop are. */
int innermost_loop(const struct loops *loops);
int64_t stride_along(const struct loops *loops, const struct operand *operand, int n);
/* Whether a dimension is cut. */
bool is_cut(int value, int dim);
/* Whether there is anything to do for this rank. */
bool has_rows(const struct draft *k);
/* How many loops are outside all reduced ones, or NONE if a reduced loop is around a kept one. */
int kept_outside(const struct loops *loops);
/* The product of the sizes of the loops that are reduced, or not. */
int64_t count_of(const struct loops *loops, bool reduced);
/* In C: a kernel over as many elements is shared among threads. */
extern int64_t worth_threads;
bool has_threads(const struct loops *loops);
extern const char loop_variable[][2];
int loop_that_ends(const struct loops *loops, int dim);

/* -------------------------------------------------------------------------------- row_passes.c */

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

#endif
