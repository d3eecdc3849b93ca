/* optimize.c: the pass `optimize`: what becomes of the gradients.

   Takes   the graph with its gradients.
   Leaves  for each parameter that has one, the optimizer's state, laid out as the parameter is, and
           an operation that writes parameter and state in place; before these, where it is asked
           for, the norm of all gradients together. Where a step takes several batches, the
           backward adds each gradient to those of the batches before it, as it leaves it: what is
           pending over ranks is finished in the update, once. */
#include "tpgen.h"

#include <string.h>

/* ------------------------------------------------------------------------ one of several batches
 */

static int *readers; /* by value: how many operations read it */

/* What the batches before have left of the gradient, plus this batch's: an operation. */
static int added_up(int gradient, int of)
{
  struct value g = graph->value[gradient];
  const char *name = text("d_%s", graph->value[of].name);
  struct op sum = {.kind = OP_add, .nin = 2, .phase = BACKWARD, .module = g.module, .line = g.line};
  sum.in[0] = add_value(GRADIENT, name, g.type, g.shape, g.module, g.line);
  sum.in[1] = gradient;
  int id = make_op(sum), both[] = {sum.in[0], graph->op[id].out};
  for (int i = 0; i < 2; i++) {
    struct value *v = &graph->value[both[i]];
    v->role = GRADIENT;
    v->of = of;
    v->name = name;
    v->layout = g.layout;
    v->placed = true;
  }
  return id;
}

/* What the backward leaves before it is moved for nothing but to be the gradient: two
   redistributions in a row are one way. */
static int unmoved(int value, struct layout to)
{
  for (int i = value;;) {
    const struct value *v = &graph->value[i];
    const struct op *op = v->op == NONE ? NULL : &graph->op[v->op];
    if (!op || op->kind != OP_redistribute || op->phase != BACKWARD || readers[i] > 1) return value;
    i = op->in[0];
    const struct value *in = &graph->value[i];
    if (in->type != v->type || v->role != ACTIVATION || !as_large(in->layout, to)) return value;
    value = i;
  }
}

/* The operation `id` brings a gradient to its parameter's layout. It does so in the update, of the
   sum over the batches, where that takes no other room; else before it is added up. Gives the
   parameter's gradient. */
static int accumulate(int id, struct list *order, struct list *later)
{
  int out = graph->op[id].out, of = graph->value[out].of;
  struct layout to = graph->value[out].layout;
  int in = unmoved(graph->op[id].in[0], to);
  struct layout from = graph->value[in].layout;
  bool waits = as_large(from, to) && graph->value[in].type == graph->value[out].type;
  if (!waits) add(order, id);
  int sum = added_up(waits ? in : out, of);
  add(order, sum);
  if (waits && !lies_alike(from, to)) {
    graph->op[id].in[0] = graph->op[sum].out;
    graph->op[id].phase = UPDATE;
    add(later, id);
    return out;
  }
  graph->value[out].role = ACTIVATION;
  return graph->op[sum].out;
}

static void accumulate_gradients(int *gradient)
{
  struct list order = {0}, later = {0};
  readers = alloc((size_t)graph->nvalue * sizeof *readers);
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    for (int k = 0; k < op->nin; k++) readers[op->in[k]]++;
  }
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    int of = op->kind == OP_redistribute && graph->value[op->out].role == GRADIENT
                 ? graph->value[op->out].of
                 : NONE;
    if (of == NONE)
      add(&order, graph->order[i]);
    else
      gradient[of] = accumulate(graph->order[i], &order, &later);
  }
  for (int i = 0; i < later.n; i++) add(&order, later.at[i]);
  graph->order = order.at;
  graph->norder = order.n;
  graph->order_room = order.room;
}

/* -------------------------------------------------------------------------------------- the norm
 */

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
  return (struct op){.kind = kind, .phase = UPDATE, .module = NONE, .line = graph->optimizer.line};
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

static int sum_over(unsigned dims, int value)
{
  struct op op = in_update(OP_all_reduce);
  op.nin = 1;
  op.in[0] = value;
  op.group = add_group(dims);
  op.reduction = SUM;
  op.why = "the norm of all gradients";
  return number(op, ACTIVATION, "squares", (struct layout){0});
}

static void find_norm(const int *gradient, int known)
{
  struct list body = {0};
  for (int i = 0; i < known; i++) {
    if (gradient[i] == NONE) continue;
    struct op inner = in_update(OP_squares);
    inner.out = NONE;
    inner.nin = 1;
    inner.in[0] = gradient[i];
    GROW(graph->op, graph->nop, graph->op_room);
    graph->op[graph->nop] = inner;
    add(&body, graph->nop++);
  }
  unsigned dims = dimensions_cut(gradient, known);
  struct layout pending = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (dims >> d & 1) pending.on[d] = (struct placement){.kind = PARTIAL, .reduction = SUM};
  struct op squares = in_update(OP_squares);
  squares.nbody = body.n;
  squares.body = body.at;
  int sum = number(squares, ACTIVATION, "squares", pending);
  if (dims) sum = sum_over(dims, sum);
  struct op norm = in_update(OP_norm);
  norm.nin = 1;
  norm.in[0] = sum;
  graph->norm = number(norm, NORM, "grad_norm", (struct layout){0});
}

/* ------------------------------------------------------------------------------------ the update
 */

static int state_of(int parameter, const char *what)
{
  struct value p = graph->value[parameter];
  int s = add_value(STATE, text("optim.%s.%s", what, p.name), p.type, p.shape, p.module, p.line);
  graph->value[s].of = parameter;
  graph->value[s].layout = p.layout;
  graph->value[s].placed = true;
  return s;
}

static void update(int parameter, int gradient)
{
  struct op op = in_update(strcmp(graph->optimizer.name, "AdamW") ? OP_sgd : OP_adamw);
  op.module = graph->value[parameter].module;
  op.in[op.nin++] = parameter;
  op.in[op.nin++] = gradient;
  if (op.kind == OP_adamw) {
    op.in[op.nin++] = state_of(parameter, "exp_avg");
    op.in[op.nin++] = state_of(parameter, "exp_avg_sq");
  } else if (graph->optimizer.momentum > 0) {
    op.in[op.nin++] = state_of(parameter, "momentum");
  }
  if (graph->clip > 0) op.in[op.nin++] = graph->norm;
  append_update(op);
}

void optimize(void)
{
  if (graph->loss == NONE) return;
  int known = graph->nvalue;
  int *gradient = alloc((size_t)known * sizeof *gradient);
  for (int i = 0; i < known; i++) gradient[i] = NONE;
  for (int i = 0; i < known; i++)
    if (graph->value[i].role == GRADIENT) gradient[graph->value[i].of] = i;
  if (graph->accumulate > 1) accumulate_gradients(gradient);
  if (graph->wants_norm) find_norm(gradient, known);
  for (int i = 0; i < known; i++)
    if (gradient[i] != NONE) update(i, gradient[i]);
}
