/* kernel.h: the text of kernels. */
#ifndef TPGEN_KERNEL_H
#define TPGEN_KERNEL_H

#include "base/base.h"
#include "ir/ir.h"
#include "target/target.h"
#include "names/names.h"
#include "kernel/kernel_ir.h"

/* How a CUDA kernel is launched, and what finishes its work. */
struct launch {
  int64_t blocks, rows; /* rows of blocks */
  int threads;
  char *then; /* the statements that add up its parts, or NULL */
};

/* ------------------------------------------------------------------------------------- build.c */

/* The code of the kernel; its launch is found on the way. */
struct code *kernel_code(struct draft *k);

/* -------------------------------------------------------------------------------- build_rows.c */

/* The code where rows are gone through together. */
void add_rows(struct code *c, struct draft *k);

/* ----------------------------------------------------------------------------------- element.c */

/* The element of the operation's output: "relu[i * 16 + j]". */
char *output_text(struct draft *k, const struct op *op);
/* An operation's element in C. The statements that it needs before go into `before`. */
char *element_text(struct code *before, struct draft *k, const struct op *op);

/* ------------------------------------------------------------------------- element_statements.c */

/* A statement for each pointwise operation of those that are `made`; of elements, or of rows. */
void add_elements(struct code *c, struct draft *k, const bool *made);
/* Whether anything in the kernel reads what rows have one of. */
bool is_read_by_rows(const struct draft *k, int value);
/* What the element that an operation makes is called from here on: that of a variable, which is
   declared, unless it has a name. */
const char *named_element(struct code *c, struct draft *k, const struct op *op,
                          const char *element);

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
/* Declares the loops' variables, made of one number that counts over those that are reduced, or
   not; if `lazy`, only what is named behind. Along the innermost loop it counts every `step`-th
   element. */
void declare_variables(struct code *c, const struct loops *loops, bool reduced, const char *number,
                       int step, bool lazy);

/* ------------------------------------------------------------------------------------ kernel.c */

char *fused_call(const struct op *group, int rank);
/* Reserves the name that its kernel wants. */
void reserve_fused_name(const struct op *group, int rank);
/* The call of a kernel; where it is a grid, of so many blocks of threads. */
char *kernel_call_text(const char *name, const char *blocks, int threads, const char *arguments);

/* -------------------------------------------------------------------------- kernel_arguments.c */

void find_arguments(struct draft *k);
/* Takes away the arguments that the body does not name: indices into what this rank has no part
   of. */
void drop_unused(struct draft *k, const struct code *body);
const char *argument_name(const struct draft *k, int value);
const char *argument_if_any(const struct draft *k, int value); /* or NULL */
/* What stands in the parentheses of the prototype and of the call; the latter after all else. */
char *parameters_text(const struct draft *k);
char *arguments_text(const struct draft *k);
/* A parameter that is no place in memory; what is called alike is one. */
const char *add_extra(struct draft *k, const char *type, const char *wanted, const char *call);
/* A name that is no other's within the kernel. */
const char *free_name(const struct draft *k, const char *wanted);
/* What an inner value's element is called, or NULL; from here on it is called `name`; from here on
   it has a name of its own, like `wanted`. value NONE: an index. */
const char *temporary_of(const struct draft *k, int value);
void name_temporary(struct draft *k, int value, const char *name);
const char *new_temporary(struct draft *k, int value, const char *wanted);

/* ------------------------------------------------------------------------------- kernel_file.c */

/* The statement of an operation that has a kernel of its own. */
char *file_kernel_call(const struct op *op, int rank);
void reserve_file_name(const struct op *of, int on);

/* ------------------------------------------------------------------------- kernel_file_holes.c */

/* The operation whose kernel is written, on which rank, what its rule says of it, and how much of
   each letter the rank has: from one begin_file_kernel to the next. */
struct file_kernel {
  const struct op *op;
  int rank;
  struct letters letters;
  int64_t local[MAX_LETTERS]; /* behind find_local_sizes */
};
extern struct file_kernel file_kernel;
void begin_file_kernel(const struct op *op, int rank);
/* Finds how much of each letter the rank has: no part is empty. */
void find_local_sizes(void);
/* Its operands one after the other, the inputs, then the outputs: how many, a value, and the
   letters of its dimensions. */
int file_operands(void);
int file_operand(int i);
const struct axis *file_axes(int i);
/* The text of its file with the holes filled. */
char *filled_file(void);
/* The author of the file is told what is wrong with it. */
_Noreturn void fault(const char *what);

/* --------------------------------------------------------------------------------- kernel_ir.c */

struct code *new_code(void);
/* These add a node at the end. */
void add_declaration(struct code *c, const char *type, const char *name, const char *value);
/* Left out by drop_unnamed() where nothing behind it names it. */
void add_lazy_declaration(struct code *c, const char *type, const char *name, const char *value);
void add_assignment(struct code *c, const char *to, const char *value);
void add_reduction(struct code *c, const struct op *op, const char *to, const char *term);
void add_combine(struct code *c, const struct op *op, const char *name, int threads);
void add_statement(struct code *c, const char *call);
/* The code that runs under the condition, which is always so if it is "". */
struct code *add_condition(struct code *c, const char *condition);
struct statement *add_for(struct code *c, const char *type, const char *variable, const char *from,
                          const char *below);
void append_code(struct code *c, const struct code *more);
struct code *copy_code(const struct code *c);
/* Whether any expression has the word. */
bool code_names(const struct code *c, const char *word);
void drop_unnamed(struct code *c);
/* Calls `visit` with each expression, in the order of the text. */
void each_expression(const struct code *c, void (*visit)(const char **expression, void *with),
                     void *with);
/* Where the token at c ends: a name or another word; a whole number; any other sign. */
enum token { WORD_TOKEN, SIZE_TOKEN, SIGN_TOKEN };
const char *next_token(const char *c, enum token *token);
/* A text that is the same for kernels which differ in the names within them alone; and, without
   sizes, in whole numbers in their expressions. */
char *signature_of(const struct draft *k, const struct code *c, bool sizes);

/* -------------------------------------------------------------------------------- open_loops.c */

/* Whether the target runs kernels in blocks of threads. */
bool has_blocks(void);
/* In C: the loops from `from` on, before `to`. These functions give the code within. */
struct code *open_loops(struct code *c, const struct loops *loops, int from, int to);
/* The outermost n, which threads share, always in the same way: the inner of them are taken in only
   where the outermost alone has few iterations. */
struct code *open_shared_loops(struct code *c, const struct loops *loops, int n);
/* The loops from `from` on, the innermost of them over several elements at once; shared by threads,
   where no loop around them is. */
struct code *open_inner_loops(struct code *c, const struct loops *loops, int from, bool shared);
/* In how many parts threads share the outermost loop; the loop over them, and the outermost loop
   within a part. */
int64_t thread_parts(const struct loops *loops);
struct code *open_parts(struct code *c, const struct loops *loops);
struct statement *open_part(struct code *c, const struct loops *loops);
/* In blocks: "(int)blockIdx.x * 256 + (int)threadIdx.x", the number of a thread; the variables of
   the loops, of which each thread has a vector's first element. */
char *thread_number(const char *type, int threads);
void add_thread(struct code *c, const struct loops *loops, int width);
/* A loop in which the threads of a block, or of all blocks, share the iterations of all reduced
   loops; the reduced loops, the outermost of them every `parts`-th iteration, by the row of the
   block. */
struct code *open_block_loop(struct code *c, const struct draft *k, int64_t parts);
struct code *open_block_part(struct code *c, const struct loops *loops, int64_t parts);

/* ------------------------------------------------------------------------------ partial_sums.c */

/* A parameter for the parts of body[n]'s sum, `parts` of each of its elements; gives its name. */
const char *add_parts(struct draft *k, int n, int64_t parts);
/* Stores a part of body[n]'s sum at hand, or of a vector of neighbouring ones; those of the part
   begin at the index `start` of `parts`. */
void store_part(struct code *c, struct draft *k, int n, const char *parts, const char *start,
                const char *sum);

/* ------------------------------------------------------------------------------ print_kernel.c */

/* The code as C, or as CUDA. */
void print_code(struct buffer *b, const struct code *c, int indent);

/* --------------------------------------------------------------------------------- reduction.c */

/* What a reduction begins with, in C: "0", "-INFINITY". */
const char *neutral_text(const struct op *op);
/* The type and the variable of a reduction while it goes on: "double", "sum_of"; its result as it
   is stored, of what `name` is. */
const char *accumulator_type(const struct op *op);
const char *result_name(struct draft *k, int n);
char *result_text(const struct op *op, const char *name);
/* Before the loops: "double sum_of = 0;", or a vector for neighbouring results, `several` of them;
   in the loops: "sum_of += x[i];"; after them: "sum[j] = (float)sum_of;". What is read inside the
   kernel gets a name there. */
void add_starts(struct code *c, struct draft *k, const bool *these);
void add_vector_starts(struct code *c, struct draft *k, const bool *these, int64_t several);
typedef const char *place_of_term(struct draft *k, int n);
void add_terms(struct code *c, struct draft *k, const bool *these, place_of_term *place);
void add_results(struct code *c, struct draft *k, const bool *these);
/* The place of a term in the output: "sum[j]". */
const char *output_place(struct draft *k, int n);
/* Makes one number of what the threads of a block have, or of a warp: "block_sum(sum_of)". */
void add_combines(struct code *c, struct draft *k, const bool *these, int threads);
/* What each part of the loops comes to: "sum_part[part]", or for columns a row of them,
   "[part][j]"; and one number of them all, in the order of the parts. */
const char *part_text(struct draft *k, int n, const char *index);
void declare_parts(struct code *c, struct draft *k, const bool *these, int64_t parts,
                   int64_t columns);
void add_part_results(struct code *c, struct draft *k, const bool *these);
void combine_parts(struct code *c, struct draft *k, const bool *these, int64_t parts,
                   const char *index);

/* ------------------------------------------------------------------------------ share_bodies.c */

/* Before the kernels are written: those that differ by sizes alone get one body. */
void share_bodies(void);

/* ------------------------------------------------------------------------------------ vector.c */

/* An element of a vector, "in_v[v]", where what is written stands in the loop over one and the
   operand lies along it; else NULL. */
char *vector_element(struct draft *k, int value, const struct operand *operand, bool written);
/* The same of an operand that is read in dimension dim at the index `at`, which is the same for all
   of a vector or that of its first; where it is there at all. The first says whether it can be. */
bool reads_vector_at(const struct draft *k, int value, const struct operand *operand, int dim);
char *indexed_vector(struct draft *k, int value, const struct operand *operand, int dim,
                     const char *at, const char *where);
/* What is built between the two stands in the loop over the elements of vectors, which is put
   around it, with the loads before and the stores behind; where they have one element, there is
   no loop. The first gives the code for it. */
struct code *begin_vector(struct draft *k);
void end_vector(struct code *c, struct draft *k, const struct code *body);
/* The variables of what is kept from one stage to the next. */
void declare_kept_vectors(struct code *c, const struct draft *k, int64_t parts);
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
