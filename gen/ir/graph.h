/* graph.h: the data that the passes share.

   The program is a graph: values and operations, each an index into an array, all in one arena.
   Until `redistribute` the graph is global: shapes are whole, and a value's layout says which part
   of it a rank holds. Shapes stay whole afterwards too; a rank's part is always a function of the
   whole shape, the layout and the rank's coordinates (shard.c), so that one graph serves all ranks.

   Each subject has a header of its own: layout.h, value.h, op.h, loops.h, concat_slices.h,
   schedule.h, plan_options.h.
   Nothing is freed: tpgen lives for some milliseconds. */
#ifndef TPGEN_GRAPH_H
#define TPGEN_GRAPH_H

#include "ir/automatic.h"
#include "ir/kernel_forms.h"
#include "ir/layout.h"
#include "ir/loops.h"
#include "ir/op.h"
#include "ir/plan_options.h"
#include "ir/schedule.h"
#include "ir/pipeline_stages.h"
#include "ir/value.h"
#include "ir/concat_slices.h"

/* The module tree. A module's path is its dotted name from the root, "" for the root itself. */
struct module {
  const char *name, *path;
  const char *class_name; /* "Linear" */
  int parent, line;
  int unit; /* the unit of its own parameters, or NONE */
  /* A scan is a list of `steps` steps. Until outline the program has at most three of them: the
     first ones, and the last of all `steps`. 0: it is no scan. */
  int steps;
  /* Of a list: how dear it is to keep what it makes until its backward, which makes it again if
     that is cheaper: graph_passes/recompute.c. Loops are of modules with equal ones. */
  int again;
};

/* The most steps of a scan, and modules of a list. */
enum { LONGEST_LIST = 1 << 16, MAX_CALL_TENSORS = 64 };

/* One call of a module: operations first <= i < last of the flat graph were made inside it.
   Calls are listed in the order in which they began; parent is the enclosing call. */
struct call {
  int module, parent, first, last;
  int within; /* what its operations have as their module: its own, or in a step of a scan one below
                 the step's */
  int nin, in[MAX_CALL_TENSORS];
  int nout, out[MAX_CALL_TENSORS];
};

/* A layout that a style requests of one module, along one dimension of the mesh. */
struct layout_request {
  enum { REQUEST_PARAMETER, REQUEST_INPUT, REQUEST_OUTPUT } what;
  int value; /* REQUEST_PARAMETER */
  int index; /* REQUEST_INPUT, REQUEST_OUTPUT: its number, from 0 */
  struct placement to;
};
struct style {
  const char *name; /* "Rowwise" */
  int module, mesh_dim, line;
  unsigned among; /* until auto() has found mesh_dim: a bit for each dimension that it may be */
  int nrequest;
  struct layout_request *request;
};

/* One call of fully_shard: parameters that are gathered together where the modules of the unit
   first use them, and whose gradients are reduced together. */
struct unit {
  const char *name; /* the path of its first module; "" for the root */
  int module, line; /* its first module; the module of the call */
  const char *who;  /* "fully_shard", "replicate" */
  unsigned shards;  /* a bit for each mesh dimension over which its parameters are sharded */
  unsigned copies;  /* a bit for each over which these shards are replicated */
  unsigned again;   /* of `shards`, those over which the backward gathers again: the forward
                       frees what it gathered over them, and keeps what it
                       gathered over the others */
  int dim;   /* the dimension that is cut, if a tensor has it; negative: counted from the last; or
                ANY_DIM */
  bool once; /* gathered once for all batches of a step, before them */
  bool reduces_each; /* in a step of several batches each batch's gradient is reduced, whatever the
                        plan says otherwise */
  bool sums_whole;   /* whole gradients are added up, and reduced once: driver/reductions.c; else
                        each batch's gradient is reduced */
};
enum { ANY_DIM = MAX_DIMS };

/* The outcome for a collective that async_tp asks for: its number of chunks; 0: it is not cut. */
struct async_tp_result {
  int op, async, pieces;
  int times;                /* in a step */
  int tried;                /* if the model decided: the quickest number of chunks */
  int64_t whole, in_pieces; /* picoseconds for it and its products, whole and in chunks */
  const char *why_not;      /* the reason why it cannot be cut */
};

/* Whole numbers that the plan uses as indices and that may be out of range, as far as tpgen
   knows: each must be at least 0 and less than `below`, or equal `ignored`. below 0: labels are
   computed from this input, which `ignored` pads where a batch lacks samples; it is not checked. */
struct index_use {
  const char *what; /* "embedding": the function that the plan calls */
  int line;         /* of the plan */
  int64_t below, ignored;
  bool ignores;
  int input; /* the input that has these numbers: the runtime checks this rank's part when it
                fills it; or NONE: they are computed, and the operation index_within
                checks them */
  struct shape part;
  int64_t first[MAX_DIMS];
};

/* A search or a check that stopped at its bound, incomplete. */
struct early_end {
  const char *where; /* the pass, or "check" */
  const char *what;  /* what was searched for: "a better order" */
  const char *unit;  /* what was counted: "operations looked at" */
  int64_t most;      /* the bound */
};

/* A part of the program that is emitted as one C function. Functions of phases run in the order in
   which they are listed. One of them calls a loop's body. A body's work for another iteration, or
   for the operations after the loop, is a part of it: a function that the body calls, and that the
   loop's caller calls before or after the loop. */
struct function {
  const char *name;
  enum phase phase;
  int count; /* 1: a phase, or a part for code after a loop; else the number of modules for which it
                is called */
  int stage; /* of a pipeline: whose forward or backward it is; else NONE */
  bool of_weights; /* of a split backward: see STAGE_WEIGHTS */
  bool is_part;    /* a loop's body: the list of modules */
  int body;        /* is_part: a part of this function */
  bool upward;     /* runs from module 0 to the last, or the other way */
  int nop, *op;    /* in execution order */
};

struct graph {
  struct mesh mesh;
  int nvalue, value_room;
  struct value *value;
  int nop, op_room;
  struct op
      *op; /* all operations ever made, except those that remove_unused.c removes: append only */
  int norder, order_room;
  int *order; /* the flat program, until outline: these operations in this order; then empty */
  int nmodule, module_room;
  struct module *module;
  int ncall, call_room;
  struct call *call;
  int nstyle, style_room;
  struct style *style;
  int nunit, unit_room;
  struct unit *unit;
  int ngroup, group_room;
  struct group *group;
  int nfunction, function_room;
  struct function *function;
  int nexchange, exchange_room;
  struct exchange *exchange;
  int ncustom, custom_room;
  struct custom *custom;
  int nindex_use, index_use_room;
  struct index_use *index_use;
  int nfitting_use, fitting_use_room;
  struct index_use *fitting_use; /* while the plan is read: uses that the declared range fits */
  int nasync_tp_result, async_tp_result_room;
  struct async_tp_result *async_tp_result; /* in the order of the functions */
  const char *recomputation; /* what the backward makes again within a given memory, or NULL */
  int nended, ended_room;
  struct early_end *ended;             /* in the order in which they occurred, without repeats */
  struct pipeline_stages *stages;      /* of a pipeline; NULL: there is none */
  struct automatic *automatic;         /* what auto() is to choose; NULL: nothing */
  int loss;                            /* the loss, or NONE: a forward-only program */
  int norm;                            /* the value, or NONE */
  struct values_in_loops *in_loops;    /* NULL: there are no loops */
  struct concat_slices *concat_slices; /* of concat buffers; NULL: there are none */
  struct schedule *schedule; /* decisions about collectives; NULL before the pass `schedule` */
  struct kernel_forms *kernel_forms; /* of fused operations; NULL before the pass `kernel_forms` */
  struct memory_plan *memory;        /* where values are in memory; NULL before the pass `memory` */
};

/* A question, a row of numbers; and the questions asked before, with their answers. */
struct query {
  const struct graph *of;
  int n, room;
  int64_t *at;
};
struct memo {
  const struct graph *of;
  int n, places;               /* questions; places of the table, a power of two */
  struct asked **last;         /* by place: the last question, and through it those before */
  size_t bytes;                /* that questions and answers take, in chunks */
  struct chunk *first, *chunk; /* the first chunk, and that in use */
};

static inline void ask_number(struct query *q, int64_t number)
{
  GROW(q->at, q->n, q->room);
  q->at[q->n++] = number;
}

/* The sizes of so many products of matrices. */
struct product_sizes {
  double count, rows, columns, terms;
};

enum pass {
#define PASS(NAME, name) PASS_##NAME,
#include "ir/passes.h"
#undef PASS
  PASS_COUNT,
  PASS_LAST = PASS_COUNT - 1
};
/* The passes, each in a file of its name in a folder above. */
#define PASS(NAME, name) void name(void);
#include "ir/passes.h"
#undef PASS

/* A copy of the program's functions, its values in loops and the schedule, to go back to: a new
   order is a new list.
   Operations added since then stay in the graph, and nothing runs them. */
struct edit_state {
  int nfunction;
  struct function *function;
  struct values_in_loops in_loops;
  struct schedule schedule;
};

#endif
