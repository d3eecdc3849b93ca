/* target.h: the capabilities and costs of a target. No text of a program is written here. */
#ifndef TPGEN_TARGET_H
#define TPGEN_TARGET_H

#include "util/util.h"
#include "ir/ir.h"
#include "sharding/sharding.h"

/* The time of an operation, except a loop, and the cost of overlapping a collective, by a model; in
   picoseconds. At most LONGEST_TIME, so that the sum of some thousand fits. */
#define LONGEST_TIME INT64_C(1000000000000000)

/* The function of such an operation; NONE where there is no such value. */
struct epilogue {
  enum op_kind function; /* relu, gelu_tanh, gelu_tanh_back; mul: by `scale`; matmul: none */
  int bias;              /* added first; or, with `summed`, its gradient, which is an output */
  int kept;              /* the input of gelu: stored, or for the gradient read */
  int summed;            /* the value summed into bias: the result, or an operand, over the terms */
  int scale[2]; /* of products of float8: the numbers by which the operands are multiplied */
  int result;
};

/* The bytes that were touched since the value was, `of` knows where in the program. */
typedef double value_reach(void *of, int value);

enum { BLOCK = 256 }; /* threads */

/* The loops of a kernel, over the dimensions of its space: the local shape of the value whose
   elements it walks over. Neighbouring dimensions that are contiguous in every operand share one
   loop. */
struct loops {
  struct shape space;
  int order[MAX_DIMS]; /* its dimensions, from the outermost loop's to the innermost */
  int n;
  int64_t size[MAX_DIMS];
  int first[MAX_DIMS], last[MAX_DIMS]; /* the dimensions that it runs over */
  bool reduced[MAX_DIMS];              /* or, by rows, within a row */
  const char *type; /* of indices: "int" if it can count all elements, else "long" */
  int64_t of_row;   /* the iterations of the outermost loop for each row that is counted, or 0 */
  const struct expr *rows;  /* with these: the variable that has the number of rows */
  const struct expr *inner; /* the innermost loop's index, if it is not the variable: "j + v" */
};

/* A pointer parameter of the kernel. */
struct argument {
  int value;
  enum type type;
  bool written;
  bool in_place;    /* its first read sees another value, or the same one from before the kernel */
  const char *name; /* within the kernel */
};
/* A further parameter: a number, or a stream of random ones. */
struct extra {
  const char *type, *name, *call;
};
/* The element of an inner value. */
struct temporary {
  int value; /* or NONE: an index */
  const struct expr *element;
};

/* Neighbours in memory that a thread of a CUDA kernel reads, or writes, at once. */
struct vector {
  int value;
  const struct expr *first; /* the address of its first element: "in + i * 2048 + j" */
  const char *name;         /* the variable */
  int from, until;          /* the first and the last stage that use it */
  bool indexed;             /* by an index that its stage computes */
  const struct expr *where; /* the condition under which it exists, else it is zero; or NULL */
  bool written, used;       /* used: in the current stage */
};
struct vectors {
  int width;         /* elements of each; 1: no vectors */
  bool inside;       /* the current statement is in the loop over a vector's elements */
  int stage;         /* the current stage */
  bool kept;         /* from a stage to the next, in registers */
  bool several;      /* a thread has more than one of a row: "[part]" */
  bool declared;     /* the kept ones, before they are read: in a loop, or under a condition */
  struct code *lead; /* statements that the loop needs before the loads */
  int temporaries;   /* the number before the loop: later ones are valid only in the loop */
  int n, room;
  struct vector *list;
};

/* A kernel under construction. */
struct kernel_builder {
  const struct op *group;
  int rank;
  const char *words; /* of the kernel's name, without sizes: "add_relu" */
  struct launch *launch;
  struct stages stages;
  const struct expr *guard; /* the condition under which a thread stores per-row values; or NULL */
  const struct kernel_form *form;
  bool parted; /* sums of columns are in parts, which threads share */
  struct loops loops;
  int nargument, argument_room, nextra, extra_room, ntemporary, temporary_room;
  struct argument *argument;
  struct extra *extra;
  struct temporary *temporary;
  struct vectors vectors;
};

/* The layout of one operand in the rank's memory: for each of its dimensions the dimension of the
   space that it runs along, or NONE. */
struct operand {
  int value, ndim, along[MAX_DIMS];
  int64_t size[MAX_DIMS], stride[MAX_DIMS];
};

enum gemm_operand { GEMM_A, GEMM_B, GEMM_C, GEMM_OPERANDS };

struct letter_run {
  char letter; /* the first of the letters folded into it */
  unsigned in; /* a bit for each operand that has it */
  int64_t size, stride[GEMM_OPERANDS];
};

/* A matrix in memory: its rows, or if it is transposed its columns, are `ld` elements apart; tight:
   without gaps. ld 0: no such matrix. */
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
  char joined;                               /* the letter of products that are one, or 0 */
  int64_t size;                              /* along it, of all of them */
  const struct epilogue *then;               /* or NULL */
  char letters[GEMM_OPERANDS][MAX_DIMS + 1]; /* the equation's */
  int nrun;
  struct letter_run run[MAX_RUNS];
  struct gemm call;
  const struct letter_run *batch; /* or NULL */
  int64_t offset[GEMM_OPERANDS];  /* the offset of a piece */
  int nloop;
  const struct letter_run *loop[MAX_RUNS]; /* from the outermost to the innermost */
  char variable[MAX_RUNS];
};

enum {
  WARP = 32,
  WIDEST = 1024,     /* threads of a block */
  OF_THREAD = 8,     /* elements of a row that a thread has, if there are enough threads */
  OF_LANE = 16,      /* if a warp has the row */
  MOST_UNROLLED = 8, /* vectors side by side in registers */
  BLOCKS = 512       /* that share the rows, if there are columns: some for each processor */
};

/* --------------------------------------------------------------------------------- alignment.c */

/* By value: the power of two, up to 64, that divides the value's address on a rank. The plan gives
   which values share bytes; offsets in the arena may be found later. */
unsigned char *find_alignments(const struct memory_plan *plan, int rank);

/* --------------------------------------------------------------------------- attention_tiles.c */

/* The variant of a kernel of attention on the rank: see kernel_variant; and the text for a hole for
   the sizes of its tiles, or NULL. For other operations "" and NULL. rank NONE: a rank with
   well-aligned values. */
const char *attention_variant(const struct op *op, int rank);
const char *attention_hole(const struct op *op, int rank, const char *hole, int64_t depth,
                           int64_t width);
/* The same of a kernel on the tensor cores, for elements of so many bytes. */
const char *attention_tile_hole(bool back, const char *hole, int64_t size, int64_t depth,
                                int64_t width);

/* ----------------------------------------------------------------------------------- c_types.c */

/* "int" or "long": a type that can count to n. */
const char *counter_type(int64_t n);
const char *c_type(enum type t);

/* -------------------------------------------------------------------------------------- cost.c */

int64_t time_taken(const struct op *op);
/* The same in a step that is simulated, where the device was measured. */
int64_t time_taken_here(const struct op *op, value_reach *reach, void *of);
/* The time that a rank takes to send bytes to another one along that dimension of the mesh, in
   picoseconds. */
int64_t sending_time(int64_t bytes, int mesh_dim);
/* The multiplications of rank 0 in a matmul's product, or in each of several. */
double multiplications(const struct op *op);
int64_t events_time(void);
/* The time of the kernels that fill and empty a bucket's buffer; 0 if there are none. */
int64_t copies_in_time(const struct op *op);
int64_t copies_out_time(const struct op *op);

/* ------------------------------------------------------------------------------ stream_times.c */

struct stream_times {
  int64_t now;    /* the time that the main stream has reached */
  int64_t *until; /* by group: the time at which its stream is free */
};
/* The issue of a collective. */
struct stream_issue {
  int group;
  bool async, has_chained;   /* whether another collective is chained to it */
  int64_t takes, copies_out; /* the times of the collective, and of its copies out of a buffer */
  int64_t predecessor_ends;  /* 0: it is chained to none */
};
void open_stream_times(struct stream_times *t);
/* Issues a collective now. Returns the time at which it begins; until[group] is its end. */
int64_t issue_on_stream(struct stream_times *t, const struct stream_issue *c);
/* The main stream awaits what ends then. Returns for how long. */
int64_t wait_for_stream(struct stream_times *t, int64_t end);
/* The time that arithmetic takes now, beside the collectives that run. */
int64_t time_beside_streams(const struct stream_times *t, int64_t takes);

/* ------------------------------------------------------------------------------------- flops.c */

/* The floating-point operations of one operation, of all ranks together, by its row: two for each
   product of two numbers. Attention counts as if nothing were masked, but
   for the keys beyond a window. */
double flops_of(const struct op *op);
/* Elements and bytes of rank 0's part of a value. */
double local_size(int value);
double local_bytes(int value);
/* The bytes that a rank of n sends where rows go to the ranks of their experts. */
double bytes_of_rows(const struct op *op, int n);
/* The arithmetic of an operation that multiplies, and the number of ranks that share its work. */
enum arithmetic arithmetic_of(const struct op *op);
double ranks_that_share(const struct op *op);
/* Of a step of a ring: whether its block of keys is the rank's own, or is in a balanced order: half
   is hidden then. */
bool is_own_block(const struct op *op);
/* Those of a step's forward, of all ranks together: of products in float32, and in bfloat16. */
void forward_flops(double forward[2]);
/* The floating-point operations of the products of a step, of all ranks together: in training,
   three times those of the forward. */
double step_flops(void);
/* The arithmetic of most of them. */
enum arithmetic step_arithmetic(void);
/* The tokens of a step, of all ranks together; 0: no input is tokens. */
double step_tokens(void);

/* -------------------------------------------------------------------------------------- form.c */

/* The form of a fused operation's kernel on the rank. It uses the alignments. */
struct kernel_form form_of(const struct op *group, int rank);
/* Whether the kernel reduces anything. */
bool has_reductions(const struct op *group);
/* Whether a reduction adds up floats. */
bool is_float_sum(const struct op *op);
/* Whether body[n] is a sum that ends with the kernel; if any is in parts, all these are. */
bool ends_in_parts(const struct kernel_builder *k, int n);
/* The k-th operation of a kernel. */
const struct op *body_op(const struct op *group, int k);
enum reduction reduction_of(const struct op *op);
enum type type_reduced(const struct op *op);
int64_t partial_sums_of(const struct kernel_builder *k, int n);
struct operand sum_operand(const struct kernel_builder *k, int n);
/* The floats that so many parts of sums take: each part begins at 16 bytes. */
int64_t sum_room(int64_t sums, int64_t parts);
bool is_vector(const struct kernel_builder *k, int value, const struct operand *operand);
/* Whether `width` elements are always contiguous, whatever the other loops' indices are. */
bool fits_vector(const struct kernel_builder *k, int value, const struct operand *operand,
                 int width);
bool is_kept_in_vector(const struct vector *v);
bool find_row_sums(const struct kernel_builder *k, enum reach reach, int stage, bool *these);
void find_sums_of_rows(const struct kernel_builder *k, int stage, bool *these);
/* Whether the vectors that several stages use fit in registers. */
bool fits_in_registers(const struct kernel_builder *k, const struct kernel_form *f);

/* -------------------------------------------------------------------------------- gemm_shape.c */

/* The number of library calls for a product, with its operands' current layouts. */
double matmul_calls(const struct op *op, int rank);
/* The same for a piece whose result has the layout of struct value's `apart`, or not. */
double piece_calls(const struct op *op, int rank, bool apart);
/* Whether a product is one call on the rank, with a batch or without, that writes rows without
   gaps. */
bool matmul_is_one_call(const struct op *op, int rank);
int product_value(const struct op *op, enum gemm_operand o);
bool is_summed(const struct letter_run *r);
enum type type_at(const struct op *op, enum gemm_operand o);
/* Operands have one type; bfloat16 operands may make float32. A violation is an error in tpgen. */
void check_types(const struct op *op);
/* The plan's error if a size of the call does not fit into an int. */
void check_sizes(const struct product *p);
bool is_empty_product(const struct op *op, int rank);
void choose_product(struct product *p, const struct op *op, int rank);
/* For products that are one: of these `first` begins, and makes what the last one does. */
void choose_products(struct product *p, const struct op *op, struct op *first, int rank);

/* ----------------------------------------------------------------------------- kernel_traits.c */

/* Whether the operation's kernel takes strides of operand i, and so any order of dimensions in
   which the last is innermost. */
bool takes_steps(const struct op *op, int i);
/* Which of an operator's files its kernel is made from ("_mma": NAME_mma.cu, "": NAME.cu); the text
   of that file, or NULL if the plan names none; the operand of its n-th parameter; the name of
   operand i's parameter in the file. */
const char *kernel_variant(const struct op *op, int rank);
const char *kernel_file(const struct op *op, int rank);
int operand_of_parameter(const struct op *op, int n);
const char *kernel_parameter(const struct op *op, const char *file, int i);

/* ------------------------------------------------------------------------------------- loops.c */

/* Input i of an operation, or its output: i == op->nin. */
void find_operand(const struct op *op, const struct letters *l, int i, int rank,
                  struct operand *operand);
void find_loops(struct kernel_builder *k);
/* The dimension of an operation's space that has the letter of this name, or NONE: of size 1. */
int space_dimension(const struct op *op, const struct letters *l, char name);
/* Whether a name in a row's expression, after its `$`, is a letter of the rule. */
bool names_letter(const struct op *op, const char *name);
/* By rows: the elements of a row on the rank. */
int64_t row_elements(const struct loops *loops);
/* The innermost loop, or NONE; the stride of an operand along a loop. */
int innermost_loop(const struct loops *loops);
int64_t stride_along(const struct loops *loops, const struct operand *operand, int n);
/* Whether a dimension is cut. */
bool is_cut(int value, int dim);
/* Whether this rank has work. */
bool has_rows(const struct kernel_builder *k);
/* The number of loops outside all reduced ones, or NONE if a reduced loop is around a kept one. */
int kept_outside(const struct loops *loops);
/* The product of the sizes of the reduced, or the kept, loops. */
int64_t count_of(const struct loops *loops, bool reduced);
/* In C: threads share a kernel over at least so many elements. */
extern int64_t worth_threads;
bool has_threads(const struct loops *loops);
extern const char loop_variable[][2];
int loop_that_ends(const struct loops *loops, int dim);

/* ----------------------------------------------------------------------------- measured_cost.c */

/* The seconds of an operation on a device that was measured; reach NULL: nothing is known. Below 0:
   the figures do not answer. And those of a send between two stages of a pipeline. */
double measured_seconds(const struct op *op, value_reach *reach, void *of);
double measured_sending(double bytes, int mesh_dim);

/* -------------------------------------------------------------------------------- row_passes.c */

/* Whether one kernel can run them, and how. */
bool find_stages(const int *body, int n, struct stages *stages);
/* Finds the operations on elements that a pass over the row computes in this stage; returns whether
   the stage has such a pass. Values are already marked `stored`. */
bool made_in_stage(const int *body, const struct stages *stages, int stage, bool *made);
/* The last stage in which body[k] is computed. */
int last_stage(const int *body, const struct stages *stages, int k);
/* Whether the operation on rows reads only its own row of input i; `rows`: the number of its
   dimensions before those of a row. */
bool stays_in_row(const struct op *op, int i, int rows);

#endif
