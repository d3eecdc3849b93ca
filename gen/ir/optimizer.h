/* optimizer.h: an optimizer: how each update makes the elements of a parameter and of its states,
   as a list of operations on one element. The front end traces it from a function of Lua. */
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

/* An operation on one element. Operands are numbered: the parameter, its gradient, the states, the
   numbers, the results of the operations before: see operand numbers in optimizers.c. */
struct update_step {
  enum op_kind kind;
  int in[3];
};

struct optimizer {
  const char *name;     /* "AdamW" */
  const char *settings; /* "lr 0.001, betas 0.9 0.999": for readers */
  const char *match;    /* a group's: the pattern of its parameters' names; NULL: all others */
  const char *rate;     /* the learning rate of step t, an expression in C */
  const char *schedule; /* the same in words */
  int line;
  int nstate;
  const char *state[MAX_OPTIMIZER_STATES];
  int nnumber;
  struct step_number *number;
  int nstep;
  struct update_step *step;
  int out[1 + MAX_OPTIMIZER_STATES]; /* operands: the new parameter, the new states */
};

/* -------------------------------------------------------------------------------- optimizers.c */

/* The optimizer of an `update`. */
const struct optimizer *optimizer_of(const struct op *op);
/* The operand numbers of its first number and of its first step. */
int first_number_operand(const struct optimizer *o);
int first_step_operand(const struct optimizer *o);
/* How many inputs an operation has that an optimizer may use; 0: it may not. */
int inputs_of_row(enum op_kind kind);

#endif
