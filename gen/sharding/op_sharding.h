/* op_sharding.h: the layouts in which an operation may run, and their cost. */
#ifndef TPGEN_SHARDING_OP_SHARDING_H
#define TPGEN_SHARDING_OP_SHARDING_H

#include "util/util.h"
#include "ir/ir.h"

/* One way in which an operation may run on one dimension of the mesh. */
struct choice {
  struct placement in[MAX_INPUTS], out[MAX_OUTPUTS];
  int letter; /* the letter that is cut, or NONE */
  /* A bit for each input that is a count, which is pending because the `place`-th of the dimensions
     over which it counts is cut. */
  unsigned counted;
  int place;
};
/* All legal choices, the one with everything replicated first; returns their number. They include
   strided cuts, and cuts in another order than the mesh's, if an input has them. */
enum { MAX_CHOICES = 64 };

/* How an operation runs: the layouts of its inputs and outputs. */
struct op_sharding {
  struct layout in[MAX_INPUTS], out[MAX_OUTPUTS];
};

/* Which operations read values, while `propagate` walks the program; NONE for none. */
struct def_use {
  int *asked_of;     /* by value: the plan's redistribute of it */
  int *taken_by;     /* by value: the first reader that is not a redistribute */
  int *moved_to;     /* by value: the last redistribute already made of it */
  int *moved_before; /* by operation: the redistribute before it, of the same value */
};

/* The number of combinations that are weighed for an operation, and each time for the next one.
   Bits: the bounds that ended the choice of a sharding early. */
enum { MOST_COMBINATIONS = 100000, MOST_AHEAD = 1500 };
enum { TOO_MANY_AHEAD = 1, TOO_MANY_COMBINATIONS = 2 };

/* The state of the choice of a sharding. The choice reads the graph and changes nothing in it. */
struct chooser {
  struct cost_model *m;
  const struct def_use *uses;
  int assumed; /* a value that has this layout for now; or NONE */
  struct layout assumed_layout;
  unsigned ended_early;
  bool takes_any; /* also combinations that leave work undivided which the inputs' cuts divide */
};

/* The cost of a sharding, or a part of it. */
struct price {
  double bytes;
  int sums, moves;
  int apart;   /* mesh dimensions where a gradient's layout differs from its value's */
  int refused; /* the plan's requests for the output that cannot be met */
};

/* A way in which an operation may run, and the bytes that it moves by itself. */
struct priced_sharding {
  struct op_sharding sharding;
  double bytes;
};

#endif
