/* ir.h: the graph and every question about it. graph.h has its data, ops.h its operators. */
#ifndef TPGEN_IR_H
#define TPGEN_IR_H

#include "ir/graph.h"
#include "ir/decisions.h"
#include "ir/machine.h"
#include "ir/name_groups.h"
#include "ir/shard.h"
#include "ir/rows.h"
#include "ir/rule_text.h"

/* ------------------------------------------------------------------------------------ access.c */

/* The axes of operand i: see op.h. */
const struct axis *operand_axes(const struct op *op, const struct letters *l, int i);
/* The values that an operation reads and writes in memory, including those of its body. A fused
   kernel's inner values are neither read nor written. They return how many; list has room for
   op_width(op). */
int op_reads(const struct op *op, int *list);
int op_writes(const struct op *op, int *list);
int op_width(const struct op *op);
/* The values that a pending collective reads and writes until its await. A bucket that is packed
   before and unpacked at its await touches only the buffer and the parts that it leaves in place.
   op_makes gives all that an operation writes until its await; for an operation that is not
   pending, the same as op_writes. */
int pending_reads(const struct op *op, int *list);
int pending_writes(const struct op *op, int *list);
int op_makes(const struct op *op, int *list);
/* The same; each list serves until its function is called again. */
struct list values_read(const struct op *op);
struct list values_written(const struct op *op);
struct list values_made(const struct op *op);
bool reads_value(const struct op *op, int value);
/* Whether the await of a bucket copies its chunks to their places. */
bool copies_late(const struct op *op);
/* Which chunk of the value the operation touches; NONE: all of it. */
int piece_touched(const struct op *op, int value);
/* By parameter: the SUMS value that a step's first batch begins with, or NONE. */
const int *sums_by_parameter(void);
bool holds_pieces(int value);

/* ------------------------------------------------------------------------------- collectives.c */

extern const struct collective_row collective_row[OP_COUNT];
bool is_collective(enum op_kind k);
/* Whether it makes a whole of shards, or shards of a sum; whether each member sends or gets its
   shard, from which counts follow. */
bool gathers_shards(enum op_kind k);
bool scatters_sum(enum op_kind k);
bool moves_shards(enum op_kind k);
int sharded_value(const struct op *op);
int whole_value(const struct op *op);

/* --------------------------------------------------------------------------------- dim_order.c */

/* The dimension at this place in memory, from the outermost on, and the place of a dimension. */
int dimension_at(int value, int place);
int dimension_place(int value, int dim);
/* The dim order with one of `ndim` dimensions outermost and the others as written; and its text:
   "dimension 1 outermost". */
unsigned moved_to_front(int dim, int ndim);
const char *order_text(const struct value *v);
/* By dimension: its stride in elements, in the rank's part. */
void local_strides(int value, int rank, int64_t stride[MAX_DIMS]);
/* For a part of a concat buffer: the additional bytes before it if each part were contiguous. */
int64_t bytes_before(int value);
/* Whether two values have the same bytes: one storage, one offset in the arena. */
bool same_place(int a, int b);
/* A dim order has three bits for each place, the outermost first: the dimension at that place. */
unsigned order_with_dimension(unsigned order, int place, int dim);

/* --------------------------------------------------------------------------------- early_end.c */

/* Records, once, that the search for `what` in the pass `where` ended after so many of `unit`:
   something better may exist. */
void ended_early(const char *where, const char *what, int64_t most, const char *unit);

/* -------------------------------------------------------------------------------------- edit.c */

/* The name, with a number appended if a function has that name already. */
const char *free_function_name(const char *preferred);
/* How loop_carried.c and last_iteration.c change functions: an await of the collective; a call
   of the function for an iteration; a part of a body, of these operations and with this suffix;
   the function with an operation more, or less. */
int await_of(int collective);
int call_for(int function, enum iteration iteration, int distance, const struct op *collective);
int add_part(int body, const char *name, const struct list *op);
void insert(struct function *f, int at, int op);
void leave_out_of(struct function *f, int op);
/* The program as it is, with its schedule, for a trial to go back to. */
struct edit_state remember_program(void);
void go_back(const struct edit_state *to);
/* The flat program as it is, for a trial to go back to: the trial changes copies. `room`, empty
   before the first trial, keeps their memory for the next one. */
struct graph remember_flat_program(struct graph *room);
void return_to_flat_program(const struct graph *then, struct graph *room);

/* ------------------------------------------------------------------------------------- graph.c */

/* How to add to the graph. All give the index of what they added. */
int add_value(enum role role, const char *name, enum type type, struct shape shape, int module,
              int line);
int add_module(const char *name, const char *class_name, int parent, int line);
/* An operation without a new value, not in the order yet; an operation appended to the order. */
int store_op(struct op op);
void append_to_order(int op);
/* The group over some dimensions of the mesh, a bit for each, in their order; the same in
   another order. */
int add_group(unsigned dims);
int add_ordered_group(int n, const int *dim);
/* The group for sends from stage `from` of a pipeline to stage `to`. */
int add_edge(int from, int to);
/* Whether the dimension of the mesh is the inner one of a dimension that was split. */
bool is_within(int mesh_dim);
/* Adds an operation and the value it makes, whose shape and type follow from the inputs and the
   attributes in `op` (kind, nin, in, equation, scalar, dims, keep, module, line, phase are
   given). A misfit is the plan's error at op->line. */
int make_op(struct op op);   /* gives the operation; its value is graph->op[i].out */
int append_op(struct op op); /* make_op, then at the end of the order; gives the value */
/* For operators whose output's shape is not a function of the inputs: expand, full. */
int append_op_shaped(struct op op, struct shape shape);
/* The shapes of all it makes, in order. */
int append_op_outputs(struct op op, const struct shape *shape, int nout);
int make_op_outputs(struct op op, const struct shape *shape, int nout); /* gives the first value */
/* The shapes and types of the values from `like` on, which such an operation made. */
int append_op_like(struct op op, int like);
/* An operation that writes in place and makes no value. */
int append_update(struct op op);
/* A parameter, or a cache: it belongs to a module, and is kept from step to step. */
bool is_of_module(const struct value *v);
/* Whether the value has the role of a parameter's gradient, or of its sum over batches. */
bool is_gradient(int value);
/* Whether it is a sum over the batches of a step that a metric is made of. */
bool is_of_metric(int value);
/* Whether a value shares the bytes of its operation's input; and the value that this one is a
   moved, reshaped, reordered or cast form of, where it has no name of its own. */
bool has_name_of_op(int value);
int shown_value(int value);
/* Whether the second parameter follows the first one directly in the struct. */
bool is_next_parameter(int one, int next);

/* ---------------------------------------------------------------------------------------- ir.c */

/* The one graph, and the plan's options, in memory that is shared with the process that reads
   the plan. */
extern struct graph *graph;
extern struct plan_options *plan_options;
/* Whether the graph is another one than at the last call with the same `of`: then a file must
   forget the data of the earlier graph that it keeps from call to call. */
bool is_other_graph(const struct graph **of);
/* If the graph is that of one place of a pipeline: the facts about all stages; else NULL. */
const struct all_stages *all_stages(void);
/* Opens the arena and creates the empty graph and default options in it. */
void graph_open(void);
/* Another empty graph, with default options. */
void another_graph(void);

/* ------------------------------------------------------------------------------- memory_plan.c */

/* A plan in which every value has its own storage and lives at no time; resets a plan to that. */
struct memory_plan *new_memory_plan(void);
void clear_memory_plan(struct memory_plan *plan);
/* From the pass `memory`; before it, from such a plan. */
struct allocation allocation_of(int value);
/* The allocation of a value that has no place in memory yet. */
struct allocation no_place(int value);
int storage_of(int value);
int64_t arena_bytes(void);
int64_t arena_stride(int value);
/* The value that represents all values sharing these bytes; for a value of a stack, the member
   that represents all those the stack keeps. plan NULL: no values share bytes. */
int representative(const struct memory_plan *plan, int value);
int stack_representative(const struct memory_plan *plan, int value);

/* ---------------------------------------------------------------------------------- operands.c */

/* The value over whose elements an operation iterates. */
int space_of(const struct op *op);
/* Whether a pointwise or reduce operation reads elements of input i at other places than its
   own: permuted, broadcast, or by an index. */
bool reads_elsewhere(const struct op *op, int i);
/* Whether it reads input i's elements by an index, and in which dimension: the one of the
   operand's first letter. */
bool reads_by_index(const struct op *op, int i);
int indexed_dimension(const struct op *op, int i);
const struct axis *space_axes(const struct op *op, const struct letters *l);

/* --------------------------------------------------------------------------------- ops_table.c */

/* Like bug(), but names the operation, unless it is NONE. */
_Noreturn void bug_at(const char *pass, int op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The operator's name. A sum that is divided by the number of its terms is called a mean. */
const char *op_name(const struct op *op);
extern const struct op_row op_row[OP_COUNT];
/* The functions that elements may call; the last one has no name. */
extern const struct element_function element_function[];
/* How an operator is computed: each element of the output by an expression, or a reduction of such;
   by a kernel of its own, a file in templates/kernels or the plan's; or in a way of its own. */
bool is_pointwise(enum op_kind k);
bool is_reduce(enum op_kind k);
/* Whether it takes its inputs element by element, with broadcasting: "...,...->...". */
bool is_broadcast(enum op_kind k);
bool has_kernel(enum op_kind k);
/* The rule and linearity of an operation: from its row, its equation, or its custom operator.
   "": none; the operation itself gives the layouts of its values. */
const char *rule_of(const struct op *op);
const char *linear_of(const struct op *op);
/* The attribute of that name, which the row has. */
int64_t number_of(const struct op *op, const char *name);
int64_t number_if_any(const struct op *op, const char *name); /* 0: its row has none of that name */
void set_number(struct op *op, const char *name, int64_t number);
/* Copies those that the rows of both have by the same names; the others become 0. */
void copy_numbers(struct op *op, const struct op *from);
/* Whether it moves a value between stages of a pipeline. */
bool is_transfer(enum op_kind kind);
/* Whether the operation draws random numbers, of the stream that its first number names. */
bool draws_stream(enum op_kind kind);

/* Whether an operation updates parameters, or depends on the step's number, as random numbers do.
 */
bool is_update(const struct op *op);
bool knows_step(const struct op *op);
/* Whether such an operation moves bytes within a rank's memory. */
bool is_copy(enum op_kind k);
/* Whether it is attention or its gradient: those may have options, and a rule of their own. */
bool is_attention(const struct op *op);
/* Whether a query sees no key after its own place; how far it sees, 0: all; in any order. */
bool is_causal(const struct op *op);
int64_t reach_of(const struct op *op);
/* Whether it is attention that goes around a ring along that dimension of the mesh. */
bool goes_around(const struct op *op, int mesh_dim);
/* Whether it is a step of a ring: attention of a rank's queries over one block of keys. */
bool is_block_of_keys(const struct op *op);
bool step_has(bool (*such)(const struct op *op));
bool is_of_last_batch(const struct op *op);
/* Whether an operation of the program, or of that of all stages, depends on the step's number. */
bool has_step_number(void);

/* ------------------------------------------------------------------------------------ passes.c */

extern const char *const pass_name[PASS_COUNT];

/* ------------------------------------------------------------------------------- query_cache.c */

void begin_query(struct query *q);
void ask_text(struct query *q, const char *s);
void ask_piece(struct query *q, const char *s, size_t length);
/* A layout, a value's type and shape, an operation's kind and rule. */
void ask_layout(struct query *q, const struct layout *layout);
void ask_value(struct query *q, const struct value *v);
void ask_rule(struct query *q, const struct op *op);
/* The number of the question, in the order of first asking: a new one is the last. */
int number_of_query(struct memo *memo, const struct query *q);
/* Room for its answer, which the caller writes if *is_new. empty_memo() forgets all answers. */
void *answer_to(struct memo *memo, const struct query *q, size_t size, bool *is_new);
void empty_memo(struct memo *memo);

/* -------------------------------------------------------------------------------------- rule.c */

/* Matches the rule with the shapes of the inputs, and of the outputs if the operation has them
   already. A misfit is the plan's error. */
void op_letters(const struct op *op, struct letters *l);
/* The type that the rule names for the k-th output, or NONE. */
int rule_type(const struct op *op, int k);

/* ------------------------------------------------------------------------------------- scans.c */

/* The module's scan, or NONE; the module around it. A scan begins with it. A list's modules. */
int scan_around(int module);
int outside_scans(int module);
/* The values with which scans begin, of those that existed when they were collected. */
struct entering {
  int n;
  const bool *at;
};
struct entering entering_scans(void);
bool enters_scan(const struct entering *e, int value);
int *count_modules_of_lists(void);

/* ------------------------------------------------------------------------------------- lists.c */

/* "layers.3" for a module in it, or NONE; the number before `ends` in the text, or NONE. */
int element_within(int module, int list);
int leading_number(char ends, const char *s, const char **rest);
/* Its index in its list, by its name, or NONE; that with which the loop of this stack begins. */
int place_in_list(int module);
int first_of_loop(int stack);
/* By module: itself or its nearest ancestor that has a number as its name; the same, the outermost
   one of a ModuleList; or NONE. */
const int *list_elements(void);
const int *outermost_elements(void);

/* ---------------------------------------------------------------------------------- schedule.c */

/* A schedule without decisions for the operations there are. */
struct schedule *new_schedule(void);
/* The decisions about the operation; the default ones if it has no row, or before the pass. */
const struct scheduled *scheduled(const struct op *op);
/* Its row, for writing. */
struct scheduled *schedule_of(int op);
/* Whether the collective is in flight from one iteration of a loop to another; whether a part of
   a loop's body issues it. */
bool is_loop_carried(const struct op *op);
bool is_issued_by_part(const struct op *op);
/* Whether collectives run beside arithmetic: on streams, or, where the plan asks for it, by MPI's
   calls that do not wait. */
bool collectives_overlap(void);
/* Whether the collective is overlapped, and can be on the target. */
bool runs_beside(const struct op *op);
/* Whether the group has a stream: any collective of it is overlapped, or the group is an edge and
   the program has an end of it. */
bool has_stream(int group);
/* The collective that this one is chained to, or NULL. */
const struct op *predecessor_of(const struct op *op);
/* The number of events of an overlapped collective: of modules for which it is in flight at once.
   Module l uses number l % event_slots. */
int event_slots(const struct op *op);

/* ------------------------------------------------------------------------------------- shape.c */

/* The model's name for a value, or the name of the operator that made it. */
const char *value_name(int value);
/* The shapes of the values that `op` makes, from its inputs; gives how many. */
int shapes(const struct op *op, struct shape shape[MAX_OUTPUTS]);
/* The type of the k-th of them. */
enum type type_of(const struct op *op, int k);
bool is_floating(enum type t);

/* ------------------------------------------------------------------------------------- types.c */

/* The number of elements; whether two shapes are equal; the bytes of an element, and "float32". */
int64_t elements(struct shape s);
int64_t type_bytes(enum type t);
const char *type_name(enum type t);

/* -------------------------------------------------------------------------------- view_shape.c */

/* The rule of a view between two shapes with the same number of elements. line: of the plan. */
const char *view_equation(struct shape from, struct shape to, int line);
/* The rule of an identity: "abc->abc". */
const char *identity_equation(int ndim);

/* -------------------------------------------------------------------------------------- walk.c */

/* The values made before the first step that the step reads, in the order of reading. */
struct list kept_constants(void);
/* Whether any operation of the step checks indices. */
bool notes_indices(void);
/* The output that is the number of labels whose mean the loss is, by its name; NONE: it is no such
   mean, or all labels count. By it the losses of batches have their weights. */
#define LABELS_OUTPUT "loss.labels"
int labels_output(void);
/* Whether it runs for each batch, or micro-batch, of a step. How often those run, and others. */
bool is_of_batch(enum phase phase);
int runs_in_step(void);
int runs_of_phase(enum phase phase);
/* Whether its loss is a sum that they add to: in a pipeline also that of one run, which one stage
   adds to. */
bool adds_up_loss(void);
/* Whether a step's gathers depend on its inputs: then each of several batches gathers again. */
bool gathers_each_batch(void);
/* By value: how many operations read it, in kernels and buckets and out of them; of a stack's
   first value also those that read the others'. */
int *count_readers(void);
/* By operation: the function that runs it, or NONE. And of a function: the body of a loop that it
   is, or is a part of, or NONE. */
void functions_of_ops(int *function_of);
int loop_of(int function);
/* The place of the operation in the function, or NONE. */
int runs_at(const struct function *f, int op);
/* Calls `visit` for every operation in the order of the program, with the number of times that it
   runs in a step. A loop's body comes once, after its call. The work of iterations for each other
   comes once, too: an issue for the next iteration comes at the first issue, before the loop; an
   await of the iteration before comes at the last await. */
void each_op(void (*visit)(void *to, int op, int times), void *to);
/* Likewise, for the function of a phase and what it calls. */
void each_op_of(const struct function *f, void (*visit)(void *to, int op, int times), void *to);
/* Whether the function is a phase, which a step calls, and not a loop's body or a part of one. */
bool is_phase(const struct function *f);
/* Calls `visit` for every operation in the order in which a phase runs them, with the number of
   its module, NONE outside of loops. */
void each_run_of(const struct function *f, void (*visit)(void *to, int op, int module), void *to);
/* The module of a loop's iteration, counted from 0; and the iteration that a call in `from` is
   for, or NONE. */
int module_of_iteration(const struct function *f, int iteration);
int iteration_called(const struct op *op, int from);
/* Whether any input is read from a file of tokens. */
bool reads_tokens(void);
/* Whether a step begins with the next batch of its data: a training has any number of them, and a
   program that only goes forward one, unless that is tokens. */
bool takes_batches(void);
/* Whether all batches of a step are kept, each in a place of its own. */
bool keeps_batches(void);
/* Their names in dumps and reports. */
extern const char *const phase_name[];

#endif
