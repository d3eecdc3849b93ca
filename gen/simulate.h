/* simulate.h: what simulate.c leaves for those that tell of it: timeline.c, trace.c, streams.c. */
#ifndef SIMULATE_H
#define SIMULATE_H

#include "tpgen.h"

/* One operation as it ran, in picoseconds from the step's begin. */
struct ran {
  int op, module;                        /* module: the number of the loop's, or NONE */
  enum { COMPUTES, COPIES, MOVES } what; /* COPIES: before and after a bucket's collective */
  int stream;                            /* NONE: the arithmetic's; else of this group */
  int64_t begin, end;
  int64_t waited; /* how long the arithmetic has waited for it */
};

/* A step of rank 0; of several batches `ran` has the first one, then the update. */
struct simulated {
  int n, room;
  struct ran *ran;
  double step, computing, moving, waiting; /* seconds; moving: of all collectives together */
};

/* Of the finished program, once. */
const struct simulated *simulated(void);
/* What a collective takes, and how long it is waited for, on the average of its runs. */
void simulated_mean(int op, int64_t *takes, int64_t *waited);

/* Of all ranks together, of inputs that are tokens; 0: there are none. And how much of what a rank
   could multiply it does, by step_flops; 0: it is not known. */
double step_tokens(void);
double step_mfu(void);

#endif
