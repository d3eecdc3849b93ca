/* optimizer.h: an optimizer: how each update makes a parameter and its states. The front end traces
   it from a function of Lua: to a list of operations on one element, which are one kernel; or,
   where it looks at more than one, to operations on tensors and, after them, those of the kernel.
 */
#ifndef TPGEN_IR_OPTIMIZER_H
#define TPGEN_IR_OPTIMIZER_H

#include "ir/op.h"

enum { MAX_OPTIMIZER_STATES = 4, MOST_STEPS_OF_UPDATE = 256, MOST_STEP_NUMBERS = 64 };

/* A number that an update uses: a constant, or one that is computed once a step. */
struct step_number {
  const char *name; /* of one that is computed, or NULL */
  const char *text; /* likewise: an expression in C of the step t and the learning rate, $lr$ */
  double value;     /* of a constant */
};

/* An operation of an update. Operands are numbered: the parameter, its gradient, the states, the
   numbers, the results of the operations before: see operand numbers in optimizers.c. The fields
   after `in` are of those that are no operations on one element. */
struct update_step {
  enum op_kind kind;
  int in[3];
  enum type type;
  bool keepdim;
  unsigned dims;
  double scalar;
  const char *equation;
};

struct optimizer {
  const char *name;     /* "AdamW" */
  const char *settings; /* "lr 0.001, betas 0.9 0.999": for readers */
  const char *match;    /* a group's: the pattern of its parameters' names; NULL: all others */
  const char *rate;     /* the learning rate of step t, an expression in C */
  const char *schedule; /* the same in words */
  int line;
  bool by_part; /* it takes each part of a parameter as a tensor of its own */
  int nstate;
  const char *state[MAX_OPTIMIZER_STATES];
  /* A bit for each dimension in which the state has size 1, and the parameter more. Only an
     operation makes such a state. */
  unsigned ones[MAX_OPTIMIZER_STATES];
  int nnumber;
  struct step_number *number;
  int nstep, noperation; /* the first `noperation` steps are operations on tensors */
  struct update_step *step;
  int out[1 + MAX_OPTIMIZER_STATES]; /* operands: the new parameter, the new states */
};

/* -------------------------------------------------------------------------------- optimizers.c */

/* The optimizer of an `update`. */
const struct optimizer *optimizer_of(const struct op *op);
/* Whether it is an update without operations before its kernel. */
bool is_kernel_alone(const struct op *op);
/* The operand numbers of its first number and of its first step. */
int first_number_operand(const struct optimizer *o);
int first_step_operand(const struct optimizer *o);
/* Whether both are states of one name; the states of the same name, in the order of their
   parameters; and whether they have a struct of their own, because not every updated parameter has
   one of the parameter's shape. */
bool is_same_kind(int a, int b);
struct list states_like(int state);
bool is_apart(int state);
/* The number of inputs of an operation that a kernel of an update may do; 0: it may not. The same
   for an operation on tensors. */
int inputs_of_row(enum op_kind kind);
int inputs_of_step(enum op_kind kind);
/* Whether the update's kernel takes the operand; and whether its operation does, which also takes
   the results that become states of another shape than the parameter's. */
bool kernel_takes(const struct optimizer *o, int operand);
/* Whether the kernel reads or writes the parameter, its gradient, or a state. */
bool kernel_has_array(const struct optimizer *o, int operand);
bool update_takes(const struct optimizer *o, int operand);
/* Whether the number is one of the step that the kernel takes. */
bool is_kernel_number(const struct optimizer *o, int number);

#endif
