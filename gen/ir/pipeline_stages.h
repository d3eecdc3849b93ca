/* pipeline_stages.h: the stages of a pipeline. */
#ifndef TPGEN_IR_PIPELINE_STAGES_H
#define TPGEN_IR_PIPELINE_STAGES_H

#include "ir/op.h"

struct graph;
struct function;
struct pipeline;

/* The work of a stage for a micro-batch. If its schedule splits the backward, STAGE_BACKWARD has
   the operations that the gradient of the stage's input needs, and STAGE_WEIGHTS the rest. */
enum stage_work { STAGE_FORWARD, STAGE_BACKWARD, STAGE_WEIGHTS, STAGE_WORKS };

/* For each micro-batch, something that the one makes and the other reads. */
struct stage_edge {
  int from, to; /* stages */
  enum stage_work made, read;
};

/* The sends and receives of the two ends of an edge in a step, as the places of a pipeline are
   planned one by one: in order, each tag after its micro-batch. */
struct edge_ends {
  bool known[2];
  struct list did[2]; /* sends, receives */
};

/* Inputs of tokens [batch, sequence] and of labels, which samples made of texts fill. */
struct text_inputs {
  int rows;                     /* of a line: 1, or 2 of pairs */
  int64_t sequence, vocabulary; /* 0: there are none */
  int64_t batch;
  const char *input, *target;
  const char *ends;   /* NULL, or 1 where a text of a sample ends */
  const char *rating; /* NULL, or 1 where an answer is good, and 0 where it is bad */
};

/* Facts about the program of all stages, for the programs of single places. */
struct all_stages {
  double flops[2];         /* see forward_flops() */
  bool gathers_each_batch; /* see the functions of these names */
  bool has_row_bounds, has_values_by_rows, multiplies_by_onednn, has_step_number;
  struct text_inputs text;
};

/* A stage is a part of the model, by depth. The ranks at one coordinate of a dimension of the mesh
   compute it: its results are At(coordinate) there. */
struct pipeline_stages {
  int n, mesh_dim, line;
  int *coordinate;              /* by stage: of the ranks that compute it */
  bool *is_split;               /* by stage: its backward is in two parts */
  const char *schedule;         /* its name: pipeline/orders.c; or that of a file */
  const char *csv;              /* the text of that file, or NULL */
  const struct pipeline *order; /* the schedule, once pipeline_here() has made it */
  int *first_module;            /* by stage, from 1 on: the module with which it begins */
  int nmay_begin, *may_begin;   /* if the plan does not say: the modules with which one may begin */
  int npiece;                   /* then: the parts between these that run, each a stage at least */
  int spare_slots; /* of each stage, beyond its micro-batches in flight: pipeline/waits.c */
  int nedge, edge_room;
  struct stage_edge *edge; /* between stages, without repeats */
  struct edge_ends *ends;  /* by group: match_transfers.c */
  struct edge_ends *joins; /* did[0]: the collectives of several stages' ranks */
  struct all_stages *all;  /* one record for the graphs of all places */
  int here;                /* the coordinate whose program the graph is; NONE: it has all */
  int room;
  struct work_of_stage {
    int stage;       /* NONE: all ranks compute it */
    bool of_weights; /* see STAGE_WEIGHTS */
  } * of_op;         /* by operation, until outline */
};

/* --------------------------------------------------------------------------- pipeline_stages.c */

/* Until outline: the stage of an operation; NONE: all ranks compute it. And whether it is of that
   part of a split backward. */
void set_stage(int op, int stage);
void set_of_weights(int op);
/* As the other one, if that one is of a stage. */
void set_stage_of(int op, int like);
/* The operation gets another number; NONE: it goes. */
void move_stage(int op, int to);
int stage_of(int op);
bool is_of_weights(int op);
enum stage_work stage_work(int op);                         /* of the forward or the backward */
enum stage_work work_of_function(const struct function *f); /* the same of a stage's function */
int coordinate_of_stage(int stage);
/* Whether the graph's ranks compute it, and how many they compute. */
bool is_stage_here(int stage);
int stages_here(void);
void add_stage_edge(struct stage_edge edge);
/* The last stage of the same ranks that reads or makes a value that is kept with that one: itself
   mostly. */
int last_stage_with(int stage);
/* Whether both are sends, or receives, from one stage to one other. */
bool is_same_way(const struct op *a, const struct op *b);
/* Whether ranks of several stages join in it, each by the program of its own. */
bool joins_stages(const struct op *op);
/* Whether the later one stays behind the earlier one, as in the programs of other stages: both are
   of the same way, or both join stages. */
bool keeps_stage_order(const struct op *a, const struct op *b);
/* The group over which it goes; NONE: that of all stages. */
int edge_of(const struct op *transfer);
void make_edges(void); /* adds those of all transfers */
/* Whether it is a receive that is posted ahead of the action that reads it. */
bool is_posted(const struct op *op);
/* Whether that dimension of the mesh has the stages of a pipeline. */
bool is_over_stages(int mesh_dim);
/* Whether the graph is the program of that rank. */
bool runs_here(int rank);

#endif
