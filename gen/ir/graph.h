/* graph.h: the data that the passes share.

   The program is a graph: values and operations, each an index into an array, all in one arena.
   Until `redistribute` the graph is global: shapes are whole, and a value's layout says which part
   of it a rank holds. Shapes stay whole afterwards too; a rank's part is always a function of the
   whole shape, the layout and the rank's coordinates (shard.c), so that one graph serves all ranks.

   Each subject has a header of its own: layout.h, value.h, op.h, schedule.h, plan_options.h.
   Nothing is freed: tpgen lives for some milliseconds. */
#ifndef TPGEN_GRAPH_H
#define TPGEN_GRAPH_H

#include "ir/kernel_forms.h"
#include "ir/layout.h"
#include "ir/op.h"
#include "ir/plan_options.h"
#include "ir/schedule.h"
#include "ir/value.h"

/* The module tree. A module's path is its dotted name from the root, "" for the root itself. */
struct module {
  const char *name, *path;
  const char *class_name; /* "Linear" */
  int parent, line;
  int unit; /* to which its own parameters belong, or NONE */
};

/* One call of a module: operations first <= i < last of the flat graph were made inside it. Calls
   are in the order in which they began; parent is the call around it. */
struct call {
  int module, parent, first, last;
  int nin, in[MAX_INPUTS];
  int nout, out[MAX_INPUTS];
};

/* What a style asks of one module, along one dimension of the mesh. */
struct layout_request {
  enum { REQUEST_PARAMETER, REQUEST_INPUT, REQUEST_OUTPUT } what;
  int value; /* WISH_PARAMETER */
  int index; /* WISH_INPUT, WISH_OUTPUT: which of them, from 0 */
  struct placement to;
};
struct style {
  const char *name; /* "Rowwise" */
  int module, mesh_dim, line;
  int nrequest;
  struct layout_request *request;
};

/* Parameters that are gathered together, where the modules of the unit first use them, and whose
   gradients are reduced together: one call of fully_shard. */
struct unit {
  const char *name; /* the path of its first module; "" for the root */
  int module, line; /* its first module; of the call */
  const char *who;  /* "fully_shard", "replicate" */
  unsigned shards;  /* a bit for each mesh dimension over which its parameters are kept cut */
  unsigned copies;  /* and for each over which these parts are kept alike */
  unsigned again;   /* of `shards`, those over which it is gathered again for the backward: what was
                       gathered over them is given up after the forward, over the others kept */
  int dim;          /* that is cut where there is such, negative: from the last; or ANY_DIM */
  bool once;        /* it is gathered for all batches of a step, ahead of them */
  bool reduces_each; /* where a step takes several batches: the gradients of each, not their sum */
};
enum { ANY_DIM = MAX_DIMS };

/* What became of a collective that async_tp asks for: in how many pieces it is, 0: it is whole. */
struct async_tp_result {
  int op, async, pieces;
  int times;                /* in a step */
  int tried;                /* where the model decided: how many pieces are quickest */
  int64_t whole, in_pieces; /* picoseconds that it and its products take, whole and in so many */
  const char *why_not;      /* it cannot be cut */
};

/* Whole numbers that the plan uses as indices and that may be out of range, as far as tpgen knows:
   each must be at least 0 and less than `below`, or `ignored`. */
struct index_use {
  const char *what; /* "embedding": the function that the plan calls */
  int line;         /* of the plan */
  int64_t below, ignored;
  bool ignores;
  int input; /* the input whose numbers they are, unchanged: the runtime looks at those of this part
                of it when it fills it; or NONE: they are computed, and the operation index_within
                looks at them */
  struct shape part;
  int64_t first[MAX_DIMS];
};

/* A search, or a check, that its bound ended before all was looked at. */
struct early_end {
  const char *where; /* the pass, or "check" */
  const char *what;  /* "a better order" */
  const char *unit;  /* "operations looked at" */
  int64_t most;      /* of these */
};

/* A run of the program that is emitted as one C function. The phases' functions run in the order in
   which they stand; a loop's body is called by one of them. What a body does for another
   iteration, or for what follows the loop, is a part of it: a function that the body calls, and the
   loop's caller around the loop. */
struct function {
  const char *name;
  enum phase phase;
  int count;    /* 1: a phase, or a part for what follows a loop; else how many modules of a list it
                   is called for */
  bool is_part; /* of a loop's body */
  int body;     /* is_part: of which function */
  bool upward;  /* from module 0 to the last, or back */
  int nop, *op; /* in the order in which they run */
};

struct graph {
  struct mesh mesh;
  int nvalue, value_room;
  struct value *value;
  int nop, op_room;
  struct op *op; /* all there ever were, but for what drop.c takes out: append only */
  int norder, order_room;
  int *order; /* the flat program, until outline: these operations, in this order; then empty */
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
  int nasync_tp_result, async_tp_result_room;
  struct async_tp_result *async_tp_result; /* in the order of the functions */
  int nended, ended_room;
  struct early_end *ended;   /* in the order in which they were met, each once */
  int loss;                  /* the value that is trained down, or NONE: a forward-only program */
  int norm;                  /* the value, or NONE */
  struct schedule *schedule; /* of collectives; NULL before the pass `schedule` */
  struct kernel_forms *kernel_forms; /* of fused operations; NULL before the pass `kernel_forms` */
  struct memory_plan *memory;        /* where values lie; NULL before the pass `memory` */
};

/* A question, a row of numbers, and those that were asked before. */
struct query {
  const struct graph *of;
  int n, room;
  int64_t *at;
};
struct memo {
  const struct graph *of;
  int n, room, places;
  struct asked *asked;
  int *last;
};

static inline void ask_number(struct query *q, int64_t number)
{
  GROW(q->at, q->n, q->room);
  q->at[q->n++] = number;
}

/* By name, or NULL, and the names that there are; what the plan tells, else the CUDA
   target's, else NULL. How many seconds products of these sizes, attention of so many operations,
   or reading and writing so many bytes takes. */
struct product_sizes {
  double count, rows, columns, terms;
};

/* Values that are told as one: the members' names are `name`, a number from 0 on, `rest`. Of one
   value alone `name` is all of it, and `rest` NULL. */
struct family {
  const char *name, *rest;
  struct list member;
};
struct families {
  int n;
  struct family *at;
};

enum pass {
#define PASS(NAME, name) PASS_##NAME,
#include "ir/passes.h"
#undef PASS
  PASS_COUNT,
  PASS_LAST = PASS_COUNT - 1
};

/* The program's functions and the schedule as they were, to go back to: a new order is a new list.
   Operations that were added since stay, and nothing runs them. */
struct edit_state {
  int nfunction;
  struct function *function;
  struct schedule schedule;
};

#endif
