/* ways.h: in which layouts an operation may run, and what that costs. */
#ifndef TPGEN_SHARDING_WAYS_H
#define TPGEN_SHARDING_WAYS_H

#include "base/base.h"
#include "ir/ir.h"

/* One way in which an operation may run on one dimension of the mesh. */
struct choice {
  struct placement in[MAX_INPUTS], out[MAX_OUTPUTS];
  int letter; /* that is cut, or NONE */
};
/* All legal ways, the one with everything replicated first; gives how many. Cuts in strides, and
   those in another order than the mesh's, are among them where an input lies so. */
enum { MAX_CHOICES = 64 };

/* How an operation runs: where it takes its inputs, and where its outputs lie. */
struct way {
  struct layout in[MAX_INPUTS], out[MAX_OUTPUTS];
};
/* What is known around it, while `propagate` goes through the program; NONE where there is none. */
struct surroundings {
  int *asked_of;     /* by value: the plan's redistribute of it */
  int *taken_by;     /* by value: the first operation that takes it, but redistributes */
  int *moved_to;     /* by value: the last redistribute already made of it */
  int *moved_before; /* by operation: the redistribute before it, of the same value */
};

/* What DTensor's rules say of an operation: it runs as its inputs lie, or on other layouts, or
   not. */
struct ruling {
  enum { RULE_RUNS, RULE_RESHARDS, RULE_ERROR } what;
  struct layout out;            /* RULE_RUNS */
  struct layout in[MAX_INPUTS]; /* RULE_RESHARDS: what the inputs should become */
  char error[96];               /* RULE_ERROR */
};
/* An operation as the rules see it. */
struct ruled {
  int nin;
  struct shape shape[MAX_INPUTS];
  struct layout layout[MAX_INPUTS];
  bool linear;
  const struct layout *enforce; /* pointwise_rule: of what is written in place; or NULL */
};

/* What a way costs, or a part of it. */
struct price {
  double bytes;
  int sums, moves;
  int apart;   /* dimensions of the mesh on which a gradient does not lie as its value */
  int refused; /* what the plan asks of the output that cannot be made of it */
};

#endif
