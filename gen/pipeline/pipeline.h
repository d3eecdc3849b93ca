/* pipeline.h: schedules of pipeline stages: each rank's actions on stages and micro-batches, in
   order, with its sends and receives. Names and text are those of torch.distributed.pipelining. */
#ifndef TPGEN_PIPELINE_H
#define TPGEN_PIPELINE_H

#include "util/util.h"
#include "ir/ir.h"

/* The letters of a row are PyTorch's: 2F0 is the forward of stage 2 for micro-batch 0. A SEND names
   the stage that has made the tensor, a RECV the stage that takes it. */
/* clang-format off */
#define ACTION_KINDS(X)                                                                            \
  X(ACTION_IDLE, "")                                                                               \
  X(ACTION_F, "F")                     /* forward */                                               \
  X(ACTION_B, "B")                     /* backward, for the input and for the weights */           \
  X(ACTION_I, "I")                     /* backward only for the input */                           \
  X(ACTION_W, "W")                     /* backward only for the weights, after its I */            \
  X(ACTION_OVERLAP, "OVERLAP_F_B")     /* an F and a B, to run together */                         \
  X(ACTION_SEND_F, "SEND_F")                                                                       \
  X(ACTION_RECV_F, "RECV_F")                                                                       \
  X(ACTION_SEND_B, "SEND_B")                                                                       \
  X(ACTION_RECV_B, "RECV_B")                                                                       \
  X(ACTION_UNSHARD, "UNSHARD")         /* parameters are gathered; of no micro-batch */            \
  X(ACTION_RESHARD, "RESHARD")                                                                     \
  X(ACTION_REDUCE_GRAD, "REDUCE_GRAD") /* the stage's gradients are complete */
/* clang-format on */

#define ACTION_KIND(name, letters) name,
enum action_kind { ACTION_KINDS(ACTION_KIND) ACTION_COUNT };
#undef ACTION_KIND

struct action {
  enum action_kind kind;
  int stage, microbatch;             /* of an overlap: those of its F */
  int other_stage, other_microbatch; /* of its B */
};

struct actions {
  int n, room;
  struct action *at;
};

enum { MAX_STAGES = 4096, MAX_MICROBATCHES = 65536, MAX_ACTIONS = 1 << 22 };

struct pipeline {
  int ranks, stages, microbatches;
  int *rank_of;          /* of each stage */
  struct actions *order; /* of each rank */
};

/* ------------------------------------------------------------------------------------- orders.c */

/* The names of the schedules, for messages. */
const char *pipeline_names(void);
bool is_schedule(const char *name);
/* The default number of stages of each rank in a schedule of that name. */
int stages_implied(const char *name);
/* Whether a schedule of that name gains on a simpler one only with several stages of each rank. */
bool is_for_several_stages(const char *name);

/* Why a schedule of that name cannot be so, or NULL. `stages` is a rank's number of stages. */
const char *schedule_fault(const char *name, int ranks, int stages, int microbatches);

/* The computation of the ranks, by time: an idle step is an action, too. `stages` is a rank's
   number of stages. NULL: this schedule cannot be so, and *why says why. */
struct pipeline *pipeline_order(const char *name, int ranks, int stages, int microbatches,
                                const char **why);

/* ----------------------------------------------------------------------------------- lowering.c */

/* The same with the actions between: sends and receives between ranks, parameters that are gathered
   up to three stages ahead, gradients that are complete; without idle steps. NULL: the order cannot
   run, and *why says where it stops. */
struct pipeline *lowered(const struct pipeline *p, const char **why);

/* ----------------------------------------------------------------------------------- validity.c */

/* The fault of an order of computation, or NULL: each stage has each micro-batch's F, then its B,
   or its I and then its W, once, on one rank, and each action's inputs are made before it. */
const char *wrong_order(const struct pipeline *p);

/* The deadlock if a send ends only with its receive, and both at their place, or NULL: the two
   actions that wait. Of lowered schedules. */
const char *what_hangs(const struct pipeline *p);

/* The fault of the sends and receives of a lowered schedule if sends do not wait, or NULL: each has
   its other end, and each received value comes in time. */
const char *wrong_moves(const struct pipeline *p);

struct pipeline_cost {
  int64_t time, *busy; /* of all, and of each rank */
  double idle;         /* the part of all ranks' time in which they do nothing */
  int *in_flight;      /* the most micro-batches of a stage that a rank holds */
  int64_t **begin;     /* when each action of each rank begins */
};
/* An order's times in units: F, I and W take one, B two, an overlap three; sends are free. */
struct pipeline_cost pipeline_cost(const struct pipeline *p);
/* The times of a stage: of F, B, I and W; and of sending the result of a forward, or a backward, to
   the other rank. A rank sends one result after the other in a direction. */
struct stage_times {
  int64_t takes[ACTION_COUNT], sends_forward, sends_backward;
};
struct pipeline_cost pipeline_cost_of(const struct pipeline *p, const struct stage_times *times);

/* ------------------------------------------------------------------------------------ actions.c */

void put_action(struct actions *list, struct action a);

/* Tables by stage and micro-batch: the number of their places, and the place. */
size_t microbatch_places(const struct pipeline *p);
size_t microbatch_place(const struct pipeline *p, int stage, int microbatch);

/* The parts of an action: of an overlap first its F, then its B; of an idle step none. Returns
   their number. */
enum { ACTION_PARTS = 2 };
int action_parts(const struct action *a, struct action part[ACTION_PARTS]);

/* "2F0", "(0F3;3B1)OVERLAP_F_B"; "" of an idle step. */
char *action_text(const struct action *a);

/* A row for each rank, an action in each field: PyTorch's CSV. */
char *pipeline_csv(const struct pipeline *p);

/* Whether it has more than computation: sends, receives, parameters, gradients. */
bool is_lowered(const struct pipeline *p);

/* Reads the longest letters of a kind at *at, and steps over them. */
enum action_kind action_kind(const char **at);
/* Whether such an action says its micro-batch. */
bool has_microbatch(enum action_kind kind);

/* ----------------------------------------------------------------------------------- read_csv.c */

/* Whether it is the name of such a file, and not of a schedule. */
bool is_csv(const char *schedule);
/* The schedule in the text of such a file. NULL: it has none, and *why says why, with the name. */
struct pipeline *read_csv(const char *name, const char *csv, const char **why);
/* The same, but only of a valid schedule, and only its computation, without sends and receives. */
struct pipeline *schedule_of_csv(const char *name, const char *csv, const char **why);

/* ------------------------------------------------------------------------------- actions_here.c */

/* The schedule of the graph's pipeline. NULL: it cannot be so, and *why says why. */
const struct pipeline *pipeline_here(const char **why);
/* The actions of a rank in a step: without idle steps; an overlap's B comes before its F, because
   it frees memory that the F may take. And the actions of the graph's ranks: the graph is of one
   place of a pipeline. */
struct actions actions_of(const struct pipeline *p, int rank);
struct actions actions_here(void);

/* -------------------------------------------------------------------------------------- slots.c */

/* The slots of a rank's stages. A micro-batch has one from its stage's forward to the last action
   of the rank that reads its contents. */
struct rank_slots {
  int n, microbatches;
  struct list stages; /* of the rank */
  int **of;           /* by stage of the rank and micro-batch: its slot */
  int **ends;         /* the same: the last action that needs it */
  int *most;          /* by stage: the most that it has at once */
};

struct rank_slots slots_of_rank(const struct actions *actions);
/* The same of the ranks whose program the graph is. */
struct rank_slots slots_here(void);
/* By slot where it begins, counted from the first one, and the end of the last one: each is as
   large as the largest that it holds. */
int64_t *slot_begins(const struct rank_slots *slots, const struct slots *of_stage);
/* The most bytes in flight at once, if each micro-batch of a stage has so many. */
int64_t most_in_flight(const struct rank_slots *slots, const struct actions *actions,
                       const int64_t *each);
/* The bytes that the rank's stages before this one hold of a micro-batch. */
int64_t bytes_before_stage(int stage);

/* -------------------------------------------------------------------------------------- waits.c */

/* The actions in which ranks would wait for each other forever, or NULL. The pipeline has the edges
   of the graph's. */
const char *stages_wait(const struct pipeline *p);
/* Sets graph->stages->spare_slots: the fewest with which no ranks wait so. */
void find_spare_slots(const struct pipeline *p);
/* Whether such an action does that work. */
bool does_work(enum action_kind kind, enum stage_work work);

#endif
