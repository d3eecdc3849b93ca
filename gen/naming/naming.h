/* names.h: names in the generated program: the struct of its memory, variables, groups, kernels. */
#ifndef TPGEN_NAMING_H
#define TPGEN_NAMING_H

#include "util/util.h"
#include "ir/ir.h"
#include "target/target.h"
#include "function_passes/function_passes.h"

struct name {
  const char *text;
  int again; /* the last number that was appended to it */
};

/* The names given in a scope, in a hash table; a name that is taken gets a number. Local: of
   variables. */
struct scope {
  bool local;
  int n, room;
  struct name *name;
  int places, *at; /* open addressing: an index into `name`, or NONE */
};

struct kernel {
  const char *name, *comment;
  const char *prototypes, *definition;             /* before `$name$` is filled in */
  const char *given_prototypes, *given_definition; /* with the hole `$name$` */
  const char *shared; /* the body, with its comment, that it shares with others; the first has it */
  /* The code of a fused operation, from which the definition was printed; or NULL. */
  const struct kernel_builder *builder;
  const struct code *code;
};

/* -------------------------------------------------------------------------- activation_table.c */

/* Whether the value is in the arena, in its own bytes or another's. */
bool is_activation(int value);
/* The call that points to such a value, "at_layers_wq(l)": for a stack, `module`'s, or, with
   NULL, its own. `function`: the one that asks. */
const char *arena_pointer(int value, const char *module, const char *function);
/* The variable with the place of the slot that the stage's micro-batch has in the arena. */
const char *slot_variable(int stage);
/* The table of the slots that a stage's micro-batches have, where a rank has several stages; and
   the number of the slot of the one that runs. */
const char *slots_table(int stage);
const char *slot_number(int stage);
/* The table of all values that were asked for, "" if none; and a function that empties it. */
char *activation_table(void);
void forget_activations(void);

/* The text forms of a target's programs; holes are those of fill(). */
struct target_syntax {
  /* Kernels. */
  const char *kernel_mark;   /* before a prototype */
  const char *no_alias;      /* of a parameter that is a pointer */
  const char *kernel_bounds; /* before a definition: $threads$ */
  const char *kernel_call;   /* $name$, $arguments$, $blocks$, $threads$ */
  const char *zero_bytes;    /* $at$, $bytes$ */
  const char *zero_member;   /* of struct memory: $member$ */
  const char *copy_member;   /* steps_in_memory: $to$, $from$, $batch$ */
  const char *declares;      /* before a constant of other files: $struct$, $name$ */
  bool names_zeros;          /* compilers warn of a struct's field that is not named */
  const char *own_static;    /* of a model's state in a library */
  const char *library_data;  /* where it is: the end of a comment */
  const char *fill_value;    /* with the variable `least`: $at$, $n$ */
  /* The update. */
  const char *updated;                                   /* an element of the array $name$ */
  const char *clear_squares, *add_squares, *sum_squares; /* $squares$, $kernel$, $gradients$, $n$,
                                                            $blocks$, $threads$; $divided$, or
                                                            $weight$; NULL: there is none */
  const char *squares_head;
  const char *add_largest, *largest_head;     /* the same of the largest element */
  const char *norm, *norm_kernel, *norm_head; /* $norm$: the pointer, $number$: its value */
  const char *largest_norm, *largest_norm_kernel, *largest_norm_head;
  /* The functions of a step. */
  const char *step_parameter;             /* its number, as functions take it */
  const char *step_parameters;            /* of the step itself */
  const char *step_number, *batch_number; /* the source of random numbers */
  const char *batches;                    /* the head of the loop over $n$ */
  const char *is_last_batch;              /* its condition in that loop; $last$ is $n$ - 1 */
  const char *open_function;              /* $name$ */
  const char *memory_is;                  /* follows the pointer to struct memory */
  const char *stream_type, *event_type;   /* if there are streams */
};

/* ------------------------------------------------------------------------------- line_breaks.c */

/* A file of ours with each statement that has a hole joined to one line. The line is broken
   again when the holes are filled. */
const char *joined_statements(const char *file);
/* A text as a C comment, indented, its lines broken. */
char *comment_lines(const char *text, int indent);
/* A statement, broken if it is too long for a line. */
void put_statement(struct buffer *b, int indent, const char *statement);
/* A body without the braces around one statement, if a line can hold it. */
char *without_braces(const char *body);
/* A text with its long lines broken, except comments and preprocessor lines; in text that is not
   ours, only heads of functions. */
char *wrapped_lines(const char *s, bool ours);

/* --------------------------------------------------------------------------------- formula.c */

/* The plan's path as comments and files show it: of an absolute path only the last name. */
const char *plan_shown(void);
/* The file of the line as it is shown, and "plans/toy.lua:14": also of a file that the plan
   requires. */
const char *file_shown(int line);
char *place_shown(int line);
/* An operation in the model's words: "relu = relu(in_proj + in_proj.bias)"; and with calls of the
   plan's functions in place of what is longer than a line, "rms_norm_back(d_norm, weight, x)". */
char *formula_text(const struct op *op);
char *short_formula_text(const struct op *op);
const char *shown_operand(int value);

/* ----------------------------------------------------------------------------- target_syntax.c */

/* That of the target. */
const struct target_syntax *target_syntax(void);

/* ------------------------------------------------------------------------------- group_names.c */

/* The names of a group's communicator and stream. */
const char *group_name(int group);
const char *stream_name(int group);

/* ------------------------------------------------------------------------------- member_runs.c */

/* The pointer to n elements from a value on, which continue in the following members of struct
   memory: "(float *)&m->w.layers[l]". `shown`: the value's name in the function. */
const char *member_run(int value, const char *shown, int64_t n);
/* The assertions of memory.h for these pointers; and a function that forgets them. */
char *member_run_asserts(void);
void forget_member_runs(void);

/* ------------------------------------------------------------------------------- model_names.c */

/* The name of a value; in a loop's body relative to the module. */
const char *model_name(int value, bool in_body);
/* Its name among those of all functions: in a list without a number. */
const char *name_in_list(int value);
/* The suffix that distinguishes a moved value from its source, which has the same name. */
const char *moved_suffix(int value);
/* Whether it is the buffer of a packed collective. */
bool is_buffer(int value);
/* The value that a view shows, and that became whole in a bucket; NONE for any other value. */
int viewed_value(int value);

/* ------------------------------------------------------------------------------------- names.c */

/* Gives every stored value its name in the program of `rank` and of all ranks of its class. */
void name_values(int rank);
/* The address of a value's first element: "m->w.in_proj.weight", "relu". NULL where this rank
   has no part of it. */
const char *c_name(int value);
/* Whether this rank has a part of any value with this role that no operation computes. */
bool has_some_of(enum role role);
/* The name of the value for a reader of c_name's function; a view has its own. */
const char *local_name(int value);
const char *display_name(int value);
/* From here on c_name and local_name use the names of this function. */
void name_locals(const struct function *f);
/* A line for each activation that a statement is the first to name in its function: `float
 *const relu = at_relu();`. */
char *local_declarations(const char *code);

/* ---------------------------------------------------------------------------------- registry.c */

/* Adds a kernel; returns its final name, which replaces `$name$` in both texts. The prototypes
   are the heads of the functions that are called, one a line. The definition is the whole text;
   its long lines are broken if it is ours, and of a plan author's text only the heads. A kernel
   with the same texts is used again, whatever its comment says. */
const char *add_kernel(const char *preferred, const char *prototypes, const char *comment,
                       const char *definition, bool ours);
/* All kernels, their prototypes, and the headers that these need. */
char *kernel_definitions(void);
char *kernel_prototypes(void);
const char *kernel_includes(void);
/* The lines that include the runtime's headers that they need in their own file; or "". */
const char *runtime_includes(void);
/* The kernels of the program, in the order in which they were added. */
extern struct kernel *kernels;
extern int nkernels, kernel_room;
/* Where the number of a fused kernel is kept, from 1 on, by its text without names; 0: none yet. */
int *planned(const char *plan);

/* ---------------------------------------------------------------------------- reserved_names.c */

/* Whether generated statements use the name themselves: no variable or parameter may have it. */
bool is_reserved_name(const char *name);
/* Kernels have a name space of their own. From here on no variable gets this name, nor one that
   continues it with `_` and a number: a kernel gets such a name if several want this one, or if
   it is several functions. */
void reserve_kernel_name(const char *name);
bool is_kernel_name(const char *name);

/* ------------------------------------------------------------------------------------- scope.c */

/* Whether the scope has given the name; gives it. */
bool is_name_given(const struct scope *s, const char *name);
void give_name(struct scope *s, const char *name);
/* Gives a unique name: the desired one, or with a number appended. */
const char *unique_name(struct scope *s, const char *preferred);

/* ---------------------------------------------------------------------------- step_constants.c */

/* The number of the step, or batch, for random numbers, or where it is stored; whether the program,
   or that of a stage, reads from memory the numbers that change from step to step; the struct of
   these, "" if none does. */
const char *batch_number(void);
bool has_step_constants(void);
char *constants_text(void);

/* ----------------------------------------------------------------------------- struct_memory.c */

/* The declarations of the rank's memory: struct parameters, struct memory. */
char *memory_declaration(void);
/* The rank whose names are given now, and by value the name of its member of struct memory. */
extern int named_rank;
extern const char **memory_name;
/* Whether that rank has a part of the value. */
bool has_part(int value);
/* Makes the declarations, and the names of members. */
void declare_memory(void);
/* From here on the declaration has a union of some adjacent children of a struct and an array of
   this name with all their elements. False if another array has some of them. */
bool join_members(const char *path, const char *const *child, int n, const char *type,
                  const char *name, int64_t size);
/* By value, the name that its member has on each rank that has a part of it: what does not depend
   on a rank is decided by these. */
const char *const *names_on_all_ranks(void);

/* ------------------------------------------------------------------------------ update_rates.c */

/* The lines that begin the update, or that compute the constants of a step; the functions that give
   learning rates. Only those that `code` has; NULL: all. */
char *update_constants(const char *code);
char *learning_rate_text(const char *code, const char *factor);
/* Whether updates of the step have such numbers; the members of struct constants that have those of
   all stages. */
bool updates_have_numbers(void);
char *step_number_members(void);
/* The name there of a step's number of an optimizer; its kernel's name; whether it has such
   numbers. */
const char *step_number_name(const struct optimizer *o, int number);
const char *kernel_of_optimizer(const struct optimizer *o);
bool has_step_numbers(const struct optimizer *o);
/* "lr 0.1, betas 0.9 0.95, ...": above a kernel. */
char *optimizer_text(const struct optimizer *o);
const char *update_template(const char *name);

#endif
