/* decide.h: what decide.c and combine.c share: the prices of an operation's ways. */
#ifndef DECIDE_H
#define DECIDE_H

#include "tpgen.h"

/* What a way costs, or a part of it. */
struct price {
  double bytes;
  int sums, moves;
  int apart;   /* dimensions of the mesh on which a gradient does not lie as its value */
  int refused; /* what the plan asks of the output that cannot be made of it */
};

/* ------------------------------------------------------------------------------------- decide.c */

/* What it costs to have an operand of the operation in a layout. The o-th one is an input, or
   output o - nin. */
struct price price_of_operand(const struct op *op, int o, struct layout layout);
/* Whether the engine takes a value from one placement to the other unasked. */
bool leads(struct placement from, struct placement to);
/* The operation that takes first what `op` makes; NULL where that one's price is not known yet, or
   the plan asks for the output. */
const struct op *taken_next(const struct op *op);

/* ------------------------------------------------------------------------------------ combine.c */

/* The cheapest of all combinations of the operation's choices. Replicating everything is always
   one. */
struct way cheapest(const struct op *op, const struct letters *l);
/* The operation whose price counts, too, when it is decided how `op` runs, or NULL. */
const struct op *op_ahead(const struct op *op);

#endif
