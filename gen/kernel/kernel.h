/* kernel.h: the text of kernels. */
#ifndef TPGEN_KERNEL_H
#define TPGEN_KERNEL_H

#include "util/util.h"
#include "ir/ir.h"
#include "target/target.h"
#include "naming/naming.h"
#include "kernel/kernel_ir.h"

/* How a CUDA kernel is launched, and the statements that complete it. */
struct launch {
  int64_t blocks, rows; /* rows of blocks */
  int threads;
  char *then; /* the statements that sum its parts, or NULL */
};

/* ------------------------------------------------------------------------------------- build.c */

/* The code of the kernel; sets its launch, too. */
struct code *kernel_code(struct kernel_builder *k);

/* ----------------------------------------------------------------------------------- element.c */

/* The element of the operation's output: "relu[i * 16 + j]". */
const struct expr *output_element(struct kernel_builder *k, const struct op *op);
/* An operation's element. The statements that it needs before go into `before`. */
const struct expr *element_expr(struct code *before, struct kernel_builder *k, const struct op *op);
/* A statement for each pointwise operation of those that are `made`; of elements, or of rows. */
void add_elements(struct code *c, struct kernel_builder *k, const bool *made);
/* Whether anything in the kernel reads the per-row value. */
bool is_read_by_rows(const struct kernel_builder *k, int value);
/* The name of an operation's element from here on: its own, or that of a variable, which this
   function declares. */
const struct expr *named_element(struct code *c, struct kernel_builder *k, const struct op *op,
                                 const struct expr *element);

/* ----------------------------------------------------------------------------------- indices.c */

/* The start of the rank's part of a value in dimension `dim` of the whole, the same text on all
   ranks: "25L * rank->coordinate[0]"; "0" if the dimension is not cut. Meaningless for a rank
   without a part. */
char *first_text(int value, int dim);
/* A rank's coordinate, or in time the number of the micro-batch that runs. */
const char *coordinate_text(int mesh_dim);
/* The start, times `factor`, of the part that these cuts, one after the other, leave of n elements;
   "0" if there are none. If a part is cut again its size may depend on the rank: then the program
   computes it. */
char *begin_text(const struct layout *layout, const int *cut, int ncut, int64_t n, int64_t factor);
/* By rows: the index within one: "j", "j * 4 + k". */
const struct expr *row_index(const struct loops *loops);
/* "i": the index in a dimension of the space that has a loop of its own, else "0". */
const struct expr *variable_of(const struct loops *loops, int dim);
/* The innermost loop's variable: the index of a vector's first element. */
const char *innermost_variable(const struct loops *loops);
/* An element's index in an operand: "i * 16 + j"; in dimension `dim` at the index `at`, unless dim
   is NONE. */
const struct expr *index_of(const struct loops *loops, const struct operand *operand, int dim,
                            const struct expr *at);
/* The index of a value's first element in the whole: "64L * rank->coordinate[0]". */
char *flat_first_text(int value);
/* Declares the variables of the reduced, or the kept, loops, computed from one number that counts
   over all their iterations; if `lazy`, only the variables that later code names. The number counts
   every `step`-th element of the innermost loop. */
void declare_variables(struct code *c, const struct loops *loops, bool reduced,
                       const struct expr *number, int step, bool lazy);

/* ------------------------------------------------------------------------------------ kernel.c */

char *fused_call(const struct op *group, int rank);
/* Reserves the desired name of its kernel. */
void reserve_fused_name(const struct op *group, int rank);
/* The call of a kernel; for a grid, with its blocks and threads. */
char *kernel_call_text(const char *name, const char *blocks, int threads, const char *arguments);

/* -------------------------------------------------------------------------- kernel_arguments.c */

void find_arguments(struct kernel_builder *k);
/* Removes the arguments that the body does not name: indices into values that have no part on this
   rank. */
void drop_unused(struct kernel_builder *k, const struct code *body);
const char *argument_name(const struct kernel_builder *k, int value);
const char *argument_if_any(const struct kernel_builder *k, int value); /* or NULL */
/* The text between the parentheses of the prototype and of the call; the latter comes last. */
char *parameters_text(const struct kernel_builder *k);
char *arguments_text(const struct kernel_builder *k);
/* A parameter that is no pointer; equal `call`s share one. */
const char *add_extra(struct kernel_builder *k, const char *type, const char *preferred,
                      const char *call);
/* A name that is unique within the kernel. */
const char *free_name(const struct kernel_builder *k, const char *preferred);
/* An inner value's element, or NULL; what it is from here on; a variable of its own, with a name
   like `preferred`. value NONE: an index. */
const struct expr *temporary_of(const struct kernel_builder *k, int value);
void name_temporary(struct kernel_builder *k, int value, const struct expr *element);
const char *new_temporary(struct kernel_builder *k, int value, const char *preferred);

/* ------------------------------------------------------------------------------- kernel_file.c */

/* The statement of an operation that has a kernel of its own. */
char *file_kernel_call(const struct op *op, int rank);
void reserve_file_name(const struct op *of, int on);
/* A text's words, separated by one blank each. */
char *in_one_line(const char *begin, const char *end);

/* --------------------------------------------------------------------------------- kernel_ir.c */

struct code *new_code(void);
/* These add a node at the end. */
void add_declaration(struct code *c, const char *type, const char *name, const struct expr *value);
/* drop_unnamed() drops it if no later code names it. */
void add_lazy_declaration(struct code *c, const char *type, const char *name,
                          const struct expr *value);
void add_assignment(struct code *c, const struct expr *to, const struct expr *value);
void add_reduction(struct code *c, const struct op *op, const struct expr *to,
                   const struct expr *term);
void add_combine(struct code *c, const struct op *op, const struct expr *name, int threads);
void add_statement(struct code *c, const struct expr *call);
/* The code that runs under the condition; NULL: always. */
struct code *add_condition(struct code *c, const struct expr *condition);
struct statement *add_for(struct code *c, const char *type, const char *variable,
                          const struct expr *from, const struct expr *below);
void append_code(struct code *c, const struct code *more);
struct code *copy_code(const struct code *c);
/* Whether any expression has the name. */
bool code_names(const struct code *c, const char *name);
void drop_unnamed(struct code *c);
/* Calls `visit` with each expression, in the order of the text. */
void each_expression(const struct code *c, void (*visit)(const struct expr **e, void *with),
                     void *with);
/* Whether it is a whole number. */
bool is_size(const struct expr *e);
/* A text that is equal for kernels that differ only in the names within them and, without sizes, in
   the whole numbers in their expressions. */
char *signature_of(const struct kernel_builder *k, const struct code *c, bool sizes);

/* -------------------------------------------------------------------------------- open_loops.c */

/* Whether the target runs kernels in blocks of threads. */
bool has_blocks(void);
/* In C: opens the loops from `from` to before `to`. These functions return the code inside. */
struct code *open_loops(struct code *c, const struct loops *loops, int from, int to);
/* The outermost n, which threads share: always the same way. Inner ones are shared only if the
   outermost one has few iterations. */
struct code *open_shared_loops(struct code *c, const struct loops *loops, int n);
/* The loops from `from` on, the innermost vectorized; shared by threads if no loop is around them.
 */
struct code *open_inner_loops(struct code *c, const struct loops *loops, int from, bool shared);
/* Where rows are counted: "rows * 96", so many for each row. */
const struct expr *counted_rows(const struct loops *loops, int64_t of_row);
/* The number of parts in which threads share the outermost loop; the loop over the parts, and the
   outermost loop within a part. */
int64_t thread_parts(const struct loops *loops);
struct code *open_parts(struct code *c, const struct loops *loops);
struct statement *open_part(struct code *c, const struct loops *loops);
/* In blocks: "(int)blockIdx.x * 256 + (int)threadIdx.x", the number of a thread; the variables of
   the loops, which are for the first element of the thread's vector. */
const struct expr *converted_to(const char *type, const char *name);
const struct expr *thread_number(const char *type, int threads);
void add_thread(struct code *c, const struct loops *loops, int width);
/* A loop in which the threads of a block, or of all blocks, share the iterations of all reduced
   loops; the reduced loops: the outermost takes every `parts`-th iteration, from the block's row
   on. */
struct code *open_block_loop(struct code *c, const struct kernel_builder *k, int64_t parts);
struct code *open_block_part(struct code *c, const struct loops *loops, int64_t parts);

/* ------------------------------------------------------------------------------ partial_sums.c */

/* Adds a parameter for `parts` parts of each element of body[n]'s sum; returns its name. */
const char *add_parts(struct kernel_builder *k, int n, int64_t parts);
/* Stores a part of the current element of body[n]'s sum, or of a vector of neighbours; the part
   begins at the index `start` of `parts`. */
void store_part(struct code *c, struct kernel_builder *k, int n, const char *parts,
                const struct expr *start, const struct expr *sum);

/* ------------------------------------------------------------------------------ print_kernel.c */

/* The code as C, or as CUDA. */
void print_code(struct buffer *b, const struct code *c, int indent);

/* --------------------------------------------------------------------------------- reduction.c */

/* The neutral element of a reduction, in C: "0", "-INFINITY". */
const char *neutral_text(const struct op *op);
/* The type and the variable of a reduction in progress: "double", "sum_of"; the stored form of the
   result `name`. */
const char *accumulator_type(const struct op *op);
const char *result_name(struct kernel_builder *k, int n);
const struct expr *result_expr(struct kernel_builder *k, int n);
const struct expr *stored_result(const struct op *op, const char *name);
/* Before the loops: "double sum_of = 0;", or a vector for neighbouring results, `several` of them;
   in the loops: "sum_of += x[i];"; after them: "sum[j] = (float)sum_of;". A result that the kernel
   reads gets a name there. */
void add_starts(struct code *c, struct kernel_builder *k, const bool *these);
void add_vector_starts(struct code *c, struct kernel_builder *k, const bool *these,
                       int64_t several);
typedef const struct expr *place_of_term(struct kernel_builder *k, int n);
void add_terms(struct code *c, struct kernel_builder *k, const bool *these, place_of_term *place);
void add_results(struct code *c, struct kernel_builder *k, const bool *these);
/* The output element of a term: "sum[j]". */
const struct expr *output_place(struct kernel_builder *k, int n);
/* Reduces the numbers of the threads of a block, or of a warp, to one: "block_sum(sum_of)". */
void add_combines(struct code *c, struct kernel_builder *k, const bool *these, int threads);
/* The result of each part of the loops: "sum_part[part]", or for columns a row of results,
   "[part][j]"; then the sum of the parts, in their order. */
const struct expr *part_of_result(struct kernel_builder *k, int n, const struct expr *index);
void declare_parts(struct code *c, struct kernel_builder *k, const bool *these, int64_t parts,
                   int64_t columns);
void add_part_results(struct code *c, struct kernel_builder *k, const bool *these);
void combine_parts(struct code *c, struct kernel_builder *k, const bool *these, int64_t parts,
                   const struct expr *index);

/* ------------------------------------------------------------------------------------ rotary.c */

/* The call of the function for rotations, if the kernel is one; else NULL. */
char *rotary_call(const struct kernel_builder *k);

/* ------------------------------------------------------------------------------ share_bodies.c */

/* Before kernels are printed: those that differ only in sizes get one body. */
void share_bodies(void);

/* ------------------------------------------------------------------------------------ vector.c */

/* An element of a vector, "in_v[v]", if the current statement is in the loop over a vector and the
   operand is contiguous along it; else NULL. */
const struct expr *vector_element(struct kernel_builder *k, int value,
                                  const struct operand *operand, bool written);
/* Whether an operand can be read as a vector in dimension dim at a computed index; that element, at
   the index `at`, which is the same for the whole vector or is that of its first element; `where`:
   the condition under which it exists. */
bool reads_vector_at(const struct kernel_builder *k, int value, const struct operand *operand,
                     int dim);
const struct expr *indexed_vector(struct kernel_builder *k, int value,
                                  const struct operand *operand, int dim, const struct expr *at,
                                  const struct expr *where);
/* The code between the two is the loop over the elements of vectors: end_vector puts the loop
   around it, loads before it and stores after it. Vectors of one element have no loop. begin_vector
   returns the code to fill. */
struct code *begin_vector(struct kernel_builder *k);
void end_vector(struct code *c, struct kernel_builder *k, const struct code *body);
/* The variables of vectors that are kept from one stage to the next. */
void declare_kept_vectors(struct code *c, const struct kernel_builder *k, int64_t parts);
/* "in + i * 4", "in" */
const struct expr *place_after(const struct expr *base, const struct expr *index);
/* "vec<float, 4>" */
char *vector_type(const struct kernel_builder *k, const char *type);

/* ------------------------------------------------------------------------------------- zeros.c */

/* Sets the rank's part of a value to zero. */
char *zero_text(int value, int rank);
/* The statement that sets these bytes to zero. */
char *zeros_at_text(const char *at, int64_t bytes);
int64_t all_bytes(int value, int rank);

#endif
