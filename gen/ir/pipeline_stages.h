/* pipeline_stages.h: the stages of a pipeline. */
#ifndef TPGEN_IR_PIPELINE_STAGES_H
#define TPGEN_IR_PIPELINE_STAGES_H

#include "ir/op.h"

struct graph;

/* What a stage computes for a micro-batch. Where its schedule splits the backward, STAGE_BACKWARD
   has what the gradient of the stage's input needs, and STAGE_WEIGHTS the rest. */
enum stage_work { STAGE_FORWARD, STAGE_BACKWARD, STAGE_WEIGHTS, STAGE_WORKS };

/* For each micro-batch, something that the one makes and the other reads. */
struct stage_edge {
  int from, to; /* stages */
  enum stage_work made, read;
};

/* A stage is a part of the model, by depth. The ranks at one coordinate of a dimension of the mesh
   compute it: what it makes is At(coordinate) there. */
struct pipeline_stages {
  int n, mesh_dim, line;
  int *coordinate;            /* by stage: of the ranks that compute it */
  bool *is_split;             /* by stage: its backward is in two parts */
  const char *schedule;       /* its name: pipeline/orders.c; or that of a file */
  const char *csv;            /* the text of that file, or NULL */
  int *first_module;          /* by stage, from 1 on: the module with which it begins */
  int nmay_begin, *may_begin; /* if the plan does not say: the modules with which one may begin */
  int spare_slots; /* of each stage, beyond its micro-batches in flight: pipeline/waits.c */
  int nedge, edge_room;
  struct stage_edge *edge; /* between stages, without repeats */
  struct graph *program;   /* of all stages */
  int here;                /* the coordinate whose program the graph is; NONE: it has all */
  int room;
  struct work_of_stage {
    int stage;       /* NONE: all ranks compute it */
    bool of_weights; /* see STAGE_WEIGHTS */
  } * of_op;         /* by operation, until outline */
};

#endif
