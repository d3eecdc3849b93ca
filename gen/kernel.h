/* kernel.h: what the files share that write the kernels of element-wise operations and reductions:
   kernel.c, space.c, element.c, kernel_cpu.c, kernel_cuda.c. */
#ifndef KERNEL_H
#define KERNEL_H

#include "tpgen.h"

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
  struct buffer lead; /* lines before the loads that the loop's text asks for */
  int n, room;
  struct vector *list;
};

/* A kernel while it is written. */
struct draft {
  const struct op *group;
  int rank;
  bool numbered; /* what it is given has a number for a name: kernels alike have the same text */
  struct stages stages;
  const char *guard; /* before what stores something that a row has one of */
  struct loops loops;
  int nargument, argument_room, nextra, extra_room, ntemporary, temporary_room;
  struct argument *argument;
  struct extra *extra;
  struct temporary *temporary;
  struct vectors vectors;
};

/* space.c */

/* How one operand lies in the rank's memory: along which dimension of the space each of its own
   runs, or NONE. */
struct operand {
  int value, ndim, along[MAX_DIMS];
  int64_t size[MAX_DIMS], stride[MAX_DIMS];
};
/* Input i of an operation, or its output: i == op->nin. */
void find_operand(const struct op *op, const struct letters *l, int i, int rank,
                  struct operand *operand);
void find_loops(struct draft *k);
/* The dimension of an operation's space that has the letter of this name, or NONE: of size 1. */
int space_dimension(const struct op *op, const struct letters *l, char name);
/* Whether a name in a row's expression, behind its `$`, is a letter of the rule. */
bool names_letter(const struct op *op, const char *name);
/* By rows: how many elements the rank has of one, and the index within it: "j", "j * 4 + k". */
int64_t row_elements(const struct loops *loops);
char *row_index_text(const struct loops *loops);
/* The innermost loop, or NONE; how far apart an operand's neighbours along a loop are. */
int innermost_loop(const struct loops *loops);
int64_t stride_along(const struct loops *loops, const struct operand *operand, int n);
/* "i": the index in a dimension of the space that has a loop of its own, "0" where there is
   none. */
const char *variable_text(const struct loops *loops, int dim);
/* The innermost loop's variable: the index of a vector's first element. */
const char *innermost_variable(const struct loops *loops);
/* An element's place in an operand: "i * 16 + j"; in dimension `dim` at the index `at`, unless dim
   is NONE. */
char *index_text(const struct loops *loops, const struct operand *operand, int dim, const char *at);
/* Whether a dimension is cut; a value's first element in the whole: "64L * rank.coordinate[0]". */
bool is_cut(int value, int dim);
char *flat_first_text(int value);

/* lines.c */

/* A statement, broken where it is too long for a line. */
void put_statement(struct buffer *b, int indent, const char *statement);
/* A body without the braces around one statement that a line holds. */
char *without_braces(const char *body);
/* A text, of which the lines that are too long are broken, but for comments and those of the
   preprocessor; of what is not ours, only the heads of functions. */
char *wrapped_lines(const char *s, bool ours);

/* arguments.c */

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

/* element.c */

/* The element of the operation's output: "relu[i * 16 + j]". */
char *output_text(struct draft *k, const struct op *op);
/* An operation's element in C. What it needs before, it puts into b. */
char *element_text(struct buffer *b, struct draft *k, const struct op *op, int indent);
/* An expression as a factor: in brackets where it has a sign outside of any. */
char *in_brackets(const char *s);
/* A line for each pointwise operation of those that are `made`; of elements, or of rows. */
void put_elements(struct buffer *b, struct draft *k, const bool *made, int indent);
/* Whether anything in the kernel reads what rows have one of. */
bool is_read_by_rows(const struct draft *k, int value);
/* From here on an inner value is called so: "const float mean = ". */
const char *new_temporary(struct draft *k, int value, const char *wanted);
/* What the element that an operation makes is called from here on: that of a variable, which is put
   into b, unless it has a name. */
const char *named_element(struct buffer *b, struct draft *k, const struct op *op,
                          const char *element, int indent);

/* reduction.c */

/* Each of these works on some of the kernel's operations: these[n] says whether on body[n]. */

bool has_reductions(const struct op *group);
/* What a reduction begins with, in C: "0", "-INFINITY". */
const char *neutral_text(const struct op *op);
/* Before the loops: "double sum_of = 0;", where floats are summed up in `float_type`; in the loops:
   "sum_of += x[i];"; after them: "sum[j] = (float)(sum_of);". */
/* The variable that a reduction's result is kept in; the statement that takes one more term into
   `to`; the result as it is stored, of what `name` is. */
const char *result_name(const struct draft *k, int n);
char *term_text(const struct op *op, const char *to, const char *term);
char *result_text(const struct op *op, const char *name);
/* Whether it adds up floats. */
bool is_float_sum(const struct op *op);
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
void put_parts(struct buffer *b, const struct draft *k, const bool *these, int64_t parts);
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

/* kernel_cpu.c, kernel_cuda.c: the body of the function, without its braces. */

/* A kernel over as many elements is shared among threads. */
extern int64_t worth_threads;
char *cpu_body(struct draft *k);
/* Whether there is anything to do for this rank. */
bool has_rows(const struct draft *k);
/* How a CUDA kernel is launched, and what finishes its work. */
struct launch {
  int64_t blocks, rows; /* rows of blocks */
  int threads;
  char *then; /* the statements that add up its parts, or NULL */
};
char *cuda_body(struct draft *k, struct launch *launch);
void put_loop(struct buffer *b, const struct loops *loops, int n, int indent);
void close_loops(struct buffer *b, int n, int indent);
/* How many loops are outside all reduced ones, or NONE if a reduced loop is around a kept one. */
int kept_outside(const struct loops *loops);

/* vector.c */

/* How many elements of all that lies along the innermost loop can be read at once: 8, 4, 2, or
   1. */
int vector_width(const struct draft *k);
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
/* Of what is kept from one stage to the next: the variables; how many floats a thread has of it. */
void put_kept_vectors(struct buffer *b, const struct draft *k, int64_t parts, int indent);
int64_t kept_elements(const struct draft *k);
/* "in + i * 4", "in" */
char *place_text(const char *base, const char *index);
/* "vec<float, 4>" */
char *vector_type(const struct draft *k, const char *type);

/* kernel_rows.c: the body where rows are gone through together; in how many parts it leaves
   sums. */
char *cuda_rows_body(struct draft *k, struct launch *launch);
int64_t cuda_rows_parts(const struct draft *k);
/* The loops' variables out of one number that counts over those that are reduced, or not; only what
   the body, if it is given, names. Along the innermost loop it counts every `step`-th element. */
void put_variables(struct buffer *b, const struct loops *loops, bool reduced, const char *number,
                   int step, const char *body, int indent);
/* The product of the sizes of the loops that are reduced, or not. */
int64_t count_of(const struct loops *loops, bool reduced);

/* parts.c: sums that blocks have parts of, which are added up when all are there. */

/* Whether body[n] is a sum that ends with the kernel, which is in parts where any is. */
bool ends_in_parts(const struct draft *k, int n);
/* A parameter for the parts of body[n]'s sum, `parts` of each of its elements; gives its name. */
const char *add_parts(struct draft *k, int n, int64_t parts, struct launch *launch);
/* Stores a part of body[n]'s sum at hand, or of a vector of neighbouring ones; those of the part
   begin at the index `start` of `parts`. */
void put_part(struct buffer *b, struct draft *k, int n, const char *parts, const char *start,
              const char *sum, int indent);
/* How many floats a kernel stores in as many parts. */
int64_t room_of_parts(const struct draft *k, int64_t parts);

/* update.c */
char *update_call(const struct op *op, int rank);

#endif
