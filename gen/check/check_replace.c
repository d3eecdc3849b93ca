/* check_replace.c: a part of check_memory.c: whether an operation may write a result over its
   input. The pass `memory` has rules of its own for that (function_passes/in_place.c). The rules
   here share nothing with them, and follow from how a kernel runs.

   A kernel goes through the elements or the rows of its space one or several times: in stages.
   Threads do elements, or rows, in any order. The thread that writes must have read the overwritten
   data for the last time: the same element in an earlier stage, or in the same stage by an
   operation that comes no later; or any element of the row in an earlier stage. An operation whose
   results are not stored runs again in each stage that needs them. */
#include "check/check.h"

/* Whether a rank's parts of both are equal in size and order of elements, on the first ranks and on
   the last, which has the smallest parts. */
static bool check_replace_same_tensors(int a, int b)
{
  enum { LOOKED_AT = 64 };
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  if (type_bytes(v->type) != type_bytes(w->type) || v->order != w->order) return false;
  int last = world_size() - 1;
  for (int rank = 0; rank < LOOKED_AT && rank < last; rank++)
    if (!same_shape(local_shape(a, rank), local_shape(b, rank))) return false;
  return same_shape(local_shape(a, last), local_shape(b, last));
}

/* The number of leading dimensions in which input i has the same letters as the space of the
   operation. */
static int dimensions_in_step(const struct op *op, int i)
{
  struct letters l;
  op_letters(op, &l);
  bool sums = l.ndim_out[0] < l.ndim_in[0] || is_reduce(op->kind);
  const struct axis *over = sums ? l.in[0] : l.out[0];
  int n = sums ? l.ndim_in[0] : l.ndim_out[0], d = 0;
  if (l.ndim_in[i] != n) return 0;
  for (; d < n; d++) {
    if (l.in[i][d].n != over[d].n) return d;
    for (int k = 0; k < over[d].n; k++)
      if (l.in[i][d].letter[k] != over[d].letter[k]) return d;
  }
  return d;
}

/* Whether operation k has read input i for the last time when operation w overwrites it. */
static bool is_read_before(const struct op *kernel, int last, int k, int i, int w)
{
  const struct task *task = kernel->stages->task;
  const struct op *op = &graph->op[kernel->body[k]];
  int now = task[w].stage, rows = kernel->stages->rows;
  int in_step = dimensions_in_step(op, i);
  int indexed = op->dims ? __builtin_ctz(op->dims) : 0; /* first that may be indexed */
  /* Whether the operator's expression reads the input by an index: "$a(". */
  bool asks_by_index = false;
  for (const char *c = op_row[op->kind].element; *c && !asks_by_index; c++)
    asks_by_index = c[0] == '$' && c[1] == 'a' + i && c[2] == '(';
  if (asks_by_index && in_step > indexed) in_step = indexed;
  int ndim = graph->value[op->in[i]].shape.ndim;
  if (last < now && task[k].of_row && rows != NONE && in_step >= rows) return true;
  if (in_step < ndim || !check_replace_same_tensors(op->in[i], graph->op[kernel->body[w]].out))
    return false;
  return last < now || (last == now && k <= w && !is_reduce(op->kind));
}

static bool is_made_within(const struct op *kernel, int value, int before)
{
  for (int k = 0; k < before; k++)
    if (graph->op[kernel->body[k]].out == value) return true;
  return false;
}

/* overlaps: whether a value shares bytes with `out`, which the kernel makes. */
bool kernel_may_replace(const struct op *kernel, int out, bool (*overlaps)(int value, int out))
{
  int w = 0, last[MOST_IN_KERNEL];
  while (w < kernel->nbody && graph->op[kernel->body[w]].out != out) w++;
  if (w == kernel->nbody || kernel->stages->task[w].of_row) return false;
  if (kernel->nin && overlaps(kernel->in[0], out)) return false; /* the count of its rows */
  if (is_reduce(graph->op[kernel->body[w]].kind)) return false;
  /* By operation of the kernel the last stage in which it runs. A stored value, a row's result and
     a reduced value stay; anything else is computed again for its readers. */
  const struct task *task = kernel->stages->task;
  for (int k = kernel->nbody; k-- > 0;) {
    const struct op *op = &graph->op[kernel->body[k]];
    last[k] = task[k].stage;
    if (task[k].of_row || is_reduce(op->kind) || graph->value[op->out].stored) continue;
    for (int m = k + 1; m < kernel->nbody; m++) {
      const struct op *reader = &graph->op[kernel->body[m]];
      for (int i = 0; i < reader->nin; i++)
        if (reader->in[i] == op->out && last[m] > last[k]) last[k] = last[m];
    }
  }
  for (int k = 0; k < kernel->nbody; k++) {
    const struct op *op = &graph->op[kernel->body[k]];
    for (int i = 0; i < op->nin; i++)
      if (!is_made_within(kernel, op->in[i], k) && overlaps(op->in[i], out) &&
          !is_read_before(kernel, last[k], k, i, w))
        return false;
  }
  return true;
}

/* An all_reduce and a to_partial may write a result over the input of the same member. */
bool move_may_replace(const struct op *op, int in, int out)
{
  bool leaves = op->kind == OP_all_reduce || op->kind == OP_to_partial;
  for (int k = 0; k < (op->nbody ? op->nbody : 1) && leaves; k++) {
    const struct op *one = op->nbody ? &graph->op[op->body[k]] : op;
    if (one->nout && one->out == out && one->in[0] == in)
      return check_replace_same_tensors(in, out);
  }
  return false;
}

/* A product may write over its third input only, the term that it adds to, where that has the
   result's parts. */
bool product_may_replace(const struct op *op, int in, int out, bool (*overlaps)(int value, int out))
{
  if (op->kind != OP_matmul || op->nin != 3 || op->in[2] != in || op->out != out) return false;
  return check_replace_same_tensors(in, out) && !overlaps(op->in[0], out) &&
         !overlaps(op->in[1], out);
}
