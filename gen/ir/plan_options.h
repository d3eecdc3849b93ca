/* plan_options.h: the plan's options, apart from the model and its placements. The front end writes
   them, and no pass changes them. */
#ifndef TPGEN_IR_PLAN_OPTIONS_H
#define TPGEN_IR_PLAN_OPTIONS_H

#include "ir/op.h"
#include "ir/optimizer.h"

/* Prefetching: whether the modules of a list get their gathered parameters early, and by at most
   how many modules: loop_carried.c. */
enum prefetch { PREFETCH_WHERE_IT_PAYS, PREFETCH_NOTHING, PREFETCH_ALL };
enum { MOST_PREFETCHED = 4 };

/* Which collectives the pass `bucket` merges: by FSDP unit, memory and the cost model;
   consecutive ones up to a size (bucket_select.c); none. */
enum bucketing { BUCKETS_BY_UNIT, BUCKETS_GREEDY, BUCKETS_NONE };

/* The async_tp option of parallelize for a module: the number of chunks for collectives over the
   dimension of the mesh, 0: by the cost model. async_tp.c decides whether any can be cut. */
struct async {
  int module, mesh_dim, pieces, line;
  bool met;
};

/* The treatment of a data set's last samples if they are no whole batch: the runtime's
   program.h. */
enum last_batch { LAST_NOT_GIVEN, LAST_SMALLER, LAST_DROPPED };

/* What a setting that a search varies is of the parallel plan. Those up to RANKS are numbers of
   ranks. */
#define SEARCH_KINDS(X)                                                                            \
  X(NO_SEARCH, "")                                                                                 \
  X(SEARCH_COPIES, "copies") /* of the parameters, for parts of the batch */                       \
  X(SEARCH_SHARDS, "shards") /* of the batch, parameters, gradients and states */                  \
  X(SEARCH_DATA, "data")     /* the product of both */                                             \
  X(SEARCH_TENSOR, "tensor")                                                                       \
  X(SEARCH_STAGES, "stages")                                                                       \
  X(SEARCH_SEQUENCES, "sequences")                                                                 \
  X(SEARCH_EXPERTS, "experts") /* ranks of data */                                                 \
  X(SEARCH_RANKS, "ranks")     /* any other dimension of the mesh */                               \
  X(SEARCH_MICROBATCHES, "microbatches")                                                           \
  X(SEARCH_SCHEDULE, "schedule")                                                                   \
  X(SEARCH_STAGES_OF_RANK, "stages_of_rank")                                                       \
  X(SEARCH_ZERO, "zero")                                                                           \
  X(SEARCH_RECOMPUTE, "recompute")                                                                 \
  X(SEARCH_CHOICE, "choice")
#define SEARCH_KIND(name, word) name,
enum search_kind { SEARCH_KINDS(SEARCH_KIND) SEARCH_COUNT };
#undef SEARCH_KIND
extern const char *const search_kind_name[SEARCH_COUNT];

/* A setting that the plan declares: -D NAME=VALUE gives it a value. */
struct setting {
  const char *name, *type; /* a type of prelude/language/settings.lua, or the choices: "a|b|size" */
  const char *usual;       /* the default, or "" */
  const char *about, *title;
  /* How an automatic search may vary it: the program computes the same with each value. */
  enum search_kind search;
  int nvalue;
  const char **value;         /* that it tries beside the default; none: the kind says them */
  const char *with, *without; /* names, "a,b": only where those are more than their defaults; not */
  const char *divides;        /* a name: the values are that one's divisors; or "" */
  bool is_pinned;             /* of train's parallel: to this value; NULL: what is off */
  const char *pinned;
  bool is_defined; /* by -D */
};

/* What train's parallel leaves to a search, or what stands there. */
struct parallel_plan {
  bool is_asked;
  int line;
  int64_t samples; /* of the batch */
  int blocks;      /* where a stage may begin, and the first one */
  int nunit;       /* the patterns of fully_shard's units */
  const char **unit;
  const char *styles; /* that auto() chose, a line each */
};

/* The value of a setting, for report.html; is_given: by -D or pin. */
struct shown_setting {
  const char *name, *value;
  bool is_given;
};

/* What the caches of a program keep that is cut along time: each operation's own input; or what its
   input can be made of again, where that is smaller; or what the judge takes. */
enum cache_choice { CACHES_OF_INPUTS, SMALL_CACHES, CACHES_BY_COST };

struct plan_options {
  const char *path; /* the plan's path, as messages and the output show it */
  const char *hash; /* 16 hexadecimal digits: a hash of everything that decides the output */
  bool greedy;      /* redistributions by the greedy planner, else by the fastest way */
  bool tf32;        /* products of float32 may round their operands to TF32 */
  bool checkpoint;  /* the backward of each module of a list keeps only the module's inputs */
  bool selective;   /* and the results of products, attention and sums over ranks */
  int64_t within;   /* the backward makes again what a rank has no room for in so many bytes; -1: in
                       its memory, by the device or the mesh; 0: it is not asked */
  enum prefetch prefetch;
  int prefetched; /* how many modules ahead */
  bool overlap;   /* collectives run beside arithmetic also where the target has no streams */
  enum bucketing bucketing;
  int ncap; /* the largest size of the first bucket of a kind, the second, ...; the last one
               holds for all that follow; 0: the pass chooses */
  int64_t cap[MAX_CAPS]; /* bytes */
  int nasync, async_room;
  struct async *async;
  int nsetting, setting_room;
  struct setting *setting; /* only where options.help, or train's parallel is asked for */
  struct parallel_plan parallel;
  int nshown, shown_room;
  struct shown_setting *shown; /* only with options.report */
  int train_line;
  int steps;
  uint64_t seed;
  struct {
    bool given;
    int most[OP_COUNT]; /* counts of each collective in a step */
    int line;
  } expected;     /* limits that the plan gives by expect */
  int noptimizer; /* 0: nothing is trained. The first is of all parameters that no group has */
  struct optimizer *optimizer;
  double clip;     /* gradients are scaled so that their norm is at most this; 0: they are not */
  bool wants_norm; /* the norm is computed */
  bool norm_of_largest; /* it is the largest element's, of order infinity; else the root of squares
                         */
  int accumulate;       /* a step's gradients are the mean over so many batches */
  bool reduce_each_batch; /* the plan says that each batch's gradients are reduced */
  const char *reductions; /* what became of that, and why; or NULL */
  bool shuffles;          /* each epoch of a data set has an order of its own */
  uint64_t shuffle;       /* by this seed */
  enum last_batch last_batch;
  bool validates;              /* the loss of each batch is whole after its forward */
  const char *validation_data; /* a file, or NULL */
  const char *validated;       /* metrics of validations, lines of "NAME BY_MEAN", or NULL */
  bool says_validated;         /* the plan says which, so they know the samples of a batch */
  const char *adapter;         /* PEFT's adapter_config.json of the plan's adapters, or NULL */
  double adapter_scale;        /* the weight that is adapted is W + scale B A */
  const char *transposed;      /* weights, a line each, to which B A is added the other way round */
  const char *exports;         /* patterns of what an export has, parted by "|", or NULL: all */
  const char *notes;           /* to the user, a line each, or NULL */
  const char *weights;         /* a file of initial values, or NULL */
  const char *exported;        /* the CRC-32 of the program in that archive, or NULL */
  bool emits_library;          /* a library as well as the program */
  const char *library_name;    /* or NULL */
  int validate_every;          /* a validation after so many steps; 0: the runtime says */
  int validate_steps;          /* of so many batches; 0: of all */
  struct {
    int slots;       /* sequences that are generated side by side; 0: the program generates none */
    int context;     /* the most tokens of a sequence */
    int prefill;     /* tokens of a prompt that one call takes */
    int caches;      /* enum cache_choice */
    const char *why; /* that choice, where it was tried; or NULL */
  } generate;
};

#endif
