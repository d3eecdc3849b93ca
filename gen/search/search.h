/* search.h: the automatic search for a plan's settings: --search. */
#ifndef TPGEN_SEARCH_H
#define TPGEN_SEARCH_H

#include "util/util.h"
#include "ir/ir.h"
#include "pipeline/pipeline.h"
#include "lua/lua.h"
#include "report/report.h"

/* A setting of the plan that the search varies, or that the command line pins. value[0] is off: one
   rank, or the default. */
struct searched {
  const char *name, *usual, *with, *without, *divides;
  uint64_t with_any, without_any; /* a bit for each setting that `with` and `without` name */
  enum search_kind kind;
  int n, room;
  const char **value;
  int64_t *number;     /* its values as numbers; 0: it is none */
  bool pinned;         /* by -D or the plan, to its only value */
  bool is_off;         /* pinned, to what is off */
  bool is_defined;     /* of train's parallel: pinned by -D */
  const char *refused; /* it is not varied: what the plan says of its first value; or NULL */
  /* Of a choice whose default the plan refuses where another setting is on, as a way to get the
     keys of other ranks: that setting, or NONE; the index of the first value that it takes there;
     and what it says of the default. */
  int refused_with, first;
  const char *usual_refused;
  int within_memory; /* of kind recompute: the value "memory", or NONE. It makes as much again as
                        a rank's memory needs, by trials of its own: it is tried last */
};

enum { MOST_PROBED = 8, MOST_SEARCHED = 40, MOST_TRIED = 4096, LONGEST_WHY = 640 };

/* The settings, the devices and the batch. */
struct search_space {
  int n;
  struct searched at[MOST_SEARCHED];
  int of_kind[SEARCH_COUNT]; /* the setting of that kind, or NONE */
  int devices, node;         /* in all, and in a node */
  bool is_machine;           /* the devices are the cores of this machine: fewer ranks have more
                                threads each, and a plan has 1, 2, 4 ... ranks */
  int cards;                 /* of a node */
  struct link intra, inter;
  const char *device;
  int64_t batch;   /* samples of a step; 0: the plan says it */
  int batch_at;    /* the plan's setting `batch`, in plan_options; or NONE */
  bool sets_batch; /* the search says it: a sample for each device */
  int64_t memory;  /* of a rank, that it may have; 0: no limit */
  int layers;      /* 0: not known */
  int listed;      /* modules of the list whose members stages begin with; 0: not known */
  int pieces;      /* those of them that run one after the other: of so many stages at most */
  int blocks; /* the same of the blocks of the model, with which more stages begin; 0: not known */
  bool of_parallel; /* the settings are those of train's parallel = auto{...} */
  int ngiven;       /* what the command line defines, or auto{...} says */
  struct definition *given;
  bool declares_cluster; /* the plan has a setting of that name */
};

/* A candidate: the index of a value of each setting. */
struct told {
  double seconds, bytes; /* by the closed form */
};
struct candidate {
  unsigned char v[MOST_SEARCHED];
  int tried;             /* the index of its outcome, or NONE */
  double seconds, bytes; /* by the closed form */
  struct told way[2]; /* the same if gradients of micro-batches are reduced each, and as one sum */
  double order;
};

/* What trials decided about a candidate's program: its check takes it as given. */
enum { MOST_PLACES = 64 };
struct decided {
  bool is_given;
  enum { NO_CHOICE, REDUCED_EACH, ADDED_UP_WHOLE } gradients; /* of several batches */
  struct levels {
    bool is_known;
    int level, n, next;    /* of modules; the first n of them have the next one */
  } of_place[MOST_PLACES]; /* of a pipeline: what is made again within memory */
};

/* What a process found about a candidate. Shared memory. */
struct evaluated {
  bool is_there; /* the program's figures */
  bool stopped;  /* the search ended before */
  struct step_figures step;
  struct model_figures model;
  int operations;  /* of the program */
  int64_t samples; /* of its batch: the first size of its first input; 0: it has none */
  int ranks, devices, node, cards;
  bool has_stages;
  int pieces, listed;         /* of stages: struct search_space */
  bool has_cluster, is_usual; /* is_usual: only the device is known, and not how many */
  bool is_machine;            /* the cluster is this machine */
  struct link intra, inter;
  char device[64];
  int64_t memory, reserve;
  int64_t least_with_whole_sums; /* of a rank's memory, if whole gradients were added up */
  struct decided decided;
  char why[LONGEST_WHY]; /* not: the message */
};

/* ------------------------------------------------------------------------------------- space.c */

/* The settings that the plan declares, before the devices are known; NULL: none varies. */
struct search_space *read_space(void);
/* Those of train's parallel, after the plan was read. */
struct search_space *space_of_parallel(void);
/* What pins a setting: "given by -D". */
char *pinned_by(const struct search_space *s);
/* The definitions of a candidate become the options of tpgen. */
void take_definitions(const struct search_space *s, int n, struct definition *list);
/* The values of all settings, for so many devices. */
void set_values(struct search_space *s);
/* The value of a setting in a candidate, as a text or NULL: the default; the default in its place;
   and as a number of ranks, 1 where the plan has no such setting. */
const char *value_in(const struct search_space *s, const struct candidate *c, int setting);
const char *value_or_usual(const struct search_space *s, const struct candidate *c, int setting);
int64_t ranks_in(const struct search_space *s, const struct candidate *c, enum search_kind kind);
int64_t microbatches_in(const struct search_space *s, const struct candidate *c);
/* Whether the setting has another value than its default; whether it counts: see `with`. */
bool is_on(const struct search_space *s, const struct candidate *c, int setting);
bool counts_in(const struct search_space *s, const struct candidate *c, int setting);
/* The number of combinations of the choices that count; INT64_MAX: that many or more. */
int64_t choices_with(const struct search_space *s, const struct candidate *c);
/* Whether it is one of the names "a,b". */
bool is_named(const char *name, const char *names);
bool is_rank_kind(enum search_kind kind);
/* Whether a plan may have so many ranks in all. */
bool may_have_ranks(const struct search_space *s, int64_t ranks);
/* Whether all settings go together, for the devices and the batch. */
bool is_legal(const struct search_space *s, const struct candidate *c);
/* Settings that do not count become off; choices whose default the plan refuses here get the first
   value that it takes. */
void settle_values(const struct search_space *s, struct candidate *c);
bool same_candidate(const struct search_space *s, const struct candidate *a,
                    const struct candidate *b);
/* Calls f for each legal candidate; choices have their defaults. */
void each_candidate(const struct search_space *s, void (*f)(void *to, const struct candidate *c),
                    void *to);
/* The definitions of a candidate, with those of the command line. */
int definitions_of(const struct search_space *s, const struct candidate *c,
                   struct definition **list);
/* "dp_shard=4 tp=2": what the search says of a candidate. */
char *settings_text(const struct search_space *s, const struct candidate *c);

/* ------------------------------------------------------------------------------- closed_form.c */

/* Figures of the model on one device, with one sample, by the value of the setting of kind
   recompute. */
struct probes {
  struct model_figures of[MOST_PROBED];
  /* The part of a batch's time that does not grow with its samples, and that of a step, which
     micro-batches share. */
  double fixed, once;
  /* Of tensor and of sequences, by the index of a value: on so many ranks the layers take the time
     of one device divided by the ranks, by this factor more. */
  double seconds[2][UINT8_MAX];
  /* By the value of recompute: the factor of the activations grows so much with each rank, as ranks
     keep some of them whole. */
  double bytes[MOST_PROBED][2];
};

/* A sum reads a gradient, and reads and writes its sum: three of an update's seven passes. */
#define ADDING (3.0 / 7)
/* Sets the seconds and bytes of a candidate: an order, no truth. */
void estimate(const struct search_space *s, const struct probes *p, struct candidate *c);
/* Seconds and bytes of the candidate: those of whole sums of gradients where these are quicker and,
   if it holds `factor` times the bytes that were estimated, fit. */
void choose_way(const struct search_space *s, struct candidate *c, double factor);

/* ----------------------------------------------------------------------------------- workers.c */

/* The function that runs in a process of its own: the passes, and the figures of the program. */
typedef void (*evaluator)(struct evaluated *to);
/* Ends after so many seconds, if that is not 0, or at SIGINT. */
void open_workers(evaluator f, double seconds);
bool search_is_over(void);
/* SIGINT ends tpgen again. */
void close_workers(void);
/* The outcome of a job, and its definitions. */
struct job {
  struct evaluated *to;
  const struct search_space *space;
  bool is_checked; /* with all checks of the passes, and the proof that the program cannot hang */
  int ndefinition;
  struct definition *definition;
};
/* Runs all jobs, on all processors, and waits for them. */
void run_jobs(const struct job *job, int n);
/* Room for an outcome that processes share. */
struct evaluated *new_outcome(int *index);
struct evaluated *outcome_at(int index);
int outcomes(void);

/* ------------------------------------------------------------------------------------ search.c */

/* The candidates that were tried, in order, and what was chosen. */
struct found {
  const struct search_space *space;
  int n, room;
  struct candidate *tried;
  int best;       /* index of `tried`, or NONE: nothing fits */
  int closest;    /* if nothing fits: what needs the least memory; or NONE */
  int64_t legal;  /* the number of all legal candidates */
  bool was_ended; /* by time or SIGINT */
};
struct found *search_plan(struct search_space *space, evaluator f);
/* What fits before what does not, then by time, or by bytes; what is refused last. < 0: a first. */
int compare_tried(const struct found *f, int a, int b);
bool candidate_fits(const struct search_space *s, const struct evaluated *o);
/* The memory that a rank of the candidate may have; 0: no limit. Ranks of a machine share its. */
int64_t memory_for(const struct search_space *s, const struct evaluated *o);
/* The number of settings that are on. */
int settings_on(const struct search_space *s, const struct candidate *c);

/* ------------------------------------------------------------------------------------ reason.c */

/* Why the setting has its value in the chosen candidate: its runner-up; or NULL. */
char *reason_for(const struct found *f, int setting);
/* What would help where nothing fits, a line each. */
char *help_to_fit(const struct found *f);

/* ------------------------------------------------------------------------------------ result.c */

/* The table, on standard output. */
void print_found(const struct found *f);
/* search.json. */
void add_search_json(const struct found *f);

/* ------------------------------------------------------------------------------- chosen_plan.c */

/* plan.lua: the plan with the choice written in; and the files that it requires. */
void add_chosen_plan(const struct found *f);

#endif
