/* name_groups.h: equal tensors of the modules of a list as one stack. */
#ifndef TPGEN_IR_NAME_GROUPS_H
#define TPGEN_IR_NAME_GROUPS_H

#include "util/util.h"

/* Values that are listed as one: a member's name is `name`, a number from 0 on, `rest`. For a
   single value `name` is the whole name, and `rest` NULL. */
struct stack {
  const char *name, *rest;
  int first; /* the number of its first member */
  struct list member;
};
struct stacks {
  int n;
  struct stack *at;
};

/* ------------------------------------------------------------------------------- name_groups.c */

/* The n values as stacks, each at its first member's place. `fits` says whether a value may
   join a stack. from_any: a stack may begin with any number, else only with 0. */
struct stacks find_stacks(int n, const int *value, bool (*fits)(const struct stack *f, int value),
                          bool from_any);
/* "layers.0-31.wq.weight" */
char *stack_text(const struct stack *f);
/* The name in files of others, taken apart in the same way; name is NULL where there is none. */
void stack_alias(const struct stack *f, const char **name, const char **rest);
/* Whether the value's alias continues the aliases of the stack that it would join. */
bool alias_goes_on(const struct stack *f, int value);
/* Whether two tensors are equal in all but names and places. */
bool same_tensor(int a, int b);

#endif
