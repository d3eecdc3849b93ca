/* hoist_constants.c: the pass `hoist_constants`: values that are the same in every step are
   computed once.

   Takes   the flat local program.
   Leaves  in the phase CONSTANTS, before all others, the operations that make values only from
           constants and indices: rotary tables, masks, positions. They run once, before the first
           step, and the results that the step reads stay in the arena: memory.c. The step reads
           these instead of its own values; outline.c removes the values that nothing reads any
           more. Equal values become one, so all modules of a list read the same.

   A cheap value that fits into the kernel that reads it is made there in each step: an index, a
   comparison, a broadcast. A value is computed once if

     it costs         its operation calls a function, or is no pointwise one
     or is stored     its reader takes no operation into its kernel, reads it at other places than
                      its own, or belongs to another module of a list

   and if it fits into the room. The pass leaves random numbers, collectives and values that depend
   on a parameter unchanged; the steps of a scan, which stay equal, and the values with which it
   begins, which it may write over; and a program that takes only one step. */
#include "graph_passes/graph_passes.h"

#include <string.h>

enum fit { UNKNOWN, FITS, DOES_NOT_FIT };

/* The state of the pass. */
struct hoisting {
  struct entering enters; /* the values with which scans begin */
  bool *invariant;        /* by operation: it makes the same result in every step */
  bool *of_step;          /* by operation: the step runs it */
  bool *kept;             /* by value: it is computed once */
  int *equal;             /* by value: the first one that is equal to it */
  int *copy;              /* by the first of equal values: the value that CONSTANTS makes for it, or
                             NONE */
  const int *element;     /* by module: itself or its ancestor that is in a list, or NONE */
  struct memo constants;  /* the operations of constants */
  struct list made;       /* the operations of the new phase */
  int64_t room;           /* bytes that may still be kept */
  enum fit *fits;         /* by the first of equal values: whether it fits into the room */
  struct list *readers;   /* by value: each operation that reads it, and the input's index */
};

/* ------------------------------------------------------------------------- invariant operations */

static bool is_invariant(struct hoisting *h, const struct op *op)
{
  if (!is_of_batch(op->phase)) return false;
  for (int i = 0; i < op->nin; i++) { /* first: of most operations the first input varies */
    int maker = graph->value[op->in[i]].op;
    if (maker == NONE || !h->invariant[maker]) return false;
  }
  /* Whether its results depend only on its inputs, and it has no other effect. */
  const struct op_row *row = &op_row[op->kind];
  bool is_function = !knows_step(op) && !row->updates && !is_collective(op->kind) && !op->of_unit &&
                     op->kind != OP_index_within && op->kind != OP_running &&
                     op->kind != OP_custom && op->kind != OP_pack && op->kind != OP_unpack &&
                     row->step != PIECES_PACKING && op->nout &&
                     (*rule_of(op) || row->step == LOCAL_STEP);
  if (!is_function || enters_scan(&h->enters, op->out) || scan_around(op->module) != NONE)
    return false;
  for (int k = 0; k < op->nout; k++) {
    const struct value *v = &graph->value[op->out + k];
    if (!(v->role == ACTIVATION && !v->is_output && op->out + k != graph->loss &&
          op->out + k != graph->norm) ||
        is_of_microbatch(op->out + k))
      return false;
  }
  return true;
}

/* --------------------------------------------------------------------- the values that are kept */

static int element_of(struct hoisting *h, const struct op *op)
{
  return op->module == NONE ? NONE : h->element[op->module];
}

/* Whether the input has one element for each row of the reader's space: a kernel makes that,
   too. */
static bool is_of_rows(const struct op *reader, int i)
{
  struct shape in = graph->value[reader->in[i]].shape, of = graph->value[space_of(reader)].shape;
  int rows = 0;
  if (in.ndim != of.ndim || reads_by_index(reader, i)) return false;
  while (rows < in.ndim && in.size[rows] == of.size[rows]) rows++;
  for (int d = rows; d < in.ndim; d++)
    if (in.size[d] != 1) return false;
  return is_broadcast(reader->kind) || reader->kind == OP_place;
}

static bool stores(struct hoisting *h, const struct op *reader, int i, const struct op *maker)
{
  if (reader->kind == OP_view) return false; /* its own readers decide */
  if (!is_pointwise(reader->kind) && !is_reduce(reader->kind)) return true;
  if (element_of(h, reader) != element_of(h, maker)) return true;
  return reads_elsewhere(reader, i) && !is_of_rows(reader, i);
}

/* Whether it is to be computed once. A single number is written where it is read. */
static bool pays(struct hoisting *h, int value)
{
  const struct op *maker = &graph->op[graph->value[value].op];
  bool pays = false;
  if (elements(graph->value[value].shape) == 1) return false;
  for (int k = 0; k < h->readers[value].n; k += 2) {
    const struct op *reader = &graph->op[h->readers[value].at[k]];
    if (h->of_step[h->readers[value].at[k]]) {
      bool costs = false;
      if (maker->kind != OP_view) {
        costs = !is_pointwise(maker->kind);
        for (const struct element_function *f = element_function; f->name && !costs; f++)
          costs = !f->cheap && has_word(op_row[maker->kind].element, f->name);
      }
      pays |= costs || stores(h, reader, h->readers[value].at[k + 1], maker);
    }
  }
  if (!pays) return false;
  /* Whether the value fits into the room; equal ones take it once. */
  enum fit *is = &h->fits[h->equal[value]];
  if (*is != UNKNOWN) return *is == FITS;
  *is = largest_bytes(value) <= h->room ? FITS : DOES_NOT_FIT;
  if (*is == FITS) h->room -= largest_bytes(value);
  return *is == FITS;
}

/* From the last operation to the first, so that all readers of a value come before it. */
static void choose(struct hoisting *h)
{
  for (int at = graph->norder; at-- > 0;) {
    int id = graph->order[at];
    h->of_step[id] = !h->invariant[id];
    if (!h->invariant[id]) continue; /* most are not invariant, and their operations are skipped */
    const struct op *op = &graph->op[id];
    for (int k = 0; k < op->nout; k++) {
      int value = op->out + k;
      h->kept[value] = pays(h, value);
      if (!h->kept[value]) {
        bool is_read_in_step = false;
        for (int i = 0; i < h->readers[value].n && !is_read_in_step; i += 2)
          is_read_in_step = h->of_step[h->readers[value].at[i]];
        if (is_read_in_step) h->of_step[id] = true;
      }
    }
  }
}

/* ------------------------------------------------------------------------------------ the new
 * phase */

static void append_copy(struct hoisting *h, struct op op)
{
  struct shape shape[MAX_OUTPUTS] = {0};
  int from = op.out;
  for (int i = 0; i < op.nin; i++) op.in[i] = h->copy[h->equal[op.in[i]]];
  for (int k = 0; k < op.nout; k++) shape[k] = graph->value[from + k].shape;
  op.phase = CONSTANTS;
  op.module = NONE;
  int first = append_op_outputs(op, shape, op.nout);
  for (int k = 0; k < op.nout; k++) {
    struct value v = graph->value[from + k];
    v.op = graph->value[first + k].op;
    v.module = NONE;
    v.of = NONE;
    if (graph->op[graph->value[from].op].module > 0) v.name = ""; /* it belongs to no module */
    graph->value[first + k] = v;
    h->copy[from + k] = first + k;
  }
  add(&h->made, graph->value[first].op);
}

/* Makes the value in the new phase, and the values that it is made of. */
static void make(struct hoisting *h, int value)
{
  if (h->copy[h->equal[value]] != NONE) return;
  struct op op = graph->op[graph->value[h->equal[value]].op];
  for (int i = 0; i < op.nin; i++) make(h, op.in[i]);
  append_copy(h, op);
}

static void move_constants(struct hoisting *h)
{
  int norder = graph->norder, known = graph->nvalue;
  h->copy = alloc((size_t)(known + 1) * sizeof *h->copy);
  for (int v = 0; v < known; v++) h->copy[v] = NONE;
  h->made = (struct list){0};
  for (int at = 0; at < norder; at++) {
    int id = graph->order[at];
    if (!h->invariant[id]) continue;
    int first = graph->op[id].out, n = graph->op[id].nout;
    for (int k = 0; k < n; k++)
      if (h->kept[first + k]) make(h, first + k);
  }
  for (int v = 0; v < known; v++)
    if (h->kept[v]) {
      /* The step's readers of the value read the value that is computed once. */
      const struct list *readers = &h->readers[v];
      for (int k = 0; k < readers->n; k += 2)
        if (h->of_step[readers->at[k]])
          graph->op[readers->at[k]].in[readers->at[k + 1]] = h->copy[h->equal[v]];
    }
  if (h->made.n) {
    /* The new operations come first: those of the step follow, and read their results. */
    int *order = alloc((size_t)(norder + h->made.n + 1) * sizeof *order), n = 0;
    for (int k = 0; k < h->made.n; k++) order[n++] = h->made.at[k];
    for (int at = 0; at < norder; at++) {
      if (h->of_step[graph->order[at]]) order[n++] = graph->order[at];
    }
    graph->order = order;
    graph->norder = graph->order_room = n;
  }
}

/* ------------------------------------------------------------------------------------------ the
 * pass */

void hoist_constants(void)
{
  struct hoisting run = {0}, *h = &run;
  bool any = false;
  if (graph->loss == NONE && !plan_options->generate.slots) return;
  h->enters = entering_scans();
  h->invariant = alloc((size_t)graph->nop + 1);
  h->of_step = alloc((size_t)graph->nop + 1);
  h->kept = alloc((size_t)graph->nvalue + 1);
  h->equal = alloc((size_t)(graph->nvalue + 1) * sizeof *h->equal);
  h->fits = alloc((size_t)(graph->nvalue + 1) * sizeof *h->fits);
  h->readers = alloc((size_t)(graph->nvalue + 1) * sizeof *h->readers);
  for (int at = 0; at < graph->norder; at++) {
    /* Whether the operation is invariant, and its inputs that are. */
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    h->invariant[id] = is_invariant(h, op);
    if (h->invariant[id]) {
      /* Finds the first ones of the values that are equal to those that the operation makes. */
      static struct query q;
      bool is_new;
      /* The query that only an equal operation makes. */
      int64_t scalar;
      memcpy(&scalar, &op->scalar, sizeof scalar);
      begin_query(&q);
      ask_rule(&q, op);
      ask_number(&q, scalar);
      ask_number(&q,
                 (int64_t)op->type | op->typed << 8 | op->dim << 16 | (int64_t)op->dim_to << 32);
      ask_layout(&q, &op->to);
      ask_number(&q, op->reduction);
      ask_number(&q, op->group);
      for (int i = 0; i < MAX_NUMBERS; i++) ask_number(&q, op->number[i]);
      for (int i = 0; i < op->nin; i++) ask_number(&q, h->equal[op->in[i]]);
      for (int k = 0; k < op->nout; k++) {
        ask_value(&q, &graph->value[op->out + k]);
        ask_layout(&q, &graph->value[op->out + k].layout);
      }
      int *first = answer_to(&h->constants, &q, sizeof *first, &is_new);
      if (is_new) *first = op->out;
      for (int k = 0; k < op->nout; k++) h->equal[op->out + k] = *first + k;
    }
    for (int i = 0; i < op->nin; i++) {
      int maker = graph->value[op->in[i]].op;
      if (maker == NONE || !h->invariant[maker]) continue;
      add(&h->readers[op->in[i]], id);
      add(&h->readers[op->in[i]], i);
    }
    any |= h->invariant[graph->order[at]];
  }
  if (!any) return;
  h->element = list_elements();
  /* A part of the parameters' bytes, which is small beside their gradients and states. */
  enum { LEAST = 4 << 20, PART = 16 };
  int64_t bytes = 0;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER) bytes = plus_times(bytes, 1, largest_bytes(i));
  h->room = bytes / PART > LEAST ? bytes / PART : LEAST;
  choose(h);
  move_constants(h);
}
