/* accumulate.c: steps of several batches: each gradient is added to those of the batches before it,
   in its own place, as the backward leaves it. What is pending over ranks is finished in the
   update, once. */
#include "tpgen.h"

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

void accumulate_gradients(int *gradient)
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

/* ---------------------------------------------------------------------- products add themselves */

static void count_readers(void)
{
  int *list = NULL, room = 0;
  readers = alloc((size_t)(graph->nvalue + 1) * sizeof *readers);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
      for (int n = op_reads(op, list); n--;) {
        int family = graph->value[list[n]].family;
        readers[list[n]]++;
        if (family != NONE && family != list[n]) readers[family]++;
      }
    }
}

/* The product that is made for nothing but to be added by this operation; or NONE. */
static int product_added_by(const struct function *f, const struct op *add)
{
  if (add->kind != OP_add || graph->value[add->out].role != GRADIENT) return NONE;
  const struct value *before = &graph->value[add->in[0]], *part = &graph->value[add->in[1]];
  if (before->role != GRADIENT || before->op != NONE || readers[add->in[1]] != 1) return NONE;
  if (part->op == NONE || graph->op[part->op].kind != OP_matmul) return NONE;
  if (part->role != ACTIVATION || part->order != graph->value[add->out].order) return NONE;
  for (int k = 0; k < f->nop; k++)
    if (f->op[k] == part->op) return part->op;
  return NONE;
}

static void add_products_of(struct function *f)
{
  int kept = 0;
  for (int k = 0; k < f->nop; k++) {
    const struct op *add = &graph->op[f->op[k]];
    int product = product_added_by(f, add);
    if (product == NONE) {
      f->op[kept++] = f->op[k];
      continue;
    }
    struct op *op = &graph->op[product];
    op->in[op->nin++] = add->in[0];
    op->out = add->out;
    graph->value[op->out].op = product;
  }
  f->nop = kept;
}

void add_products_in_place(void)
{
  if (graph->accumulate == 1) return;
  count_readers();
  for (int i = 0; i < graph->nfunction; i++) add_products_of(&graph->function[i]);
}
