/* updates.h: the functions that the files of updates share: update_operations.c, update_owner.c,
   update_parts.c; and those that optimize.c calls. */
#ifndef TPGEN_FLAT_UPDATES_H
#define TPGEN_FLAT_UPDATES_H

#include "ir/ir.h"

/* The state of the updates of a program. */
struct updating {
  struct list *numbers;      /* by optimizer: the values of its numbers, or NONE */
  struct together *together; /* by parameter: see update_owner.c */
  int nstack;
};

/* The optimizer and the parameter of an update's operations, and the values of its operands, as far
   as they are made. Of a stack: the first of its parameters. */
struct operands {
  const struct optimizer *o;
  struct list
      *numbers; /* the values of the optimizer's numbers, or NONE: one for all its updates */
  int parameter, module, *value;
  const char *name;
  bool stacked;
};

/* --------------------------------------------------------------------------- balance_buffers.c */

/* Appends the operations that make the amount that the update subtracts from the buffer, by the
   counts of all batches. */
int way_back_to_balance(int buffer, int counts, const struct op *running);

/* ------------------------------------------------------------------------- update_operations.c */

struct op op_of_update(enum op_kind kind, const struct operands *of);
/* Names the value "parameter.what", and returns it. */
int name_of_update(int value, const struct operands *of, const char *what);
/* Append an operation of one input, and one of two; they return its value. */
int append_of_update(struct op op, int in, const struct operands *of, const char *what);
int append_pair_of_update(enum op_kind kind, int a, int b, const struct operands *of);
/* A move to that layout: to be given to append_of_update. */
struct op move_of_update(struct layout to, int value, const struct operands *of, const char *why);
/* Whether the operand is one of the optimizer's numbers. */
bool is_number_operand(const struct optimizer *o, int operand);
/* The value of an operand; a number is made, of that type. */
int value_of_operand(const struct operands *of, int operand, enum type type);
int append_step_of_update(const struct operands *of, const struct update_step *step);
/* The layout in which the update takes an operand of that shape: that of the parameter, that of the
   state that it becomes, or whole. `of` has the states. */
struct layout layout_in_update(const struct operands *of, int operand, struct shape shape);
/* The operands with which an update begins: the parameter, its clipped gradient, states. */
struct operands operands_of_update(const struct updating *u, const struct op *update);
/* Appends the update itself, with the results of the operations that it takes. */
void append_update_taking(struct op *update, const struct operands *of);
/* Append updates, after their operations: of one parameter, and below of several together. Their
   inputs so far are the parameter, its gradient, its states and the norm; the results of the
   operations that they take are added. */
void append_update_alone(const struct updating *u, struct op *update);
/* A state of the parameter: the number of the optimizer's state. */
int add_state(int parameter, const struct optimizer *o, int state);

/* ------------------------------------------------------------------------------ update_owner.c */

/* Before the first update: finds the parameters that are updated together on their owners. */
void find_updates_on_owners(struct updating *u, const int *gradient);
/* The parameters that are updated together with it; none if it is updated by itself. */
struct list updated_on_owners_with(const struct updating *u, int parameter);
void append_updates_on_owners(const struct updating *u, struct op *update, int n);

/* ------------------------------------------------------------------------------ update_parts.c */

/* The updates of all parts of a parameter, in their order. */
void append_updates_of_parts(const struct updating *u, struct op *update, int n);

#endif
