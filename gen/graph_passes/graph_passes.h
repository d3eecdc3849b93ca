/* graph_passes.h: the passes over the flat program, graph->order. */
#ifndef TPGEN_GRAPH_PASSES_H
#define TPGEN_GRAPH_PASSES_H

#include "util/util.h"
#include "graph_passes/cut_time.h"
#include "graph_passes/updates.h"
#include "ir/ir.h"
#include "pipeline/pipeline.h"
#include "sharding/sharding.h"
#include "target/target.h"

/* -------------------------------------------------------------------------------- accumulate.c */

/* The term that each batch, or micro-batch, adds to the sum of those before. */
struct summand {
  int value, of; /* of: see struct value */
  enum role role;
  const char *name;
  enum phase phase;
  int line;
};
/* Makes the operation that adds it, in place, to a value of that role; it is in no order yet. */
int add_to_sum(const struct summand *s);
/* In a step of several batches, accumulates the gradients. Sets, by parameter, the value that is
   its gradient from then on. */
void accumulate_gradients(int *gradient);
/* A product that is only added to a gradient accumulates in place: the gradient becomes its
   third input. */
void add_products_in_place(void);

/* ----------------------------------------------------------------------------- remove_unused.c */

/* Removes the operations that no result needs from the order. */
void leave_out_dead(void);
/* Moves the operations that are counted and gathered for all batches of a step to the front. They
   were at their first use, so that their gradients are made at their last use. */
void bring_ahead(void);
/* Removes everything that no function runs from the graph. */
void drop_rest(void);
/* Removes the operations that neither a function nor the order runs, and the things that only they
   use. */
void drop_idle(void);

/* -------------------------------------------------------------------------------- fsdp_units.c */

/* Questions and actions of fsdp_units.c for the other passes. */
/* Places the parameters of units, whose other cuts are known; reports an operation that comes
   next in the order; whether a value is a parameter that must be gathered before use; whether
   the operation casts one to the model's type; the parameter as its reader takes it, gathered:
   adds operations to the order if it is not gathered yet. */
struct gathering {
  int known;             /* the values when the pass began */
  int *here, *elsewhere; /* by parameter: the gathered value that the unit's modules read, and the
                            one that others read; or NONE */
  const int *element;    /* by module: the module of the outermost list that contains it, or NONE */
  int *began;            /* by list: where its modules' operations begin, or NONE */
};
struct gathering place_units(void);
void note_list(struct gathering *g, const struct op *op, const struct list *order);
bool is_kept_cut(int value);
bool casts_for_use(const struct op *op);
int gathered(struct gathering *g, int parameter, const struct op *reader, struct list *order);

/* ----------------------------------------------------------------------------- gradient_parts.c */

/* The operation whose gradient is under work; lists as write_gradient has them. */
extern const struct op *forward_op;
void begin_gradient(const struct op *op, const bool *has_gradient, int *gradient);
/* The operation with the phase, the module and the line of the backward of that one. */
struct op in_backward(struct op op);
/* Each adds an operation to the backward, and returns its value. */
int append_backward(struct op op);
int append_backward_shaped(struct op op, struct shape shape);
int backward_unary(enum op_kind kind, int a);
int backward_binary(enum op_kind kind, int a, int b);
int backward_where(int condition, int then, int otherwise);
int backward_scale(int a, double by);
int backward_cast(int a, enum type type);
/* A number, which broadcasts; of the type of `like`. */
int backward_number(double x, int like);
/* An operation with the attributes of the forward one. */
struct op like_forward(enum op_kind kind, int nin, const int *in);
/* The parameter that the value is, or that it shows after casts, moves or views; or NONE. */
int parameter_in(int value);
/* The type of the value's gradient. */
enum type gradient_type(int value);
bool needs_gradient(int i);
/* Adds g, or g * factor, to the gradient of the i-th input, and names it after that input. */
void give_gradient(int i, int g);
void give_product(int i, int g, int factor);
void name_gradient(int g, int value);

/* ------------------------------------------------- gradients.c and gradients_by_element.c */

/* By row of ops.h: the function that makes the gradients of its inputs from g, the gradient of its
   output. */
#define OP(name, rule, linear, gradient, ...) void gradient(int g);
#include "ir/ops.h"
#undef OP

/* Appends the operations that take g, the gradient of `op`'s output, to the gradients of those
   inputs that need one. Both lists are by value; gradient[value] is NONE while it has none. `op` is
   a copy: adding operations moves the graph's. */
void write_gradient(const struct op *op, int g, const bool *has_gradient, int *gradient);
/* Whether it is a redistribution that moves neither the value nor its gradient. */
bool is_kept_for_backward(const struct op *op);
extern int *stays_at;

/* ----------------------------------------------------------------------------- equal_modules.c */

/* By module: the number of its children with the names 0, 1, ... in this order; 0 if it has
   others. */
int *count_elements(void);
/* Adds `what`, which belongs to the module, to those of each list that contains the module. */
void add_to_lists(struct list *of, const int *counts, int module, int what);
/* Whether both have one role, type, shape and layout, and neither leaves the program. */
bool same_value_kind(int a, int b);
/* ".weight" of "layers.3.weight", with "layers" the list. */
const char *behind_number(const char *list, const char *name);
/* By module that is a list: the parameters in or under its modules. */
struct list *parameters_of_lists(const int *counts);
/* The parameters of each of `count` of the list's modules, if they are the same: then they are an
   array of structs in C. NULL if they are not. inner: all parameters of the list. */
const struct list *equal_parameters(const struct list *inner, int list, int first, int count);
/* Whether the states of that kind are arrays, too, as these modules have them for the same
   parameters. */
bool have_equal_states(int state, int list, int first, int count);
/* The number of these modules, from the first on, that are the same: a run. */
int count_equal(const struct list *inner, int list, int first, int count);

/* ---------------------------------------------------------------------------- sequence_order.c */

/* Refuses an operation along a sequence whose tokens are in another order. */
void check_sequence_order(void);

/* ----------------------------------------------------------------------------------- metrics.c */

/* In a step of several batches, of micro-batches or of stages: metrics cover all of them together.
   whole: an input that all of them have as a whole, or NONE. */
void defer_metrics(int whole);
/* By operation: the loss needs it, or it has effects other than its values. */
bool *what_serves_loss(void);

/* ----------------------------------------------------------------------------- smaller_batch.c */

/* Metrics do not count the padding samples of a smaller last batch. Returns the input that it adds,
   or NONE. */
int mask_metrics(void);

/* Sets `rows` of the outputs of a program that only goes forward. */
void follow_samples_to_outputs(void);

/* ------------------------------------------------------------------------------ microbatches.c */

/* The plan's error if the samples of a batch make no equal micro-batches. */
void check_microbatches(void);
/* The value for the whole batch, which `user` needs before the last micro-batch has run: adds
   operations before the micro-batches to the order. whole: by value, the same value for the whole
   batch, or NONE while it is not known. The plan's error if it depends on parameters. */
int whole_batch(struct list *whole, int value, const struct op *user, struct list *order);

/* ----------------------------------------------------------------------------------- balance.c */

/* Finds the modules with which the pipeline's stages begin. */
void balance_stages(const struct pipeline *p);

/* ------------------------------------------------------------------------------------ stages.c */

/* In a pipeline, sets the stage of each operation of the forward. */
void assign_stages(void);
/* By parameter, when they are set: the stage that reads it first. */
int *stages_of_parameters(void);
/* By value: the stage that has the parameter, or the stage of the parameter that the value belongs
   to; or NONE. */
int *stages_of_values(void);
/* Of a dump that was read: the plan's error if its stages are not those of the schedule. */
void continue_stages(enum pass after);

/* ---------------------------------------------------------------------------- split_backward.c */

/* The operations of the second part of each backward that the schedule splits; the edges. */
void split_backwards(void);

/* ------------------------------------------------------------------------------ stage_program.c */

/* Memory for a copy of the whole program, which serves one stage after the other: most of it
   belongs to other stages. Empty at first. */
struct stage_room {
  void *values, *ops, *order;
  bool *runs, *takes;
  const int *owner; /* by value: see stages_of_values */
};
/* The program of the ranks at that coordinate of a pipeline, for inspection: its memory serves the
   next one, too. Then, for the passes, that graph with memory of its own. */
struct graph *program_of_stages(struct graph *whole, int coordinate, struct stage_room *room);
void own_program_of_stages(void);
/* The hash of the flat program without the names and numbers of its values: equal stages have equal
   hashes. */
uint64_t hash_of_program(void);

/* ---------------------------------------------------------------------------- stage_functions.c */

/* Whether both are in one function of a pipeline's stage, or in none. */
bool in_one_function(int a, int b);
/* Gives each operation of a forward or backward a stage, and brings those of a function together.
 */
void divide_in_functions(void);

/* ----------------------------------------------------------------------------------- outline.c */

/* Its second part: makes the functions, and leaves graph->order and all else unchanged. */
void fold_modules(void);

/* ------------------------------------------------------------------------------ orders_taken.c */

/* Whether the operation can run with its operands in their current dim orders. */
bool follows_dim_order(const struct op *op);
/* Whether operand i, or with NONE any, may have another order in memory than the written one. */
bool takes_other_orders(const struct op *op, int i);
/* Whether the value has another order; whether any operand has. */
static inline bool lies_in_other_order(int value)
{
  return graph->value[value].order != 0;
}

bool has_other_orders(const struct op *op);
/* Whether it moves or reduces elements without a rule and keeps its dimensions. */
bool keeps_dimensions(const struct op *op);
/* Whether a view's output has the same bytes in the same order. */
bool is_same_bytes(const struct op *view);
/* The letters of a value's dimensions in their order in memory; returns their number. */
int letters_in_memory(const struct axis *axis, int value, int *letter);

/* --------------------------------------------------------------------------------- propagate.c */

/* Gives layouts to the values that operations order[first...] make, adding redistributions. */
void propagate_from(int first);

/* ------------------------------------------------------------------------------ replace_each.c */

/* Replaces each operation of the order for which is_one is true. replace appends the new ones,
   which get its stage, and sets in stands_for, by value, what replaces the values of *op. The
   inputs of *op are replaced already. False, without a change, if is_one is true for none. */
bool replace_each(bool (*is_one)(const struct op *op),
                  void (*replace)(void *of, const struct op *op, int *stands_for), void *of);

/* --------------------------------------------------------------------------------- recompute.c */

/* Whether it gathers a unit's parameter for the forward, and frees it after the forward. */
bool gathers(const struct op *op);
bool reshards(const struct op *op);
/* Whether the backward may always run the operation again so that less is kept. */
bool is_cheap(const struct op *op);
/* The modules of lists in the order of the forward, whose levels say what the backward makes again
   (struct module's again), up to MOST_AGAIN. */
enum { MOST_AGAIN = 160 };
struct list modules_with_levels(void);
/* A hash of the values that would be made again, by the levels of now. The graph stays as it is. */
uint64_t hash_of_levels(void);

/* ------------------------------------------------------------------------------ redistribute.c */

/* The number of the exchange: equal ones share an entry. */
int add_exchange(struct exchange e);

/* --------------------------------------------------------------------------------- scan_grad.c */

/* For grad.c. The lists are by value. begin_scans finds the scans of the forward. want_carried
   marks the gradients that their first steps take as needed, and says whether it marked any.
   pass_step goes to an operation of the forward, at this place of the order, NULL at the end: true
   if that ends a scan, whose gradients then exist. is_in_scan: whether the last operation was in a
   scan's step. */
void begin_scans(const bool *has_gradient, int *gradient);
bool want_carried(bool *has_gradient);
bool pass_step(const struct op *op, int at);
bool is_in_scan(void);
/* Whether the next function makes the gradient of the operation's kind. */
bool takes_part_in_scan(enum op_kind kind);
void write_scan_gradient(const struct op *op, int g);

/* ------------------------------------------------------------------------------ counterparts.c */

/* By operation the next of its counterparts, which have its place in equal modules: a ring. */
int *find_counterparts(void);

#endif
