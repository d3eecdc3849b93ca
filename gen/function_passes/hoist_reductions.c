/* hoist_reductions.c: prepares the gradients that ranks sum, for the pass `bucket`.

   Takes   functions with single collectives.
   Leaves  every gradient that is summed over ranks summed in its own place: if its input has other
           readers, it gets a copy. Small gradients of a list's modules are summed after the loop
           that makes them, where they can be merged with others. */
#include "function_passes/function_passes.h"

/* --------------------------------------------------------------- gradients with no other reader */

static int hoist_reductions_copy_of(int value, const struct op *reader)
{
  struct op op = {.kind = OP_scale,
                  .nin = 1,
                  .in = {value},
                  .scalar = 1,
                  .phase = reader->phase,
                  .last_batch = reader->last_batch,
                  .module = reader->module,
                  .line = reader->line};
  int id = make_op(op);
  struct value *v = &graph->value[graph->op[id].out];
  v->name = graph->value[value].name;
  v->layout = graph->value[value].layout;
  v->placed = true;
  return id;
}

/* Whether the value's bytes are made here and have one reader: they may be overwritten. A view
   has the bytes of its input. */
static bool hoist_reductions_is_own(struct merging *m, const struct function *f, int value)
{
  const struct value *v = &graph->value[value];
  if (is_gradient(value)) return true; /* the sum over batches */
  if (readers_of(m, value) > 1 || !runs_in(m, f, v->op)) return false;
  if (v->role != ACTIVATION || v->is_output) return false;
  const struct op *op = &graph->op[v->op];
  return op->kind != OP_view || hoist_reductions_is_own(m, f, op->in[0]);
}

/* --------------------------------------------------------------------------------- out of loops */

/* Whether it sums a value that each module of a list makes for itself, and nothing in the loop
   reads the result. */
static bool may_leave(const struct function *body, int id)
{
  const struct op *op = &graph->op[id];
  if (!is_gradient_sum(op)) return false;
  if (in_loop(op->in[0])->stack != op->in[0] || in_loop(op->out)->stack != op->out) return false;
  for (int i = 0; i < body->nop; i++) {
    const struct op *reader = &graph->op[body->op[i]];
    for (int k = 0; k < reader->nin; k++)
      if (in_loop(reader->in[k])->stack == op->out) return false;
  }
  return true;
}

/* The bytes of this kind that an iteration of the loop sums. */
static int64_t bytes_of_iteration(const struct function *body, int like)
{
  int64_t bytes = 0;
  for (int i = 0; i < body->nop; i++)
    if (may_leave(body, body->op[i]) && same_kind(body->op[i], like))
      bytes += largest_bytes(graph->op[body->op[i]].out);
  return bytes;
}

static void bring_out(struct function *body, struct list *order)
{
  int *op = alloc((size_t)(body->nop + 1) * sizeof *op), n = 0;
  for (int i = 0; i < body->nop; i++) {
    int id = body->op[i];
    if (may_leave(body, id) && is_small(graph->op[id].group, bytes_of_iteration(body, id))) {
      /* Adds the corresponding operations of the other modules of the list. */
      int stack = graph->op[id].out;
      for (int v = 0; v < graph->nvalue; v++)
        if (in_loop(v)->stack == stack && graph->value[v].role == GRADIENT)
          add(order, graph->value[v].op);
    } else
      op[n++] = id;
  }
  body->op = op;
  body->nop = n;
}

void prepare_gradients(struct merging *m, bool out_of_loops)
{
  for (int i = 0; i < graph->nfunction; i++) {
    /* Parameters that are added to each other share one gradient, which may also flow on to earlier
       values. An in-place sum would corrupt it for the others: it gets a copy. */
    struct function *f = &graph->function[i];
    int *op = alloc((size_t)(2 * f->nop + 1) * sizeof *op), n = 0;
    struct list copies = {0};
    for (int j = 0; j < f->nop; j++) {
      int id = f->op[j], value = graph->op[id].nin ? graph->op[id].in[0] : NONE;
      if (is_gradient_sum(&graph->op[id]) && !hoist_reductions_is_own(m, f, value)) {
        int copy = hoist_reductions_copy_of(value, &graph->op[id]);
        add(&copies, copy);
        op[n++] = copy;
        read_instead(m, id, graph->op[copy].out);
      }
      op[n++] = id;
    }
    for (int j = 0; j < copies.n; j++) run_now(m, f, copies.at[j]);
    f->op = op;
    f->nop = n;
  }
  for (int i = 0; i < graph->nfunction && out_of_loops; i++)
    if (graph->function[i].count == 1) {
      /* An operation that leaves a loop comes after the loop's call, or replaces the call if the
         loop becomes empty. */
      struct function *f = &graph->function[i];
      struct list order = {0};
      for (int j = 0; j < f->nop; j++) {
        const struct op *op = &graph->op[f->op[j]];
        struct list out = {0};
        if (op->kind == OP_loop) bring_out(&graph->function[op->function], &out);
        if (op->kind != OP_loop || graph->function[op->function].nop) add(&order, f->op[j]);
        for (int k = 0; k < out.n; k++) add(&order, out.at[k]);
      }
      f->op = order.at;
      f->nop = order.n;
    }
  int kept = 0, *place = alloc((size_t)(graph->nfunction + 1) * sizeof *place);
  for (int i = 0; i < graph->nfunction; i++) {
    place[i] = kept;
    if (graph->function[i].nop) graph->function[kept++] = graph->function[i];
  }
  graph->nfunction = kept;
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_loop) graph->op[i].function = place[graph->op[i].function];
}
