/* fuse.c: the pass `fuse`: one kernel for operations on the same elements, and on the same rows.

   Takes   functions whose pointwise and reduce operations are single.
   Leaves  operations that one kernel can run (row_passes.c) as one fused operation, in which each
           comes after those whose values it reads. A value that only the kernel reads is not
           stored. Updates of parameters that are adjacent in memory are one operation, too. A value
           is marked `stored` if it takes memory. A kernel over rows by expert takes their count.

   Operations over the same row may read the sum over a row in the same kernel. Every other sum is
   complete only when its kernel ends: a reader of it begins another kernel. So does a reader of
   other elements of a value than the current one. */
#include "function_passes/function_passes.h"

#include <string.h>

/* The state of the pass. */
struct fusing {
  bool *in_memory; /* by value, at the representative of a stack: an operation other than a
                      kernel reads it */
  struct candidate **candidate; /* of a function, in the order in which they run */
  int ncandidate;
  int *maker;  /* by value: the operation of this function that makes it, or NONE */
  int *place;  /* by operation: the place of its candidate in the order */
  bool *after; /* by place, while two candidates are compared: it must run after the first */
  int *list, list_room;
};

static bool is_elementwise(const struct op *op)
{
  return is_pointwise(op->kind) || is_reduce(op->kind);
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
                  .last_batch = last->last_batch,
                  .module = last->module,
                  .line = last->line};
  return store_op(op);
}

/* The representative of its stack, or the value itself. */
static int fuse_stack_of(int value)
{
  const struct in_loop *loop = in_loop(value);
  return loop->stack == NONE ? value : loop->stack;
}

/* A constant of one element needs no kernel: readers write the number itself (program.c). */
static bool is_literal(struct fusing *p, const struct op *op)
{
  return op->kind == OP_full && elements(graph->value[op->out].shape) == 1 &&
         graph->value[op->out].role == ACTIVATION && !graph->value[op->out].is_output &&
         !p->in_memory[fuse_stack_of(op->out)];
}

/* ------------------------------------------------------------------------- which go together

   A candidate is an operation by itself, or several that will be one kernel. One after the other,
   each operation becomes a candidate after those before it, and is merged with a candidate that it
   shares a value with, where one kernel can run both and nothing has to run between them. The
   candidates between the two that read the first then come after both, the others before. */

struct candidate {
  bool element;
  int n, op[MOST_IN_KERNEL];
};

static int fuse_reads_of(struct fusing *p, int op)
{
  while (p->list_room < op_width(&graph->op[op]))
    p->list = grow(p->list, 0, &p->list_room, sizeof *p->list);
  return op_reads(&graph->op[op], p->list);
}

/* Whether the candidate reads a value made at a marked place from `first` on. */
static bool reads_after(struct fusing *p, const struct candidate *u, int first)
{
  for (int k = 0; k < u->n; k++)
    for (int n = fuse_reads_of(p, u->op[k]); n--;) {
      int op = p->maker[p->list[n]];
      if (op != NONE && p->place[op] >= first && p->after[p->place[op]]) return true;
    }
  return false;
}

/* Whether a call of several stages at `at` must stay after one that is marked, from `first` on. */
static bool keeps_stage_order_after(const struct fusing *p, int at, int first)
{
  const struct op *op = &graph->op[p->candidate[at]->op[0]];
  if (!is_transfer(op->kind) && !joins_stages(op)) return false;
  for (int i = first; i < at; i++)
    if (p->after[i] && keeps_stage_order(&graph->op[p->candidate[i]->op[0]], op)) return true;
  return false;
}

/* Whether the operation reads a result of the candidate, or both read an operand that has the size
   of the operation's space. */
static bool shares_value(const struct candidate *a, const struct op *op)
{
  int64_t most = elements(graph->value[space_of(op)].shape);
  for (int i = 0; i < op->nin; i++) {
    int value = op->in[i];
    for (int k = 0; k < a->n; k++) {
      const struct op *other = &graph->op[a->op[k]];
      if (other->out == value) return true;
      for (int j = 0; j < other->nin; j++)
        if (other->in[j] == value && elements(graph->value[value].shape) == most) return true;
    }
  }
  return false;
}

static bool can_be_one(struct fusing *p, int a, int b)
{
  const struct candidate *u = p->candidate[a], *v = p->candidate[b];
  int body[2 * MOST_IN_KERNEL], n = u->n + v->n;
  struct stages stages;
  if (!u->element || n > MOST_IN_KERNEL) return false;
  const struct op *first = &graph->op[u->op[0]], *second = &graph->op[v->op[0]];
  if (first->phase != second->phase || first->last_batch != second->last_batch) return false;
  bool related = false;
  for (int k = 0; k < v->n && !related; k++) related = shares_value(u, &graph->op[v->op[k]]);
  if (!related && a + 1 < b) return false;
  memcpy(body, u->op, (size_t)u->n * sizeof *body);
  memcpy(body + u->n, v->op, (size_t)v->n * sizeof *body);
  if (!find_stages(body, n, &stages)) return false;
  if (!related && stages.rows != NONE) return false;
  /* Whether the operations between two candidates can move before or after both. */
  p->after[a] = true;
  for (int at = a + 1; at <= b; at++) p->after[at] = false;
  for (int at = a + 1; at < b; at++)
    p->after[at] = reads_after(p, p->candidate[at], a) || keeps_stage_order_after(p, at, a);
  p->after[a] = false;
  return !reads_after(p, p->candidate[b], a);
}

/* Merges the candidates at a and b, and returns the place of the result. */
static int fuse_make_one(struct fusing *p, int a, int b)
{
  struct candidate *one = p->candidate[a], *gone = p->candidate[b],
                   **behind = alloc((size_t)(b - a) * sizeof *behind);
  int at = a, n = 0;
  memcpy(one->op + one->n, gone->op, (size_t)gone->n * sizeof *one->op);
  one->n += gone->n;
  for (int i = a + 1; i < b; i++)
    if (p->after[i])
      behind[n++] = p->candidate[i];
    else
      p->candidate[at++] = p->candidate[i];
  int met = at;
  p->candidate[at++] = one;
  for (int i = 0; i < n; i++) p->candidate[at++] = behind[i];
  for (int i = b + 1; i < p->ncandidate; i++) p->candidate[at++] = p->candidate[i];
  p->ncandidate = at;
  for (int i = a; i < p->ncandidate; i++)
    for (int k = 0; k < p->candidate[i]->n; k++) p->place[p->candidate[i]->op[k]] = i;
  return met;
}

static void join_others(struct fusing *p, int b)
{
  enum { FARTHEST = 48 }; /* the largest distance of the search */
  for (int a = b - 1; a >= 0 && b - a <= FARTHEST; a--) {
    if (graph->op[p->candidate[a]->op[0]].kind == OP_loop) return;
    if (!can_be_one(p, a, b)) continue;
    b = fuse_make_one(p, a, b);
    a = b;
  }
}

static int kernel_of(const struct candidate *u)
{
  int id = fused(u->op, u->n);
  struct stages *stages = alloc(sizeof *stages);
  if (!find_stages(u->op, u->n, stages)) bug_at("fuse", u->op[0], "no kernel can run it");
  graph->op[id].stages = stages;
  return id;
}

/* The count of the rows that the kernel goes over: that of an operation of the function on rows in
   the same layout, if the count is made before. Ranks with all experts have a row at each place. */
static int counts_before(const struct fusing *p, const struct function *f, int at)
{
  int space = graph->op[f->op[at]].stages->space;
  const struct value *v = &graph->value[space];
  if (v->counts == NONE || !is_cut(space, 0)) return NONE;
  for (int i = 0; i < f->nop; i++) {
    int counts = counts_taken(&graph->op[f->op[i]], v->counts, v->layout);
    if (counts != NONE && (p->maker[counts] == NONE || p->place[p->maker[counts]] < at))
      return counts;
  }
  return NONE;
}

static void fuse_elements(struct fusing *p, struct function *f)
{
  p->candidate = alloc((size_t)(f->nop + 1) * sizeof *p->candidate);
  p->after = alloc((size_t)(f->nop + 1) * sizeof *p->after);
  p->ncandidate = 0;
  for (int i = 0; i < graph->nvalue; i++) p->maker[i] = NONE;
  for (int i = 0; i < f->nop; i++)
    if (!is_literal(p, &graph->op[f->op[i]])) {
      int op = f->op[i];
      struct candidate *u = alloc(sizeof *u);
      const struct op *o = &graph->op[op];
      *u = (struct candidate){.element = is_elementwise(o), .n = 1, .op = {op}};
      p->place[op] = p->ncandidate;
      /* The first of the chunks counts: all chunks of a value make and read the same, in their
       * order.
       */
      for (int k = 0; k < o->nout && (!o->pieces || (!o->piece && o->in[o->nin - 1] != o->out));
           k++)
        p->maker[o->out + k] = op;
      for (int k = 0; k < o->nbody; k++)
        if (graph->op[o->body[k]].out != NONE) p->maker[graph->op[o->body[k]].out] = op;
      p->candidate[p->ncandidate++] = u;
      if (u->element) join_others(p, p->ncandidate - 1);
    }
  f->nop = 0;
  for (int i = 0; i < p->ncandidate; i++)
    f->op[f->nop++] =
        p->candidate[i]->element ? kernel_of(p->candidate[i]) : p->candidate[i]->op[0];
  for (int i = 0; i < f->nop; i++) {
    struct op *op = &graph->op[f->op[i]];
    int counts = op->kind == OP_fused ? counts_before(p, f, i) : NONE;
    if (counts != NONE) op->in[op->nin++] = counts;
  }
}

/* -------------------------------------------------------------------------------------- updates */

/* Whether no parameter is between the two that `a` and `b` update. */
static bool neighbours(const struct op *a, const struct op *b)
{
  if (!(a->kind == OP_buffer || is_kernel_alone(a)) || a->kind != b->kind ||
      a->number[0] != b->number[0] || graph->value[a->in[0]].type != graph->value[b->in[0]].type)
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
      graph->op[id].number[0] = graph->op[run[0]].number[0];
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

/* Stores a value that is read, or a result of a kernel file: also the representative of its stack,
   and the initial value of a carried one. */
static void store(struct fusing *p, int value)
{
  struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (v->op != NONE && is_literal(p, &graph->op[v->op])) return;
  v->stored = true;
  if (loop->stack != NONE) graph->value[loop->stack].stored = true;
  if (loop->step) store(p, loop->initial);
}

static void mark_stored(struct fusing *p)
{
  int *list = NULL, room = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    graph->value[i].stored = v->role != ACTIVATION || v->is_output;
  }
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      /* A kernel that adds to a gradient several times writes it once: all these sums have one
       * place. */
      const struct op *kernel = &graph->op[graph->function[i].op[k]];
      for (int j = 0; j < kernel->nbody; j++) {
        const struct op *op = &graph->op[kernel->body[j]];
        const struct value *to = op->nout == 1 ? &graph->value[op->out] : NULL;
        for (int n = 0; n < op->nin && to && is_gradient(op->out); n++) {
          struct value *v = &graph->value[op->in[n]];
          if (v->role == to->role && v->of == to->of && lists_number(kernel->body, j, v->op))
            v->stored = false;
        }
      }
    }
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    for (int k = 0; k < f->nop; k++) {
      const struct op *op = &graph->op[f->op[k]];
      while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
      for (int n = op_reads(op, list); n--;) store(p, list[n]);
      const bool unread = op->nout > 1 || op_row[op->kind].keeps;
      for (int j = 0; j < op->nout && unread; j++) store(p, op->out + j);
      if (op->packed) store(p, op->buffer);
    }
  }
}

void fuse(void)
{
  struct fusing run = {0}, *p = &run;
  add_products_in_place();
  /* Operands of collectives, matmuls and copies must be in memory, and so must carried values. */
  p->in_memory = alloc((size_t)(graph->nvalue + 1) * sizeof *p->in_memory);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      bool by_element = is_elementwise(op);
      int *list = alloc((size_t)op_width(op) * sizeof *list);
      for (int n = op_reads(op, list); n--;) {
        if (in_loop(list[n])->step) p->in_memory[fuse_stack_of(in_loop(list[n])->initial)] = true;
        if (!by_element) p->in_memory[fuse_stack_of(list[n])] = true;
      }
    }
  p->list = NULL;
  p->list_room = 0;
  p->maker = alloc((size_t)(graph->nvalue + 1) * sizeof *p->maker);
  p->place = alloc((size_t)(graph->nop + 1) * sizeof *p->place);
  for (int i = 0; i < graph->nfunction; i++) {
    struct function *f = &graph->function[i];
    fuse_elements(p, f);
    if (f->phase == UPDATE) fuse_updates(f);
  }
  mark_stored(p);
}
