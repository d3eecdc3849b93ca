/* concat_buffers.c: a part of merge_products.c: values of the step side by side in a concat buffer.

   A concat buffer has a place in the arena and no other meaning. The rows of a part are not
   adjacent (local_strides). An operation that reads or makes a part must take strides, as must
   those of all values that show its bytes. A concat buffer lives as long as any of its parts. So a
   part that lives longer than the others, as v does where q and k are rotated, is copied out of it,
   into the place that it had.

   Without the copy either q and k would live as long as v (attention could read v with a stride):
   the activations of a Llama of 4 layers, dim 512, are then 71.7 MB instead of 63.4. Or v would be
   a product by itself: then the backward has three products for the gradient of the input, and adds
   them up. On a CPU all three take the same time, within 1%: the copy is a thousandth of a step. */
#include "function_passes/function_passes.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- readers */

static void note_reads(struct placed_ops *p, int id, int function, int place)
{
  const struct op *op = &graph->op[id];
  p->function_of[id] = function;
  p->place_of[id] = place;
  for (int k = 0; k < op->nbody; k++) {
    note_reads(p, op->body[k], function, place);
    p->is_tight[op->body[k]] = op->kind == OP_epilogue;
  }
  for (int i = 0; i < op->nin && !op->nbody; i++) {
    const struct in_loop *loop = in_loop(op->in[i]);
    int stack = loop->stack == NONE ? op->in[i] : loop->stack;
    add(&p->readers[stack], id);
    if (loop->stack != NONE && (loop->stack != op->in[i] || graph->function[function].count == 1))
      p->by_own_name[stack] = true;
    if (loop->step && in_loop(loop->initial)->stack != NONE)
      p->by_own_name[in_loop(loop->initial)->stack] = true;
    if (loop->step) add(&p->readers[loop->initial], id);
  }
}

struct placed_ops find_all_readers(void)
{
  struct placed_ops run = {0}, *p = &run;
  /* With room for new ones: for each product at most two values, and two operations. */
  size_t values = (size_t)graph->nvalue + 2 * (size_t)graph->nop + 1,
         ops = 3 * (size_t)graph->nop + 1;
  p->readers = alloc(values * sizeof *p->readers);
  p->by_own_name = alloc(values);
  p->is_tight = alloc(ops);
  p->function_of = alloc(ops * sizeof *p->function_of);
  p->place_of = alloc(ops * sizeof *p->place_of);
  for (size_t i = 0; i < ops; i++) p->function_of[i] = NONE;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) note_reads(p, graph->function[i].op[k], i, k);
  return run;
}

void note_place(struct placed_ops *p, int op, int function, int place)
{
  p->function_of[op] = function;
  p->place_of[op] = place;
}

/* -------------------------------------------------------------------- parts of a concat buffer */

static bool add_shown(struct placed_ops *p, struct shown *s, int value)
{
  if (s->n == 2 * MOST_TOGETHER) return false;
  s->value[s->n++] = value;
  for (int k = 0; k < p->readers[value].n; k++) {
    const struct op *op = &graph->op[p->readers[value].at[k]];
    if (op->kind == OP_view && !add_shown(p, s, op->out)) return false;
  }
  return true;
}

/* The value whose bytes a view shows, or the value itself. */
static int shows(int value)
{
  const struct value *v = &graph->value[value];
  while (v->op != NONE && graph->op[v->op].kind == OP_view && v->role == ACTIVATION) {
    value = graph->op[v->op].in[0];
    v = &graph->value[value];
  }
  return value;
}

bool parts_are_equal(int value)
{
  for (int d = 0; d < graph->value[value].shape.ndim; d++)
    if (!is_cut_evenly(value, d)) return false;
  return elements(local_shape(value, 0)) > 0;
}

/* Whether the operation takes any strides of its i-th operand; the operand after the last is its
   result. Some kernels of a reduction make all elements of the result in sequence, wherever they
   belong. */
static bool takes_strides(struct placed_ops *p, const struct op *op, int i)
{
  if (p->is_tight[op - graph->op]) return false;
  if (op->kind == OP_view) return !op->pieces;
  if (op->kind == OP_matmul) {
    /* A product adds to a value in its place; or to a copy, which has no gaps. A sum of products
       that are one has nothing to add to. */
    return !op->pieces &&
           (i < 2 || op->nin <= 2 || op->in[2] == op->out || !graph->value[op->in[2]].stored);
  }
  if (is_reduce(op->kind)) return i < op->nin;
  if (is_pointwise(op->kind)) return true;
  return has_kernel(op->kind) && takes_steps(op, i);
}

static bool all_take_strides(struct placed_ops *p, int value)
{
  const struct op *maker = &graph->op[graph->value[value].op];
  for (int k = 0; k < maker->nout; k++)
    if (maker->out + k == value && !takes_strides(p, maker, maker->nin + k)) return false;
  for (int k = 0; k < p->readers[value].n; k++) {
    const struct op *op = &graph->op[p->readers[value].at[k]];
    for (int i = 0; i < op->nin; i++)
      if (op->in[i] == value && !takes_strides(p, op, i)) return false;
  }
  return true;
}

/* Whether a sum over ranks takes place in the value: its place must then be that of the sum. */
static bool is_reduced_in_place(struct placed_ops *p, int value)
{
  if (graph->op[graph->value[value].op].kind == OP_all_reduce) return true;
  for (int k = 0; k < p->readers[value].n; k++)
    if (graph->op[p->readers[value].at[k]].kind == OP_all_reduce) return true;
  return false;
}

/* Whether the function makes the value, with equal parts of whole rows, of `row` elements each. */
static bool makes_rows(struct placed_ops *p, int value, int function, int64_t row)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (v->role != ACTIVATION || v->is_output || !v->stored || v->op == NONE) return false;
  if (concat_slice(value)->buffer != NONE) return false;
  if (loop->step || v->pieces || v->is_separate || (loop->stack != NONE && loop->stack != value))
    return false;
  if (loop->stack != NONE && p->by_own_name[value]) return false;
  if (p->function_of[v->op] != function || !parts_are_equal(value)) return false;
  /* Whether this number of elements of a rank's part are its innermost dimensions. */
  struct shape here = local_shape(value, 0);
  int64_t inside = 1;
  for (int at = here.ndim; at-- > 0 && inside < row;) inside *= here.size[dimension_at(value, at)];
  return inside == row;
}

/* Whether the value can be a part of a concat buffer, with rows that are not adjacent. */
static bool can_be_part(struct placed_ops *p, int value, int function, int64_t row)
{
  bool is_whole = row == elements(local_shape(value, 0));
  return makes_rows(p, value, function, row) && !is_reduced_in_place(p, value) &&
         (is_whole || all_take_strides(p, value));
}

/* A bit for the operation's function, and for whether it computes a value again before the rest; 0:
   the program has too many functions. */
static uint64_t concat_time_of(struct placed_ops *p, int op)
{
  enum { MOST = 32 };
  int function = p->function_of[op];
  if (function < MOST) return UINT64_C(1) << (2 * function + graph->op[op].recomputed);
  ended_early("merge_products", "products of values side by side", MOST, "functions");
  return 0;
}

/* The times at which it is read, likewise. */
static uint64_t times_of_reads(struct placed_ops *p, const struct shown *s)
{
  uint64_t times = 0;
  for (int i = 0; i < s->n; i++)
    for (int r = 0; r < p->readers[s->value[i]].n; r++) {
      uint64_t time = concat_time_of(p, p->readers[s->value[i]].at[r]);
      if (!time) return 0;
      times |= time;
    }
  return times;
}

/* The elements of a value's part from dimension d, in memory, to the innermost. */
static int64_t elements_from(int value, int d)
{
  int64_t stride[MAX_DIMS];
  local_strides(value, 0, stride);
  return stride[d] * local_shape(value, 0).size[d];
}

/* Whether the parts that live longer than the others can leave the concat buffer; marks them. They
   must be results of products, unchanged, and no more than half of all. */
static bool concat_find_leaving(struct placed_ops *p, struct widening *w, const int *value)
{
  uint64_t now = concat_time_of(p, graph->value[value[0]].op);
  int64_t all = 0, leaving = 0;
  for (int k = 0; k < w->n; k++) {
    w->leaves[k] = times_of_reads(p, &w->shown[k]) != now;
    if (w->leaves[k] && w->root[k] != value[k]) return false;
    all += w->row[k];
    leaving += w->leaves[k] ? w->row[k] : 0;
  }
  return now && 2 * leaving <= all;
}

/* Whether all of them are read at the same times. */
static bool have_equal_lifetimes(struct placed_ops *p, const struct widening *w)
{
  uint64_t first = times_of_reads(p, &w->shown[0]);
  for (int k = 1; k < w->n; k++)
    if (times_of_reads(p, &w->shown[k]) != first) return false;
  return first != 0;
}

bool can_widen(struct placed_ops *p, struct widening *w, int n, const int *value, const int *dim,
               int function, bool may_leave)
{
  *w = (struct widening){.n = n};
  for (int k = 0; k < n; k++) {
    w->root[k] = shows(value[k]);
    w->row[k] = elements_from(value[k], dim[k]);
    /* The step from one row to the next follows from a part's own shape. */
    if (local_shape(value[k], 0).size[dim[k]] == 1 &&
        w->row[k] == elements(local_shape(value[k], 0)))
      return false;
    for (int i = 0; i < k; i++)
      if (w->root[i] == w->root[k]) return false;
    if (!add_shown(p, &w->shown[k], w->root[k])) return false;
  }
  if (!have_equal_lifetimes(p, w) && !(may_leave && concat_find_leaving(p, w, value))) return false;
  for (int k = 0; k < n; k++) {
    if (w->leaves[k] && !makes_rows(p, w->root[k], function, w->row[k])) return false;
    for (int i = 0; i < w->shown[k].n && !w->leaves[k]; i++)
      if (!can_be_part(p, w->shown[k].value[i], function, w->row[k])) return false;
  }
  return true;
}

bool are_parts(int n, const int *value)
{
  const struct concat_slice *first = concat_slice(value[0]);
  int64_t at = 0;
  if (first->buffer == NONE) return false;
  for (int k = 0; k < n; k++) {
    const struct concat_slice *w = concat_slice(value[k]);
    if (w->buffer != first->buffer || w->first != at) return false;
    at += w->row;
  }
  return at == first->pitch;
}

static int like_value(int value, int stack)
{
  const struct value v = graph->value[value];
  const char *name = text("%s.wide", v.name);
  int made = add_value(v.role, name, v.type, v.shape, v.module, v.line);
  name = graph->value[made].name;
  graph->value[made] = v;
  graph->value[made].name = name;
  struct in_loop loop = *in_loop(value);
  if (loop.stack == NONE) return made;
  loop.stack = stack == NONE ? made : stack;
  *row_in_loop(made) = loop;
  return made;
}

/* A value like this one; also like that of module 1, by which values are named in a loop. */
static int value_before(int value)
{
  int before = like_value(value, NONE), sibling = in_loop(value)->sibling;
  if (sibling == NONE) return before;
  sibling = like_value(sibling, before);
  row_in_loop(before)->sibling = sibling;
  return before;
}

/* The product makes a value before this one, which is given, and a kernel copies that. */
static int concat_leave(struct placed_ops *p, struct widening *w, int value)
{
  int before = value_before(value), product = graph->value[value].op;
  const struct op *op = &graph->op[product];
  struct op copy = {.kind = OP_permute,
                    .nin = 1,
                    .in = {before},
                    .nout = 1,
                    .out = value,
                    .equation = identity_equation(graph->value[value].shape.ndim),
                    .phase = op->phase,
                    .recomputed = op->recomputed,
                    .module = op->module,
                    .line = op->line,
                    .part_of = op->part_of};
  int *body = alloc(sizeof *body), id = *body = store_op(copy);
  struct stages *stages = alloc(sizeof *stages);
  if (!find_stages(body, 1, stages)) bug_at("merge_products", id, "no kernel can run it");
  copy = (struct op){.kind = OP_fused,
                     .out = NONE,
                     .nbody = 1,
                     .body = body,
                     .stages = stages,
                     .phase = op->phase,
                     .module = op->module,
                     .line = op->line};
  w->copy[w->ncopy++] = store_op(copy);
  add(&p->readers[before], id);
  graph->op[product].out = before;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].op == product && i != before && i != in_loop(before)->sibling)
      graph->value[i].op = id;
  return before;
}

void make_wide(struct placed_ops *p, struct widening *w)
{
  const struct value first = graph->value[w->root[0]];
  int64_t pitch = 0, at = 0, rows = elements(local_shape(w->root[0], 0)) / w->row[0];
  for (int k = 0; k < w->n; k++) pitch += w->row[k];
  struct shape shape = {.ndim = 2, .size = {rows, pitch}};
  w->buffer = add_value(ACTIVATION, first.name, first.type, shape, first.module, first.line);
  graph->value[w->buffer].placed = graph->value[w->buffer].stored = true;
  for (int k = 0; k < w->n; at += w->row[k++]) {
    struct shown *s = &w->shown[k];
    if (w->leaves[k]) *s = (struct shown){.n = 1, .value = {concat_leave(p, w, w->root[k])}};
    struct concat_slice part = {.buffer = w->buffer, .row = w->row[k], .pitch = pitch, .first = at};
    for (int i = 0; i < s->n; i++) make_concat_slice(s->value[i], part);
  }
}
