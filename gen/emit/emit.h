/* emit.h: the text of statements: products, collectives, copies, updates, and their comments. */
#ifndef TPGEN_EMIT_H
#define TPGEN_EMIT_H

#include "util/util.h"
#include "ir/ir.h"
#include "sharding/sharding.h"
#include "target/target.h"
#include "function_passes/function_passes.h"
#include "naming/naming.h"
#include "kernel/kernel.h"

/* A library's names of types and reductions. */
struct library_words {
  const char *type[F64 + 1], *reduction[MIN + 1], *reduction_of_bf16[MIN + 1];
  const char *in_place; /* the input of an in-place call; "": the place itself */
  const char *count;    /* the type of a count */
};

/* ----------------------------------------------------------------------------- function_head.c */

/* A function's name in the program, for the size of micro-batches at hand. */
const char *function_name(const struct function *f);
const char *part_comment(const struct function *f);
/* Whether a step ends before its update where rows by expert exceed their capacity, on any rank.
   With streams the host does not know the number of rows. */
bool ends_early(void);
/* Whether an operation's statement may have numbers of the step; whether a function takes it. */
bool takes_numbers(const struct op *op);
bool takes_step(const struct function *f);

/* ----------------------------------------------------------------------------- stage_actions.c */

/* In a pipeline: whether functions of the stage touch values in flight of stage `of`. */
bool touches_slots(int stage, int of);
/* The function that begins an action of the stage; the text of those of all stages here, and that
   of the variables of their slots; "" without a pipeline. */
const char *begin_action_name(int stage);
char *begin_actions_text(void);
char *slots_text(const char *own_static);

/* The actions of a step in a pipeline: those of the rank's schedule, and the receives that are
   posted ahead of them. */
char *actions_text(void);
/* In a validation: the forwards of all micro-batches. */
char *forwards_text(const char *t);
/* Whether a stage's function has receives that are posted ahead, and the function that does so. */
bool has_posts(const struct function *f);
const char *post_name(const struct function *f);
/* The parameters of begin_action, each after its type: "int of, int slot"; without: "of, slot". */
char *action_parameters(const char *type);

/* ---------------------------------------------------------------------------------- transfer.c */

/* The text of a send or a receive; and the text that posts a receive ahead. */
char *transfer_text(const struct op *op, int rank);
char *post_text(const struct op *op, int rank);
/* The waits of a forward for sends, before it takes a slot of the arena again; and those of a step
   before its update. */
char *awaits_sent_text(const struct function *f, int rank);
char *awaits_all_sent_text(void);
/* The events of a program, of overlapped collectives and of transfers. */
int program_events(void);

/* -------------------------------------------------------------------------------- collective.c */

/* The statement of a collective, and of its await. */
char *collective_text(const struct op *op, int rank);
char *await_text(const struct op *op, int rank);
/* Whether the await of a bucket copies its chunks to their places. */
bool awaits_copies(const struct op *op);
/* The tables of a rank's exchanges. */
char *exchanges_text(int rank);
/* "rank->exchange[0]": the row of that table for an exchange in micro-batches of the size that is
   written. */
const char *exchange_row_text(const struct op *op);
/* The definition of an array in the program: for each member a count, or, with `starts`, an offset.
   Members with nothing at the end of the list are left out: C makes them 0. */
char *list_text(const char *type, const char *name, const int64_t *n, int ranks, bool starts);

/* ------------------------------------------------------------------------------ row_exchange.c */

/* The call of an exchange of rows by expert, and that of OP_clamp_to_capacity; the table
   row_bounds[]. */
char *row_exchange_text(const struct op *op, int rank);
char *clamp_to_capacity_text(const struct op *op, int rank);
char *row_bounds_text(int rank);

/* ------------------------------------------------------------------------------------ copies.c */

/* The statement of an operation that moves bytes within a rank's memory. */
char *copies_text(const struct op *op, int rank);
/* The copy of the input to the result, of as many bytes; "" where both have the same place. */
char *same_bytes_text(const struct op *op, int rank);

/* ---------------------------------------------------------------------------------- describe.c */

/* The operations that run beside a collective, for a reader: "d_wq, d_wk and 2 more", each by its
   result as `name` calls it; "nothing". */
char *beside_text(const struct op *op, const char *(*name)(int value));
/* Layouts of an operation's inputs and outputs: "S(1), S(0) -> S(1)". */
char *layouts_text(const struct op *op);
/* The facts that a reader needs before the statement of an operation. */
char *comment_text(const struct op *op);
/* The values that a bucket reduces: "7 gradients", or the names of others. */
char *reduced_text(const struct op *op);
/* The operations between a collective and its await that compute something. */
struct list beside(const struct op *op);
/* An operation in reports: a loop by its function, all others by their results. */
const char *called(const struct op *op, const char *(*name)(int value));

/* ---------------------------------------------------------------------------------- functions.c */

/* All functions of a step, down to `step` itself; by operation, its statement in them. */
char *functions_text(int rank);
const char *const *statements(int size);
/* Whether the loss is whole after the forward; otherwise it is whole only in the update. */
bool can_validate(void);
/* Whether it has work before the first step. */
bool has_constants(void);

/* -------------------------------------------------------------------------------- gemm_table.c */

/* For a CUDA program. Empties the table; gives the row of these fields its name, which begins
   with the desired one; the table, and the text that hands it to the runtime. */
void forget_products(void);
const char *add_product(const char *preferred, const char *fields);
char *product_table(void);
char *product_list(void);

/* ----------------------------------------------------------------------------------- library.c */

/* That of the target. */
const struct library_words *library(void);
const char *library_type(enum type t);
const char *library_reduction(enum reduction r, enum type t);
/* The stream on which a collective runs. */
const char *collective_stream(const struct op *op);
/* The plan's line, with the file if it is not the plan's own. */
char *plan_line_text(int line);
/* The plan's error if a call of the library cannot count `total` elements. */
void check_count(int line, int64_t total);

/* ------------------------------------------------------------------------------------ matmul.c */

/* The statement of a product. */
char *matmul_text(const struct op *op, int rank);
/* The statement of products that are one. */
char *products_text(const struct op *op, int rank);
/* The statement of a product with an epilogue. */
char *epilogue_text(const struct op *op, int rank);

/* ----------------------------------------------------------------------------------- packing.c */

/* The number of segments of a packed collective, and the call with their table; where the rank's
   own chunk begins; the copies, and the call with those before it and, with `out`, after it. */
int count_segments(const struct op *op, int rank);
char *with_segments(const struct op *op, int rank, const char *call);
const char *own_chunk_text(const struct op *op);
char *copies_in_text(const struct op *op, int rank);
char *copies_out_text(const struct op *op, int rank);
char *with_copies(const struct op *op, int rank, const char *call, bool out);

/* ----------------------------------------------------------------------------------- prepare.c */

/* The function `prepare`, "" where a program needs none. */
char *prepare_text(void);

/* ------------------------------------------------------------------------------- update_text.c */

/* The lines of a kernel that updates elements. */
struct update_lines {
  const char *parameters;            /* of the kernel */
  const char *clip;                  /* the factor that scales gradients */
  const char *numbers;               /* the numbers of the step, from memory */
  struct buffer loads, body, stores; /* those of a kernel of vectors, and the lines between */
};
struct update_lines lines_of_update(const struct op *update, int width);
/* The numbers of the step as the call of the kernel gives them: ", keep, rate". */
char *step_number_arguments(const struct optimizer *o);

/* --------------------------------------------------------------------------------- rank_file.c */

/* rank<N>.c of a rank. `step`: its program, "step_1"; `shown`: the tensors' names in comments;
   `states`: see find_state_rows. */
char *rank_text(int rank, const char *step, const struct stacks *tensors, const char *const *shown,
                const int *states);

/* --------------------------------------------------------------------------------- statement.c */

/* The statement that runs a fused operation or an update. It adds the kernel to the program, unless
   the program has it already. */
char *kernel_call(const struct op *op, int rank);
/* Reserves the names of the kernels of the rank's program, before its functions are written. */
void reserve_kernel_names(int rank);
/* The statement of any operation, "" where this rank has nothing to do. */
char *statement_text(const struct op *op, int rank);

/* ------------------------------------------------------------------------------ tensor_table.c */

/* The tensors that the runtime fills, reads and writes, in the order of its table; all ranks have
   one order. */
const struct stacks *find_tensors(void);
/* The shape of the tensor that holds the value in files, and the beginning of the rank's part in
   it: a state has the layout of its parameter. */
struct shape file_shape(int value);
struct shape file_start(int value, const int coordinate[MAX_MESH]);
char *tensors_text(const struct stacks *tensors, int rank);
/* By tensor: the number of states from there on that share one row, those of a parameter; 0: the
   tensor has a row of its own. */
const int *find_state_rows(const struct stacks *tensors, int rank);
/* The macros that its rows of the optimizer's states are written with. */
char *states_macro(const struct stacks *tensors);
/* The table of index uses: the numbers that are used as indices; "" without any. */
char *index_uses_text(const struct stacks *tensors);
/* Whether some tensors are parts of larger ones in files of others; and the table of these, or "".
 */
bool has_joined(const struct stacks *tensors);
char *joined_text(const struct stacks *tensors);
/* A name as in files, as a C string: bytes that are not plain are escaped. */
char *string_text(const char *s);
/* "2, 64"; of a scalar "1". */
char *sizes_text(struct shape s);

/* ------------------------------------------------------------------------------------ update.c */

/* The statements that sum the squares of gradients, and that make the norm of their sum. */
char *squares_text(const struct op *op, int rank);
char *norm_text(const struct op *op);
/* The call that updates parameters, and the name of its kernel without the size. */
const char *update_name(const struct op *op);
/* The statement that stores a number of the step where operations read it. */
char *step_number_text(const struct op *op);
char *update_call(const struct op *op, int rank);

#endif
