/* names.h: what things are called in the generated program: the struct of its memory, variables,
   groups, kernels. */
#ifndef TPGEN_NAMES_H
#define TPGEN_NAMES_H

#include "base/base.h"
#include "ir/ir.h"
#include "target/target.h"
#include "folded/folded.h"

struct name {
  const char *text;
  int again; /* the last number that was tried behind it */
};

/* The names given out in a scope, found by their hash; a second comer gets a number. Local: of
   variables. */
struct scope {
  bool local;
  int n, room;
  struct name *name;
  int places, *at; /* open addressing: which of `name`, or NONE */
};

struct kernel {
  const char *name, *comment;
  const char *prototypes, *definition;             /* as written */
  const char *given_prototypes, *given_definition; /* with the hole `$name$` */
  /* Of a fused operation, what the definition was printed from, or NULL. */
  const struct draft *draft;
  const struct code *code;
};

/* -------------------------------------------------------------------------- activation_table.c */

/* Whether the value's bytes are in the arena, whoever's they are. */
bool is_activation(int value);
/* The call that points to such a value, "at_layers_wq(l)": of a family, its `module`'s, or, NULL,
   its own. `function`: which one asks. */
const char *arena_pointer(int value, const char *module, const char *function);
/* The table of all that were asked for, "" without any; and what empties it. */
char *activation_table(void);
void forget_activations(void);

/* How programs of a target say things; in a form stand holes, as fill() has them. */
struct forms {
  /* Kernels. */
  const char *kernel_mark;   /* before a prototype */
  const char *no_alias;      /* of a parameter that is a pointer */
  const char *kernel_bounds; /* before a definition: $threads$ */
  const char *kernel_call;   /* $name$, $arguments$, $blocks$, $threads$ */
  const char *zero_bytes;    /* $at$, $bytes$ */
  const char *zero_member;   /* of struct memory: $member$ */
  const char *copy_member;   /* steps_in_memory: $to$, $from$, $batch$ */
  const char *fill_value;    /* with the variable `least`: $at$, $n$ */
  /* The update. */
  const char *updated_weight;
  const char *clear_squares, *add_squares, *sum_squares; /* $squares$, $kernel$, $gradients$, $n$,
                                                            $blocks$, $threads$; $divided$, or
                                                            $weight$; NULL: there is none */
  const char *squares_head;
  const char *norm, *norm_kernel, *norm_head; /* $norm$: the pointer, $number$: what is there */
  /* The functions of a step. */
  const char *step_parameter;             /* its number, as functions take it */
  const char *step_parameters;            /* of the step itself */
  const char *step_number, *batch_number; /* what random numbers depend on */
  const char *batches;                    /* the head of the loop over $n$ */
  const char *open_function;              /* $name$ */
  const char *memory_is;                  /* behind the pointer to the struct memory */
  const char *stream_type, *event_type;   /* where there are streams */
};

/* ----------------------------------------------------------------------------------- c_lines.c */

/* A file of ours with every statement that has a hole on one line, which is broken again when it is
   known what is in the holes. */
const char *joined_statements(const char *file);
/* A text as a C comment, indented, its lines broken. */
char *comment_lines(const char *text, int indent);
/* A statement, broken where it is too long for a line. */
void put_statement(struct buffer *b, int indent, const char *statement);
/* A body without the braces around one statement that a line holds. */
char *without_braces(const char *body);
/* A text, of which the lines that are too long are broken, but for comments and those of the
   preprocessor; of what is not ours, only the heads of functions. */
char *wrapped_lines(const char *s, bool ours);

/* -------------------------------------------------------------------------------- expression.c */

/* The plan's path as it may stand in comments and files: of an absolute one only the last name. */
const char *plan_shown(void);
/* An operation in the model's words: "relu = relu(in_proj + in_proj.bias)". */
char *expression_text(const struct op *op);
const char *shown_operand(int value);

/* ------------------------------------------------------------------------------------ forms.c */

/* That of the target. */
const struct forms *forms(void);

/* ------------------------------------------------------------------------------- group_names.c */

/* The names of a group's communicator and stream. */
const char *group_name(int group);
const char *stream_name(int group);

/* ------------------------------------------------------------------------------- member_runs.c */

/* The pointer to n elements from a value on, which go on in the members of struct memory behind it:
   "(float *)&m->w.layers[l]". `shown`: the value's name in the function. */
const char *member_run(int value, const char *shown, int64_t n);
/* What memory.h asserts for these; and what forgets it. */
char *member_run_asserts(void);
void forget_member_runs(void);

/* ------------------------------------------------------------------------------- model_names.c */

/* What a value is called; in a loop's body by its place in the module. */
const char *model_name(int value, bool in_loop);
/* What it is called among those of all functions: that of a list without a number. */
const char *name_in_list(int value);
/* What tells a value that was moved from the one of the same name that it was. */
const char *moved_suffix(int value);
/* Whether it is the buffer of a packed collective. */
bool is_buffer(int value);
/* What a view shows where it lies, and what became whole in a bucket; NONE of any other value. */
int viewed_value(int value);

/* ------------------------------------------------------------------------------------- names.c */

/* Gives every stored value its name in the program of `rank` and of all ranks like it. */
void name_values(int rank);
/* The address of a value's first element: "m->w.in_proj.weight", "relu". NULL where this rank
   has no part of it. */
const char *c_name(int value);
/* Whether this rank has a part of any value with this role that no operation computes. */
bool has_some_of(enum role role);
/* The value's name for a reader of the function that c_name speaks of; a view has another's. */
const char *local_name(int value);
const char *spoken_name(int value);
/* From here on c_name and local_name speak of values as this function names them. */
void name_locals(const struct function *f);
/* A line for each activation that a statement names and none before it in its function:
   `float *const relu = at_relu();`. */
char *local_declarations(const char *code);

/* ---------------------------------------------------------------------------------- registry.c */

/* Adds a kernel; gives the name that it has in the end, which replaces `$name$` in both texts. The
   prototypes are the heads of the functions that are called, one a line; the definition is all of
   the text, of which every line is broken that is too long, if it is ours: of what a plan's author
   wrote only the heads. A kernel of the same texts is used again, whatever its comment says. */
const char *add_kernel(const char *wanted, const char *prototypes, const char *comment,
                       const char *definition, bool ours);
/* All kernels, their prototypes, and the headers that these ask for. */
char *kernel_definitions(void);
char *kernel_prototypes(void);
const char *kernel_includes(void);
/* The kernels of the program, in the order in which they were added. */
extern struct kernel *kernels;
extern int nkernels, kernel_room;
/* By the text of a fused kernel without names: where the number of that kernel, from 1 on, is kept;
   0: there is none yet. */
int *planned(const char *plan);

/* ---------------------------------------------------------------------------- reserved_names.c */

/* Whether generated statements use the name themselves: no variable or parameter may have it. */
bool is_spoken(const char *name);
/* Kernels have a name space of their own. No variable that is named from here on has this name,
   or one that begins so and goes on with a number behind a `_`: what becomes of it where several
   kernels want it, or where a kernel is several functions. */
void reserve_kernel_name(const char *name);
bool is_kernel_name(const char *name);

/* ------------------------------------------------------------------------------------- scope.c */

/* Whether the scope has given the name; gives it. */
bool is_name_given(const struct scope *s, const char *name);
void give_name(struct scope *s, const char *name);
/* Gives a name that no other has: the wanted one, or with a number behind it. */
const char *unique_name(struct scope *s, const char *wanted);

/* ---------------------------------------------------------------------------- step_constants.c */

/* The number of the step, or batch, that random numbers depend on, or where it lies; the struct of
   what changes from step to step, "" where a program needs none. */
const char *batch_number(void);
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

/* ------------------------------------------------------------------------------ update_rates.c */

/* The lines that begin the update, or that compute the constants of a step: these are named in
   update_rates; the function that gives the learning rate. */
char *update_constants(void);
const char *update_rates(void);
char *learning_rate_text(void);
bool is_adamw(void);
/* "lr 0.1, betas 0.9 0.95, ...": above a kernel. */
char *optimizer_text(void);
const char *update_template(const char *name);

#endif
