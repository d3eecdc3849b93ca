/* fuse.c: the pass `fuse`: one kernel for neighbouring operations on the same elements.

   Takes   functions whose pointwise and reduce operations stand alone.
   Leaves  each run of them that goes over one space of elements as one fused operation: first the
           elements' values, in order, then the sums over them. Inside it a value that nothing else
           reads is not stored. Updates of parameters that follow one another in memory are one
           operation too. A value is marked `stored` if it takes memory at all.

   A sum is complete only when its kernel ends: what reads it begins another. So does what reads
   elements of a value other than the one at hand. */
#include "tpgen.h"

#include <string.h>

static bool *in_memory; /* by value: something reads it that is no kernel */

static bool is_elementwise(const struct op *op)
{
  return is_pointwise(op->kind) || is_reduce(op->kind);
}

/* The value whose elements a kernel runs over. */
static int space_of(const struct op *op)
{
  return is_reduce(op->kind) ? op->in[0] : op->out;
}

static int innermost(const struct value *v)
{
  int last = v->shape.ndim - 1;
  return v->order ? (int)(v->order >> 3 * last & 7) : last;
}

/* Whether one walk goes through both along the neighbours in memory. */
static bool same_rows(const struct value *x, const struct value *y)
{
  int last = x->shape.ndim - 1;
  return x->order == y->order || (innermost(x) == last && innermost(y) == last);
}

static bool same_space(const struct op *a, const struct op *b)
{
  const struct value *x = &graph->value[space_of(a)], *y = &graph->value[space_of(b)];
  if (!same_shape(x->shape, y->shape) || !same_rows(x, y)) return false;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = x->layout.on[d], q = y->layout.on[d];
    if ((p.kind == SHARD || q.kind == SHARD) && !same_placement(p, q)) return false;
  }
  return true;
}

static bool reads(const struct op *op, int value)
{
  for (int i = 0; i < op->nin; i++)
    if (op->in[i] == value) return true;
  return false;
}

/* Whether an operation reads the value at another element than the one that it makes. */
static bool reads_another(const struct op *op, int value)
{
  for (int i = 0; i < op->nin; i++)
    if (op->in[i] == value && reads_elsewhere(op, i)) return true;
  return false;
}

static bool joins(const int *run, int n, const struct op *op)
{
  const struct op *first = &graph->op[run[0]];
  if (!same_space(first, op) || first->phase != op->phase) return false;
  for (int i = 0; i < n; i++) {
    const struct op *before = &graph->op[run[i]];
    if (reads_another(op, before->out)) return false;
    if (!is_reduce(before->kind)) continue;
    if (reads(op, before->out)) return false;
    if (is_reduce(op->kind) && (op->dims != before->dims || op->keep != before->keep)) return false;
  }
  return true;
}

static int fused(const int *run, int n)
{
  int *body = alloc((size_t)n * sizeof *body);
  memcpy(body, run, (size_t)n * sizeof *body);
  const struct op *last = &graph->op[run[n - 1]];
  struct op op = {.kind = OP_fused,
                  .out = NONE,
                  .nbody = n,
                  .body = body,
                  .phase = last->phase,
                  .module = last->module,
                  .line = last->line};
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = op;
  return graph->nop++;
}

/* A constant of one element needs no kernel: whoever reads it writes the number (emit.c). */
static bool is_literal(const struct op *op)
{
  return op->kind == OP_full && elements(graph->value[op->out].shape) == 1 &&
         graph->value[op->out].role == ACTIVATION && !graph->value[op->out].is_output &&
         !in_memory[op->out];
}

/* What collectives, matmuls and copies read has to lie in memory. */
static void find_in_memory(void)
{
  in_memory = alloc((size_t)(graph->nvalue + 1) * sizeof *in_memory);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (is_elementwise(op)) continue;
      int *list = alloc((size_t)op_width(op) * sizeof *list);
      for (int n = op_reads(op, list); n--;) in_memory[list[n]] = true;
    }
}

static void fuse_elements(struct function *f)
{
  int *run = alloc((size_t)(f->nop + 1) * sizeof *run), n = 0, kept = 0;
  for (int i = 0; i <= f->nop; i++) {
    const struct op *op = i < f->nop ? &graph->op[f->op[i]] : NULL;
    if (op && is_literal(op)) continue;
    bool element = op && is_elementwise(op);
    if (n && !(element && joins(run, n, op))) {
      f->op[kept++] = fused(run, n);
      n = 0;
    }
    if (element)
      run[n++] = f->op[i];
    else if (op)
      f->op[kept++] = f->op[i];
  }
  f->nop = kept;
}

static bool is_update(const struct op *op)
{
  return op->kind == OP_adamw || op->kind == OP_sgd;
}

/* Whether no parameter lies between the two that `a` and `b` update. */
static bool neighbours(const struct op *a, const struct op *b)
{
  if (a->kind != b->kind || graph->value[a->in[0]].type != graph->value[b->in[0]].type)
    return false;
  for (int v = a->in[0] + 1; v < b->in[0]; v++)
    if (graph->value[v].role == PARAMETER) return false;
  return a->in[0] < b->in[0];
}

static void fuse_updates(struct function *f)
{
  int *run = alloc((size_t)(f->nop + 1) * sizeof *run), n = 0, kept = 0;
  for (int i = 0; i <= f->nop; i++) {
    const struct op *op = i < f->nop ? &graph->op[f->op[i]] : NULL;
    bool joined = op && n && is_update(op) && neighbours(&graph->op[run[n - 1]], op);
    if (n && !joined) {
      int id = fused(run, n);
      graph->op[id].kind = graph->op[run[0]].kind;
      f->op[kept++] = id;
      n = 0;
    }
    if (op && is_update(op))
      run[n++] = f->op[i];
    else if (op)
      f->op[kept++] = f->op[i];
  }
  f->nop = kept;
}

/* What is read is stored, and what a kernel file writes: of a family what stands for it, and where
 * a carried value begins. */
static void store(int value)
{
  struct value *v = &graph->value[value];
  if (v->op != NONE && is_literal(&graph->op[v->op])) return;
  v->stored = true;
  if (v->family != NONE) graph->value[v->family].stored = true;
  if (v->step) store(v->initial);
}

static void mark_stored(void)
{
  int *list = NULL, room = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    graph->value[i].stored = v->role != ACTIVATION || v->is_output;
  }
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    for (int k = 0; k < f->nop; k++) {
      const struct op *op = &graph->op[f->op[k]];
      while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
      for (int n = op_reads(op, list); n--;) store(list[n]);
      for (int j = 0; j < op->nout && op->nout > 1; j++) store(op->out + j);
    }
  }
}

void fuse(void)
{
  add_products_in_place();
  find_in_memory();
  for (int i = 0; i < graph->nfunction; i++) {
    struct function *f = &graph->function[i];
    if (f->phase == UPDATE)
      fuse_updates(f);
    else
      fuse_elements(f);
  }
  mark_stored();
}
