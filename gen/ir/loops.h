/* loops.h: values in loops over equal modules: the decisions of the pass `outline`. */
#ifndef TPGEN_IR_LOOPS_H
#define TPGEN_IR_LOOPS_H

/* The equal values of a list's modules are a stack. In the loop's body, the one of module 0
   represents all of them. */
struct in_loop {
  int stack, index;  /* the value of module 0, or NONE; the index of its module */
  int list, sibling; /* of module 0's: the list of modules, and the value of module 1 */
  /* Loop-carried: in each iteration it is the value of `stack` of the module at distance `step`, 1
     or -1; if there is no such module, `initial`. 0: it is not carried. */
  int step, initial;
};

struct values_in_loops {
  int nvalue, room;
  struct in_loop *of; /* by value; values after these belong to no stack */
};

/* ------------------------------------------------------------------------------------- loops.c */

/* The value's row; before the pass, it is in no loop. The row serves until others are written. */
extern const struct in_loop in_no_loop;
const struct in_loop *in_loop(int value);
/* The value's row, for writing. */
struct in_loop *row_in_loop(int value);

#endif
