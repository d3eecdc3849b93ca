/* kernel.h: the text of kernels. */
#ifndef TPGEN_KERNEL_H
#define TPGEN_KERNEL_H

#include "base/base.h"
#include "ir/ir.h"
#include "target/target.h"
#include "names/names.h"

/* How a CUDA kernel is launched, and what finishes its work. */
struct launch {
  int64_t blocks, rows; /* rows of blocks */
  int threads;
  char *then; /* the statements that add up its parts, or NULL */
};

/* ----------------------------------------------------------------------------------- element.c */

/* The element of the operation's output: "relu[i * 16 + j]". */
char *output_text(struct draft *k, const struct op *op);
/* An operation's element in C. What it needs before, it puts into b. */
char *element_text(struct buffer *b, struct draft *k, const struct op *op, int indent);
/* A line for each pointwise operation of those that are `made`; of elements, or of rows. */
void put_elements(struct buffer *b, struct draft *k, const bool *made, int indent);
/* Whether anything in the kernel reads what rows have one of. */
bool is_read_by_rows(const struct draft *k, int value);
/* What the element that an operation makes is called from here on: that of a variable, which is put
   into b, unless it has a name. */
const char *named_element(struct buffer *b, struct draft *k, const struct op *op,
                          const char *element, int indent);

/* -------------------------------------------------------------------------------- index_text.c */

/* Where the rank's part of a value begins in dimension `dim` of the whole: "25L *
   rank.coordinate[0]", the same text on all ranks; "0" where it is not cut. Of a rank without a
   part it says nothing. */
char *first_text(int value, int dim);
/* Where the part begins, times `factor`, that these cuts, one after the other, leave of n elements;
   "0" where there are none. The sizes of parts that are cut again may depend on the rank: then the
   program finds them out. */
char *begin_text(const int *cut, int ncut, int64_t n, int64_t factor);
/* By rows: the index within one: "j", "j * 4 + k". */
char *row_index_text(const struct loops *loops);
/* "i": the index in a dimension of the space that has a loop of its own, "0" where there is
   none. */
const char *variable_text(const struct loops *loops, int dim);
/* The innermost loop's variable: the index of a vector's first element. */
const char *innermost_variable(const struct loops *loops);
/* An element's place in an operand: "i * 16 + j"; in dimension `dim` at the index `at`, unless dim
   is NONE. */
char *index_text(const struct loops *loops, const struct operand *operand, int dim, const char *at);
/* The index of a value's first element in the whole: "64L * rank.coordinate[0]". */
char *flat_first_text(int value);
/* The loops' variables out of one number that counts over those that are reduced, or not; only what
   the body, if it is given, names. Along the innermost loop it counts every `step`-th element. */
void put_variables(struct buffer *b, const struct loops *loops, bool reduced, const char *number,
                   int step, const char *body, int indent);

/* ------------------------------------------------------------------------------------ kernel.c */

char *fused_call(const struct op *group, int rank);

/* -------------------------------------------------------------------------- kernel_arguments.c */

void find_arguments(struct draft *k);
/* Takes away the arguments that the body does not name: indices into what this rank has no part
   of. */
void drop_unused(struct draft *k, const char *body);
const char *argument_name(const struct draft *k, int value);
const char *argument_if_any(const struct draft *k, int value); /* or NULL */
/* What stands in the parentheses of the prototype and of the call; the latter after all else. */
char *parameters_text(const struct draft *k);
char *arguments_text(const struct draft *k);
/* A parameter that is no place in memory; what is called alike is one. */
const char *add_extra(struct draft *k, const char *type, const char *wanted, const char *call);
/* A name that is no other's within the kernel. */
const char *free_name(const struct draft *k, const char *wanted);

/* -------------------------------------------------------------------------------- kernel_cpu.c */

/* A kernel over as many elements is shared among threads. */
extern int64_t worth_threads;
char *cpu_body(struct draft *k);
void put_loop(struct buffer *b, const struct loops *loops, int n, int indent);
void close_loops(struct buffer *b, int n, int indent);

/* ------------------------------------------------------------------------------- kernel_cuda.c */

char *cuda_body(struct draft *k, struct launch *launch);

/* ------------------------------------------------------------------------------- kernel_file.c */

/* The statement of an operation that has a kernel of its own. */
char *file_kernel_call(const struct op *op, int rank);
/* The author of the file at hand is told what is wrong with it. */
_Noreturn void fault(const char *what);

/* ------------------------------------------------------------------------------- kernel_rows.c */

/* The body where rows are gone through together. */
char *cuda_rows_body(struct draft *k, struct launch *launch);

/* ------------------------------------------------------------------------------ partial_sums.c */

/* A parameter for the parts of body[n]'s sum, `parts` of each of its elements; gives its name. */
const char *add_parts(struct draft *k, int n, int64_t parts, struct launch *launch);
/* Stores a part of body[n]'s sum at hand, or of a vector of neighbouring ones; those of the part
   begin at the index `start` of `parts`. */
void put_part(struct buffer *b, struct draft *k, int n, const char *parts, const char *start,
              const char *sum, int indent);

/* --------------------------------------------------------------------------------- reduction.c */

/* What a reduction begins with, in C: "0", "-INFINITY". */
const char *neutral_text(const struct op *op);
/* Before the loops: "double sum_of = 0;", where floats are summed up in `float_type`; in the loops:
   "sum_of += x[i];"; after them: "sum[j] = (float)(sum_of);". */
/* The variable that a reduction's result is kept in; the statement that takes one more term into
   `to`; the result as it is stored, of what `name` is. */
const char *result_name(const struct draft *k, int n);
char *result_text(const struct op *op, const char *name);
/* The statements that start the accumulators, and that add a term to each. */
void put_starts(struct buffer *b, const struct draft *k, const bool *these, const char *float_type,
                int indent);
void put_terms(struct buffer *b, struct draft *k, const bool *these, int indent);
/* What is read inside the kernel gets a name there; `guard` stands before what stores it. */
void put_results(struct buffer *b, struct draft *k, const bool *these, const char *guard,
                 int indent);
/* In the loops, straight into the output: "sum[j] += x[i * 5 + j];". */
void put_terms_in_place(struct buffer *b, struct draft *k, const bool *these, int indent);
/* Makes one number of what the threads of a block have, or of a warp, if there are but 32 of them:
   "sum_of = block_sum(sum_of);". */
void put_block_results(struct buffer *b, const struct draft *k, const bool *these, int threads,
                       int indent);
/* What each part of the loops comes to, and one number of them all, in the order of the parts. */
void put_sum_parts(struct buffer *b, const struct draft *k, const bool *these, int64_t parts);
void put_part_results(struct buffer *b, const struct draft *k, const bool *these, int indent);
void put_parts_together(struct buffer *b, const struct draft *k, const bool *these, int64_t parts);
/* The same for columns; they begin, and are put together, in loops over a row. */
void put_column_parts(struct buffer *b, const struct draft *k, const bool *these, int64_t parts);
void put_column_starts(struct buffer *b, struct draft *k, const bool *these, bool parted,
                       int indent);
void put_column_terms(struct buffer *b, struct draft *k, const bool *these, int indent);
void put_columns_together(struct buffer *b, const struct draft *k, const bool *these, int64_t parts,
                          int indent);
/* "reduction(+ : sum_of)": for a loop that goes over several elements at once. */
char *simd_clauses(const struct draft *k, const bool *these);

/* ------------------------------------------------------------------------------------ vector.c */

/* An element of a vector, "in_v[v]", where what is written stands in the loop over one and the
   operand lies along it; else NULL. */
char *vector_element(struct draft *k, int value, const struct operand *operand, bool written);
/* The same of an operand that is read in dimension dim at the index `at`, which is the same for all
   of a vector or that of its first; where it is there at all. The first says whether it can be. */
bool reads_vector_at(const struct draft *k, int value, const struct operand *operand, int dim);
char *indexed_vector(struct draft *k, int value, const struct operand *operand, int dim,
                     const char *at, const char *where);
/* What is written between the two stands in the loop over the elements of vectors, which is put
   around it, with the loads before and the stores behind; where they have one element, there is
   no loop. */
void begin_vector(struct draft *k);
void end_vector(struct buffer *b, struct draft *k, const char *body, int indent);
/* The variables of what is kept from one stage to the next. */
void put_kept_vectors(struct buffer *b, const struct draft *k, int64_t parts, int indent);
/* "in + i * 4", "in" */
char *place_text(const char *base, const char *index);
/* "vec<float, 4>" */
char *vector_type(const struct draft *k, const char *type);

/* ------------------------------------------------------------------------------------- zeros.c */

/* Sets the rank's part of a value to zero. */
char *zero_text(int value, int rank);
/* The statement that makes these bytes zeros. */
char *zeros_at_text(const char *at, int64_t bytes);
int64_t all_bytes(int value, int rank);

#endif
