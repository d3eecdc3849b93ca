/* decisions.h: --explain-cost: what tpgen decides about a value or a module, and its alternatives.
 */
#ifndef TPGEN_IR_DECISIONS_H
#define TPGEN_IR_DECISIONS_H

#include "ir/graph.h"

enum { MOST_DECISIONS = 256, MOST_ALTERNATIVES = 8, LONGEST_SUBJECT = 256, LONGEST_WAY = 320 };

/* One way to decide, in words that no other one has; its bytes and seconds by the model of the
   pass, negative where it has none. */
struct alternative {
  const char *way;
  double bytes, seconds;
};

/* The decisions that a process notes for the one that began it: shared memory. */
struct noted_decisions {
  bool is_named;  /* a value or a module has the name */
  bool left_some; /* there were more decisions */
  int n;
  struct noted_decision {
    char kind[32], subject[LONGEST_SUBJECT];
    int n, taken;
    struct noted_alternative {
      char way[LONGEST_WAY];
      double bytes, seconds;
    } at[MOST_ALTERNATIVES];
  } at[MOST_DECISIONS];
};

/* --------------------------------------------------------------------------------- decisions.c */

/* --explain-cost is given: passes ask the following. */
bool are_decisions_explained(void);
/* Whether it asks about the value, an operand of the operation, or a module around them. */
bool is_value_explained(int value);
bool is_op_explained(const struct op *op);
bool is_module_explained(int module);
/* The name with a star for each number of a module: that of all layers. */
const char *starred_name(const char *name);
/* The way that a decision has to take in this process; NULL: the pass decides. */
const char *forced_way_of(const char *kind, const char *subject);
/* Notes a decision, or notes it anew: the pass takes list[taken]. Of equal ways the first counts.
 */
void note_decision(const char *kind, const char *subject, const struct alternative *list, int n,
                   int taken);
/* A later decision leaves this one without a meaning. */
void forget_decision(const char *kind, const char *subject);
/* Notes whether any value or module of the flat program has the name. */
void note_names(void);
/* Decisions are noted there; NULL: nowhere. */
void note_decisions_in(struct noted_decisions *to);
/* From now on that decision is taken that way. */
void force_decision(const char *kind, const char *subject, const char *way);

#endif
