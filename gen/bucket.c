/* bucket.c: the pass `bucket`: few large collectives in the place of many small ones.

   Takes   functions with single collectives.
   Leaves  every gradient that is summed over ranks summed in its own place; and all-reduces of
           gradients that follow one another in memory, over the same group, as one: an all_reduce
           whose body is the operations it stands for, ordered by address, at the place of the last
           of them. Values keep their layouts; what is computed is unchanged.

   The gradients of a rank lie in one block in the order of the parameters (memory.c), so that a run
   of them is reduced in place, with no copy in or out. A bucket is kept to BUCKET_BYTES, so that
   the first can travel while the rest of the backward is still computed. */
#include "tpgen.h"

static const int64_t BUCKET_BYTES = 25 << 20;

static bool is_gradient_sum(const struct op *op)
{
  return op->kind == OP_all_reduce && graph->value[op->out].role == GRADIENT;
}

/* How many operations read the value, or one of its family. */
static int readers(int value)
{
  int count = 0, family = graph->value[value].family;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      for (int j = 0; j < op->nin; j++)
        count += op->in[j] == value || (family != NONE && graph->value[op->in[j]].family == family);
    }
  return count;
}

static int copy_of(int value, const struct op *reader)
{
  struct op op = {.kind = OP_scale,
                  .nin = 1,
                  .in = {value},
                  .scalar = 1,
                  .phase = reader->phase,
                  .module = reader->module,
                  .line = reader->line};
  int id = make_op(op);
  struct value *v = &graph->value[graph->op[id].out];
  v->name = graph->value[value].name;
  v->layout = graph->value[value].layout;
  v->placed = true;
  return id;
}

static bool runs(const struct function *f, int op)
{
  for (int i = 0; i < f->nop; i++)
    if (f->op[i] == op) return true;
  return false;
}

/* Whether the value's bytes are made here, and read by one operation alone: they may be changed. A
   view's are those of what it shows. */
static bool is_own(const struct function *f, int value)
{
  const struct value *v = &graph->value[value];
  if (v->role == GRADIENT) return true; /* what batches have added up */
  if (readers(value) > 1 || !runs(f, v->op) || v->role != ACTIVATION || v->is_output) return false;
  const struct op *op = &graph->op[v->op];
  return op->kind != OP_view || is_own(f, op->in[0]);
}

/* Parameters that are added to each other have one gradient, which may also travel on to what lies
   before them. A sum in place would spoil it for the others: it gets a copy. */
static void own_inputs(struct function *f)
{
  int *op = alloc((size_t)(2 * f->nop + 1) * sizeof *op), n = 0;
  for (int i = 0; i < f->nop; i++) {
    int id = f->op[i], value = graph->op[id].nin ? graph->op[id].in[0] : NONE;
    if (is_gradient_sum(&graph->op[id]) && !is_own(f, value)) {
      int copy = copy_of(value, &graph->op[id]);
      op[n++] = copy;
      graph->op[id].in[0] = graph->op[copy].out;
    }
    op[n++] = id;
  }
  f->op = op;
  f->nop = n;
}

/* The all-reduce of the parameter's gradient in this function, or NONE. */
static int sum_of(const struct function *f, int parameter)
{
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    if (is_gradient_sum(op) && graph->value[op->out].of == parameter) return f->op[i];
  }
  return NONE;
}

static bool joins(int a, int b, int64_t bytes)
{
  const struct op *x = &graph->op[a], *y = &graph->op[b];
  return x->group == y->group && x->reduction == y->reduction &&
         graph->value[x->out].type == graph->value[y->out].type &&
         bytes + largest_bytes(y->out) <= BUCKET_BYTES;
}

static void replace(struct function *f, const int *member, int n)
{
  int *body = alloc((size_t)n * sizeof *body);
  for (int i = 0; i < n; i++) body[i] = member[i];
  struct op op = graph->op[member[0]];
  op.nbody = n;
  op.body = body;
  op.why = text("the gradients of %d parameters, which lie as they do", n);
  GROW(graph->op, graph->nop, graph->op_room);
  int id = graph->nop++;
  graph->op[id] = op;

  int kept = 0, left = n;
  for (int i = 0; i < f->nop; i++) {
    bool inside = false;
    for (int k = 0; k < n; k++) inside |= f->op[i] == member[k];
    left -= inside;
    if (!inside)
      f->op[kept++] = f->op[i];
    else if (left == 0)
      f->op[kept++] = id;
  }
  f->nop = kept;
}

static void bucket_function(struct function *f)
{
  int *run = alloc((size_t)(f->nop + 1) * sizeof *run), n = 0;
  int64_t bytes = 0;
  for (int p = 0; p <= graph->nvalue; p++) {
    if (p < graph->nvalue && graph->value[p].role != PARAMETER) continue;
    int op = p < graph->nvalue ? sum_of(f, p) : NONE;
    if (n && (op == NONE || !joins(run[0], op, bytes))) {
      if (n > 1) replace(f, run, n);
      n = 0;
      bytes = 0;
    }
    if (op == NONE) continue;
    run[n++] = op;
    bytes += largest_bytes(graph->op[op].out);
  }
}

void bucket(void)
{
  for (int i = 0; i < graph->nfunction; i++) own_inputs(&graph->function[i]);
  for (int i = 0; i < graph->nfunction; i++) bucket_function(&graph->function[i]);
}
