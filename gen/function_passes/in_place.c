/* in_place.c: the operations that may write a result over their input.

   A view shares the bytes of its input. An all_reduce may sum in place. A product that adds to
   another value adds in its place. A fused kernel may, if each of its threads has finished with the
   input's element when it writes the output's. */
#include "function_passes/function_passes.h"

/* Whether the two have parts of the same shape on every rank. */
bool have_same_parts(int a, int b)
{
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  if (concat_slice(a)->buffer != NONE || concat_slice(b)->buffer != NONE) return false;
  return v->type == w->type && same_shape(v->shape, w->shape) && v->order == w->order &&
         same_local_shape(v->layout, w->layout);
}

bool is_view(const struct op *op)
{
  return op->kind == OP_view ||
         (op->kind == OP_to_partial && op->reduction != SUM && have_same_parts(op->in[0], op->out));
}

/* -------------------------------------------------------------------------------- fused kernels */

/* A read in a kernel of a value from outside: all facts except the value's place, which is compared
   for each pair of a kernel's reads and writes. */
struct outer_read {
  int value, n;       /* of body[n] */
  int last;           /* the last stage that reads it */
  bool ends_with_row; /* the read is over with its row when the next stage begins */
  bool elsewhere;     /* it reads other elements than the current one, or a part of the space */
  bool reduces;
};
struct outer_reads {
  const int *body; /* the operations that the reads are in */
  int n;
  struct outer_read *at;
};

static struct outer_read outer_read(const struct op *kernel, int n, int i)
{
  const struct op *op = &graph->op[kernel->body[n]];
  const struct stages *stages = kernel->stages;
  struct shape read = graph->value[op->in[i]].shape, space = graph->value[space_of(op)].shape;
  return (struct outer_read){.value = op->in[i],
                             .n = n,
                             .last = last_stage(kernel->body, stages, n),
                             .ends_with_row =
                                 stages->task[n].of_row && stays_in_row(op, i, stages->rows),
                             .elsewhere = reads_elsewhere(op, i) || !same_shape(read, space),
                             .reduces = is_reduce(op->kind)};
}

/* The reads of a kernel of the graph, found once. */
static const struct outer_reads *outer_reads_of(const struct op *kernel)
{
  static const struct graph *of;
  static struct outer_reads *known; /* by operation */
  static int count;
  if (is_other_graph(&of)) count = 0;
  while (count <= kernel - graph->op) known = grow(known, count, &count, sizeof *known);
  struct outer_reads *reads = &known[kernel - graph->op];
  if (reads->body == kernel->body) return reads;
  *reads = (struct outer_reads){.body = kernel->body};
  reads->at = alloc((size_t)(kernel->nbody * MAX_INPUTS) * sizeof *reads->at);
  for (int n = 0; n < kernel->nbody; n++) {
    const struct op *op = &graph->op[kernel->body[n]];
    for (int i = 0; i < op->nin; i++) {
      bool is_made = lists_number(kernel->body, kernel->nbody, graph->value[op->in[i]].op);
      if (!is_made) reads->at[reads->n++] = outer_read(kernel, n, i);
    }
  }
  return reads;
}

/* Whether a kernel that overwrites `value` at body[k] still reads right: every read of these bytes
   is of the element that is written, and comes no later. A view may have another element at these
   bytes. Values that the kernel makes itself are in registers, wherever it stores them. */
static bool read_in_step(const struct memory_plan *plan, const struct op *op, int k, int value)
{
  const struct outer_reads *reads = outer_reads_of(op);
  int now = op->stages->task[k].stage, storage = stack_representative(plan, value);
  if (op->stages->task[k].of_row) return false;
  for (const struct outer_read *r = reads->at; r < reads->at + reads->n; r++) {
    if (stack_representative(plan, r->value) != storage) continue;
    /* Whether their bytes are disjoint in one buffer, like those of members of a bucket. Valid once
       all values have an offset. */
    bool lie_apart = false;
    if (plan && plan->placed) {
      int64_t from = plan->of[r->value].offset, other = plan->of[value].offset;
      lie_apart = from + largest_bytes(r->value) <= other || other + largest_bytes(value) <= from;
    }
    if (lie_apart) continue;
    if (!have_same_parts(r->value, value)) return false;
    if (r->ends_with_row && r->last < now) continue;
    if (r->elsewhere || r->last > now) return false;
    if (r->last == now && (r->n > k || r->reduces)) return false;
  }
  return true;
}

/* -------------------------------------------------------------------------------- any operation */

bool adds_to_another(const struct op *op)
{
  return op->kind == OP_matmul && op->nin > 2 && op->in[2] != op->out && op->in[2] != op->in[0] &&
         op->in[2] != op->in[1];
}

bool overwrites(const struct op *op, int out, int *in)
{
  *in = NONE;
  if (op->kind == OP_fused) return true;
  if (adds_to_another(op)) {
    *in = op->in[2];
    return true;
  }
  if (!collective_row[op->kind].in_place && op->kind != OP_to_partial) return false;
  /* Each result of a bucket is made from one input. */
  *in = graph->op[graph->value[out].op].in[0];
  return true;
}

bool may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out)
{
  int only;
  if (!overwrites(op, out, &only) || !have_same_parts(in, out)) return false;
  if (only != NONE) return only == in;
  if (in == counts_of_kernel(op)) return false;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (inner->out == out) return !is_reduce(inner->kind) && read_in_step(plan, op, k, in);
  }
  return false;
}
