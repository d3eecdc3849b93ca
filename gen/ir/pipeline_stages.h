/* pipeline_stages.h: the stages of a pipeline. */
#ifndef TPGEN_IR_PIPELINE_STAGES_H
#define TPGEN_IR_PIPELINE_STAGES_H

#include "ir/op.h"

struct graph;

/* A stage is a part of the model, by depth. The ranks at one coordinate of a dimension of the mesh
   compute it: what it makes is At(coordinate) there. */
struct pipeline_stages {
  int n, mesh_dim, line;
  int *coordinate;             /* by stage: of the ranks that compute it */
  const char *schedule;        /* its name: pipeline/orders.c */
  int *first_module;           /* by stage, from 1 on: the module with which it begins */
  const struct graph *program; /* of all stages */
  int here;         /* the coordinate whose program the graph is; NONE: it has all stages */
  int room, *of_op; /* by operation: its stage; NONE: all ranks compute it */
};

#endif
