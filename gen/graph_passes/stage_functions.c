/* stage_functions.c: the beginning of the pass `outline` in a pipeline: the functions of its
   stages.

   Takes   the flat program of the ranks at one place of the pipeline.
   Leaves  each operation of the forward and the backward in a stage, and the operations of a
           function one after the other: the forward of each stage, then from the last one on the
           backward of each, or its two parts. Each may run for another micro-batch, so each
           computes for itself a value that several need and that depends only on inputs and
           constants. A value that the backward computes again, the two parts compute each if that
           is cheap; otherwise the first one does. The first one also runs scans, as their steps
           must stay equal. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* A function of a stage. */
struct half {
  int stage;
  bool of_weights;
};

/* A value as that part has it. */
struct copy {
  struct half of;
  int value;
};

struct copies {
  int n, room;
  struct copy *at;
};

struct halves {
  int n, room;
  struct half *at;
};

/* The state of the pass. */
struct dividing {
  int known;                /* the number of values before the first copy */
  struct halves *needed_by; /* by operation without a stage: those that need it */
  struct copies *copies;    /* by value of such an operation */
};

static struct half half_of(int op)
{
  return (struct half){stage_of(op), is_of_weights(op)};
}

static bool is_same_half(struct half a, struct half b)
{
  return a.stage == b.stage && a.of_weights == b.of_weights;
}

bool in_one_function(int a, int b)
{
  if (graph->op[a].phase != graph->op[b].phase) return false;
  return !is_of_batch(graph->op[a].phase) || is_same_half(half_of(a), half_of(b));
}

static bool is_without_stage(int op)
{
  return op != NONE && is_of_batch(graph->op[op].phase) && stage_of(op) == NONE;
}

static void add_half_once(struct halves *list, struct half of)
{
  for (int i = 0; i < list->n; i++)
    if (is_same_half(list->at[i], of)) return;
  GROW(list->at, list->n, list->room);
  list->at[list->n++] = of;
}

static int any_stage_here(void)
{
  int stage = 0;
  while (!is_stage_here(stage)) stage++;
  return stage;
}

/* The forward has no parts. */
static struct half half_with(int op, struct half reader)
{
  return (struct half){reader.stage, reader.of_weights && graph->op[op].phase == BACKWARD};
}

/* From the last operation on, so that all that read a value are known. */
static void find_halves(struct dividing *d)
{
  for (int at = graph->norder; at-- > 0;) {
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    struct half own = half_of(id);
    struct halves of = {.n = own.stage != NONE, .at = &own};
    if (is_without_stage(id)) {
      if (!d->needed_by[id].n)
        add_half_once(&d->needed_by[id], (struct half){.stage = any_stage_here()});
      struct halves *list = &d->needed_by[id];
      const bool is_step = scan_around(op->module) != NONE;
      if (is_step || !is_cheap(op)) {
        /* An expensive operation runs once for both parts of a backward: in the first one. So does
           one of a step, also where only the second part of this step needs it. */
        int kept = 0;
        for (int i = 0; i < list->n && is_step; i++)
          if (list->at[i].of_weights)
            add_half_once(list, (struct half){.stage = list->at[i].stage});
        for (int i = 0; i < list->n; i++) {
          bool is_there = false;
          for (int k = 0; k < list->n; k++)
            is_there |= list->at[k].stage == list->at[i].stage && !list->at[k].of_weights;
          if (!list->at[i].of_weights || !is_there) list->at[kept++] = list->at[i];
        }
        list->n = kept;
      }
      of = d->needed_by[id];
    }
    for (int i = 0; i < op->nin; i++) {
      int maker = graph->value[op->in[i]].op;
      for (int k = 0; k < of.n && is_without_stage(maker); k++)
        add_half_once(&d->needed_by[maker], half_with(maker, of.at[k]));
    }
  }
}

static int value_for(const struct dividing *d, int value, struct half of)
{
  int found = value, maker = graph->value[value].op;
  for (int i = 0; i < d->copies[value].n; i++) {
    const struct copy *c = &d->copies[value].at[i];
    if (is_same_half(c->of, half_with(maker, of))) return c->value;
    if (c->of.stage == of.stage) found = c->value;
  }
  return found;
}

static void read_own(const struct dividing *d, int id, struct half of)
{
  struct op *op = &graph->op[id];
  for (int i = 0; i < op->nin; i++)
    if (op->in[i] < d->known) op->in[i] = value_for(d, op->in[i], of);
}

/* The same operation with values of its own. */
static int written_again(int id)
{
  struct op op = graph->op[id];
  struct shape shape[MAX_OUTPUTS] = {0};
  for (int k = 0; k < op.nout; k++) shape[k] = graph->value[op.out + k].shape;
  int first = op.out, out = append_op_outputs(op, shape, op.nout), again = graph->value[out].op;
  for (int k = 0; k < op.nout; k++) {
    graph->value[out + k] = graph->value[first + k];
    graph->value[out + k].op = again;
  }
  return again;
}

static void note_copies(struct dividing *d, int id, int copy, struct half of)
{
  const struct op *op = &graph->op[id], *other = &graph->op[copy];
  for (int k = 0; k < op->nout; k++) {
    struct copies *c = &d->copies[op->out + k];
    GROW(c->at, c->n, c->room);
    c->at[c->n++] = (struct copy){of, other->out + k};
  }
}

/* The place of an operation's function among those of all stages. */
static int place_of_function(int id)
{
  int n = graph->stages->n;
  switch (graph->op[id].phase) {
  case FORWARD:
    return 1 + stage_of(id);
  case BACKWARD:
    return 1 + n + 2 * (n - 1 - stage_of(id)) + is_of_weights(id);
  case UPDATE:
    return 1 + 3 * n;
  default:
    return 0;
  }
}

void divide_in_functions(void)
{
  struct dividing run = {.known = graph->nvalue}, *d = &run;
  if (!graph->stages) return;
  d->needed_by = alloc((size_t)(graph->nop + 1) * sizeof *d->needed_by);
  d->copies = alloc((size_t)(graph->nvalue + 1) * sizeof *d->copies);
  find_halves(d);
  int norder = graph->norder, *order = graph->order;
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int at = 0; at < norder; at++) {
    if (is_without_stage(order[at])) {
      /* Each part that needs the operation gets it; the first part gets the original. */
      int id = order[at];
      const struct halves *of = &d->needed_by[id];
      const struct op as_it_was = graph->op[id];
      append_to_order(id);
      for (int k = 0; k < of->n; k++) {
        int own = k ? written_again(id) : id;
        memcpy(graph->op[own].in, as_it_was.in, sizeof as_it_was.in);
        read_own(d, own, of->at[k]);
        set_stage(own, of->at[k].stage);
        if (of->at[k].of_weights) set_of_weights(own);
        note_copies(d, id, own, of->at[k]);
      }
      continue;
    }
    if (is_of_batch(graph->op[order[at]].phase)) read_own(d, order[at], half_of(order[at]));
    append_to_order(order[at]);
  }
  int n = graph->norder, places = 2 + 3 * graph->stages->n;
  struct list *at = alloc((size_t)places * sizeof *at);
  for (int i = 0; i < n; i++) add(&at[place_of_function(graph->order[i])], graph->order[i]);
  graph->norder = 0;
  for (int k = 0; k < places; k++)
    for (int i = 0; i < at[k].n; i++) append_to_order(at[k].at[i]);
}
