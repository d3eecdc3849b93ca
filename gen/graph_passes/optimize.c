/* optimize.c: the pass `optimize`: the update.

   Takes   the graph with its gradients.
   Leaves  for each parameter that has a gradient, the optimizer's state, in the layout of the
           parameter, and an operation that updates both in place, after those whose results it
           takes (update_operations.c); for a buffer, an operation that updates only the buffer.
           Before these, if the plan asks for it, the norm of all gradients together. In a step of
           several batches, their gradients are accumulated (accumulate.c). */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- the norm */

/* The mesh dimensions over which parts of gradients are to be summed: those that cut any. */
static unsigned dimensions_cut(const int *gradient, int known)
{
  unsigned dims = 0;
  for (int i = 0; i < known; i++)
    for (int d = 0; d < graph->mesh.ndim && gradient[i] != NONE; d++)
      if (graph->mesh.size[d] > 1 && graph->value[gradient[i]].layout.on[d].kind == SHARD)
        dims |= 1u << d;
  return dims;
}

static struct op in_update(enum op_kind kind)
{
  return (struct op){
      .kind = kind, .phase = UPDATE, .module = NONE, .line = plan_options->optimizer->line};
}

/* Appends an operation that makes one number. */
static int number(struct op op, enum role role, const char *name, struct layout layout)
{
  int out = append_op_shaped(op, (struct shape){0});
  struct value *v = &graph->value[out];
  v->role = role;
  v->name = name;
  v->type = role == NORM ? F32 : F64;
  v->layout = layout;
  v->placed = true;
  return out;
}

static void find_norm(const int *gradient, int known)
{
  struct list body = {0};
  const enum reduction reduction = plan_options->norm_of_largest ? MAX : SUM;
  const char *name = plan_options->norm_of_largest ? "largest" : "squares";
  for (int i = 0; i < known; i++) {
    if (gradient[i] == NONE) continue;
    struct op inner = in_update(OP_squares);
    inner.out = NONE;
    inner.nin = 1;
    inner.in[0] = gradient[i];
    add(&body, store_op(inner));
  }
  unsigned dims = dimensions_cut(gradient, known);
  if (graph->stages) dims |= 1u << graph->stages->mesh_dim;
  struct layout pending = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (dims >> d & 1) pending.on[d] = (struct placement){.kind = PARTIAL, .reduction = reduction};
  struct op squares = in_update(OP_squares);
  squares.nbody = body.n;
  squares.body = body.at;
  int sum = number(squares, ACTIVATION, name, pending);
  if (dims) {
    struct op op = in_update(OP_all_reduce);
    op.nin = 1;
    op.in[0] = sum;
    op.group = add_group(dims);
    op.reduction = reduction;
    op.why = "the norm of all gradients";
    sum = number(op, ACTIVATION, value_name(sum), (struct layout){0});
  }
  struct op norm = in_update(OP_norm);
  norm.nin = 1;
  norm.in[0] = sum;
  graph->norm = number(norm, NORM, "grad_norm", (struct layout){0});
}

/* ----------------------------------------------------------------------------------- the update */

/* By parameter: the operation `running` by which the forward has it as a buffer, or NONE. */
static int *find_buffers(int known)
{
  int *buffer_of = alloc((size_t)known * sizeof *buffer_of);
  for (int i = 0; i < known; i++) buffer_of[i] = NONE;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->kind != OP_running || op->phase != FORWARD) continue;
    int buffer = op->in[1];
    while (graph->value[buffer].op != NONE) buffer = graph->op[graph->value[buffer].op].in[0];
    buffer_of[buffer] = graph->order[i];
    if (runs_in_step() > 1 && !number_of(op, "balances"))
      plan_error(op->line, "%s follows the batches of a step: it does not go with %s",
                 printable(graph->value[buffer].name),
                 plan_options->accumulate > 1 ? "accumulate" : "microbatches");
  }
  return buffer_of;
}

static void update_buffer(int buffer, int gradient, const struct op *running)
{
  if (number_of(running, "balances")) gradient = way_back_to_balance(buffer, gradient, running);
  struct op op = in_update(OP_buffer);
  op.module = graph->value[buffer].module;
  op.in[op.nin++] = buffer;
  op.in[op.nin++] = gradient;
  append_update(op);
}

static bool has_operations(int parameter)
{
  return plan_options->optimizer[graph->value[parameter].optimizer].noperation > 0;
}

static struct op update_of(int parameter, int gradient)
{
  int which = graph->value[parameter].optimizer;
  const struct optimizer *o = &plan_options->optimizer[which];
  struct op op = in_update(OP_update);
  op.module = graph->value[parameter].module;
  op.line = o->line;
  op.number[0] = which;
  op.in[op.nin++] = parameter;
  op.in[op.nin++] = gradient;
  for (int k = 0; k < o->nstate; k++) op.in[op.nin++] = add_state(parameter, o, k);
  if (plan_options->clip > 0) op.in[op.nin++] = graph->norm;
  return op;
}

/* The parts of the parameter, if the optimizer takes them as one. */
static struct list parts_of(int parameter)
{
  const struct value *p = &graph->value[parameter];
  struct list l = {0};
  if (!p->file_size || plan_options->optimizer[p->optimizer].by_part) return l;
  while (graph->value[parameter].file_first) parameter--;
  int64_t size = 0;
  for (; size < p->file_size; parameter++) {
    size += graph->value[parameter].shape.size[p->file_dim];
    add(&l, parameter);
  }
  return l;
}

/* First come the updates that are only kernels; neighbours among them become one. Then come the
   others, with their operations. Updates of several layers together come last, so that those of one
   layer stay adjacent. */
static void update_all(const int *gradient, const int *of_buffer, const int *buffer_of, int known)
{
  bool any = false;
  for (int i = 0; i < known; i++) {
    if (gradient[i] != NONE && has_operations(i))
      any = true;
    else if (gradient[i] != NONE)
      append_update(update_of(i, gradient[i]));
    if (of_buffer[i] != NONE && !number_of(&graph->op[buffer_of[i]], "balances"))
      update_buffer(i, of_buffer[i], &graph->op[buffer_of[i]]);
  }
  int first = graph->norder;
  for (int i = 0; i < known; i++) {
    if (of_buffer[i] == NONE || !number_of(&graph->op[buffer_of[i]], "balances")) continue;
    const struct op running = graph->op[buffer_of[i]];
    update_buffer(i, of_buffer[i], &running);
  }
  if (graph->norder > first) propagate_from(first);
  if (!any) return;
  first = graph->norder;
  struct updating run = {.numbers =
                             alloc((size_t)(plan_options->noptimizer + 1) * sizeof *run.numbers)},
                  *u = &run;
  find_updates_on_owners(u, gradient);
  for (int several = 0; several < 2; several++)
    for (int i = 0; i < known; i++) {
      if (gradient[i] == NONE || !has_operations(i)) continue;
      struct list l = parts_of(i);
      if (!l.n) l = updated_on_owners_with(u, i);
      if (!l.n) add(&l, i);
      struct list together = l;
      bool is_first = together.at[0] == i;
      bool on_owner = updated_on_owners_with(u, i).n > 1;
      if (is_first && on_owner == several) {
        struct op *op = alloc((size_t)together.n * sizeof *op);
        for (int k = 0; k < together.n; k++)
          op[k] = update_of(together.at[k], gradient[together.at[k]]);
        int n = together.n;
        if (n == 1)
          append_update_alone(u, op);
        else if (graph->value[op->in[0]].file_size && !optimizer_of(op)->by_part)
          append_updates_of_parts(u, op, n);
        else
          append_updates_on_owners(u, op, n);
      }
    }
  propagate_from(first);
}

void optimize(void)
{
  if (graph->loss == NONE) return;
  int known = graph->nvalue;
  int *gradient = alloc((size_t)known * sizeof *gradient);
  for (int i = 0; i < known; i++) gradient[i] = NONE;
  for (int i = 0; i < known; i++)
    if (graph->value[i].role == GRADIENT) gradient[graph->value[i].of] = i;
  const int *buffer_of = find_buffers(known);
  int *of_buffer = alloc((size_t)known * sizeof *of_buffer);
  if (runs_in_step() > 1) accumulate_gradients(gradient);
  for (int i = 0; i < known; i++) {
    of_buffer[i] = buffer_of[i] != NONE ? gradient[i] : NONE;
    if (buffer_of[i] != NONE) gradient[i] = NONE;
  }
  if (plan_options->wants_norm) find_norm(gradient, known);
  update_all(gradient, of_buffer, buffer_of, known);
}
