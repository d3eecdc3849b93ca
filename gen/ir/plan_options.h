/* plan_options.h: what the plan asks for, beside the model and its placements. The front end writes
   it, and no pass changes it. */
#ifndef TPGEN_IR_PLAN_OPTIONS_H
#define TPGEN_IR_PLAN_OPTIONS_H

#include "ir/op.h"

struct optimizer {
  const char *name; /* "AdamW", "SGD" */
  double lr, beta1, beta2, eps, weight_decay, momentum;
  bool nesterov;
  int line;
};

/* Of the learning rate: up to the optimizer's along a line, in the steps 1 to `warmup`, then down
   to `least` of it along a cosine, in the steps to `steps`. steps 0: it stays as it is. */
struct rates {
  int warmup, steps;
  double least;
};

/* Whether the modules of a list are given their gathered parameters ahead, by how many modules at
   most: loop_carried.c. */
enum prefetch { PREFETCH_WHERE_IT_PAYS, PREFETCH_NOTHING, PREFETCH_ALL };
enum { MOST_PREFETCHED = 4 };

/* Which collectives the pass `bucket` makes one of: as units, memory and the links say; those that
   follow one another (bucket_select.c); none. */
enum bucketing { BUCKETS_BY_UNIT, BUCKETS_GREEDY, BUCKETS_NONE };

/* What parallelize was given as async_tp for a module: in how many pieces collectives over the
   dimension of the mesh are cut, 0: as the model says. async_tp.c: whether any can be. */
struct async {
  int module, mesh_dim, pieces, line;
  bool met;
};

/* What becomes of a data set's last samples where they are no whole batch: the runtime's
   program.h. */
enum last_batch { LAST_UNTOLD, LAST_SMALLER, LAST_DROPPED };

struct plan_options {
  const char *path; /* the plan's, as it appears in messages and in the output */
  const char *hash; /* 16 hexadecimal digits: of all that decides the output */
  bool greedy;      /* redistributions by the greedy planner, else by the fastest way */
  bool tf32;        /* products may round what they take of float32 to TF32 */
  bool checkpoint;  /* of each module of a list only the inputs are kept for its backward */
  enum prefetch prefetch;
  int prefetched; /* how many modules ahead */
  enum bucketing bucketing;
  int ncap; /* the most that goes into the first bucket of a kind, the second, ...: the last is that
               of all that follow; 0: the pass chooses */
  int64_t cap[MAX_CAPS]; /* bytes */
  int nasync, async_room;
  struct async *async;
  int train_line;
  int steps;
  uint64_t seed;
  struct {
    bool told;
    int most[OP_COUNT]; /* of each collective, in a step */
    int line;
  } expected; /* what the plan says by expect */
  struct optimizer optimizer;
  struct rates rates;
  double clip;     /* gradients are scaled so that the norm of them all is at most this; 0: they are
                      left alone */
  bool wants_norm; /* it is computed */
  int accumulate;  /* a step's gradients are the mean of those of so many batches */
  bool reduce_each_batch; /* gradients that are cut over ranks in the end are so before they are
                             added up */
  bool shuffles;          /* each epoch of a data set has an order of its own */
  uint64_t shuffle;       /* by this seed */
  enum last_batch last_batch;
  bool validates;              /* the loss of each batch is whole after its forward */
  const char *validation_data; /* a file, or NULL */
  int validate_every;          /* a validation after so many steps; 0: the runtime says */
  int validate_steps;          /* of so many batches; 0: of all */
};

#endif
