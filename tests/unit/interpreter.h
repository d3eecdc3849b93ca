/* interpreter.h: what a program means, in plain loops over doubles: a reference for every row of
   the table of operators, and a machine of simulated ranks that runs a graph, collectives included,
   as the generated C would (gen/emit.c, gen/collective.c, runtime/cpu_math.h). */
#ifndef INTERPRETER_H
#define INTERPRETER_H

#include "unit.h"

/* -------------------------------------------------------------------------------------- tensors */

struct array {
  struct shape shape;
  double *at;
};

/* Memory for arrays, all of it free again after forget(): a test makes very many. */
enum { POOL = 1 << 23 };
static double pool[POOL];
static size_t pool_used;

__attribute__((unused)) static void forget(void)
{
  pool_used = 0;
}

static void *take(size_t bytes)
{
  size_t n = bytes / sizeof *pool + 1;
  if (pool_used + n > POOL) {
    fprintf(stderr, "the interpreter's memory is full\n");
    abort();
  }
  void *at = memset(pool + pool_used, 0, bytes);
  pool_used += n;
  return at;
}

__attribute__((unused)) static struct array zeros(struct shape shape)
{
  return (struct array){shape, take((size_t)elements(shape) * sizeof(double))};
}

__attribute__((unused)) static struct array random_array(struct shape shape)
{
  struct array t = zeros(shape);
  for (int64_t i = 0, n = elements(shape); i < n; i++) t.at[i] = draw_number();
  return t;
}

/* The indices of the element at place `flat`. */
static void indices_of(struct shape s, int64_t flat, int64_t *index)
{
  for (int d = s.ndim - 1; d >= 0; d--) {
    index[d] = flat % s.size[d];
    flat /= s.size[d];
  }
}

static int64_t place_of(struct shape s, const int64_t *index)
{
  int64_t flat = 0;
  for (int d = 0; d < s.ndim; d++) flat = flat * s.size[d] + index[d];
  return flat;
}

/* The part of `whole` that `rank` holds. */
__attribute__((unused)) static struct array cut(struct array whole, struct layout layout, int rank)
{
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  struct part p = local_part(&graph->mesh, whole.shape, layout, coordinate);
  struct array t = zeros(p.shape);
  int64_t index[MAX_DIMS];
  for (int64_t i = 0, n = elements(p.shape); i < n; i++) {
    indices_of(p.shape, i, index);
    for (int d = 0; d < p.shape.ndim; d++) index[d] += p.first[d];
    t.at[i] = whole.at[place_of(whole.shape, index)];
  }
  return t;
}

static bool is_near(double a, double b, double tolerance)
{
  double size = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
  return fabs(a - b) <= tolerance * (1 + size);
}

/* Where two tensors of a shape differ by more than the tolerance, absolute and relative; or NONE.
 */
__attribute__((unused)) static int64_t difference(struct array a, struct array b, double tolerance)
{
  for (int64_t i = 0, n = elements(a.shape); i < n; i++)
    if (!is_near(a.at[i], b.at[i], tolerance)) return i;
  return NONE;
}

/* ----------------------------------------------------------------------- parts, sums and wholes */

/* Each rank's tensors: what it holds of `whole` under `layout`. Along a mesh dimension of pending
   sums the ranks hold random summands of it; along one of pending maxima or minima, random lesser
   or greater numbers, but for one of them. */
__attribute__((unused)) static struct array *scatter(struct array whole, struct layout layout)
{
  int world = world_size(), coordinate[MAX_MESH];
  struct array *full = take((size_t)world * sizeof *full);
  for (int r = 0; r < world; r++) {
    full[r] = zeros(whole.shape);
    memcpy(full[r].at, whole.at, (size_t)elements(whole.shape) * sizeof(double));
  }
  for (int d = 0, stride = world; d < graph->mesh.ndim; d++) {
    int n = graph->mesh.size[d];
    stride /= n;
    if (layout.on[d].kind != PARTIAL) continue;
    /* Ranks alike in all but this and the later dimensions hold the same so far. */
    for (int64_t i = 0, m = elements(whole.shape); i < m; i++)
      for (int r = 0; r < world; r++) {
        coordinate_of(r, coordinate);
        if (coordinate[d] || r % stride) continue;
        double rest = full[r].at[i];
        int owner = draw_below(n);
        for (int k = n - 1; k >= 0; k--) {
          double mine = k ? draw_number() : rest;
          if (layout.on[d].reduction != SUM)
            mine = k == owner
                       ? rest
                       : rest + (layout.on[d].reduction == MAX ? -1 : 1) * fabs(draw_number());
          else if (k)
            rest -= mine;
          for (int below = 0; below < stride; below++) full[r + k * stride + below].at[i] = mine;
        }
      }
  }
  struct array *part = take((size_t)world * sizeof *part);
  for (int r = 0; r < world; r++) part[r] = cut(full[r], layout, r);
  return part;
}

static double reduce_two(enum reduction how, double a, double b)
{
  if (how == MAX) return a > b ? a : b;
  if (how == MIN) return a < b ? a : b;
  return a + b;
}

/* NULL if the ranks' parts mean `whole` under `layout`, else what is wrong. */
__attribute__((unused)) static const char *
not_the_whole(const struct array *part, struct array whole, struct layout layout, double tolerance)
{
  int world = world_size(), coordinate[MAX_MESH];
  struct array *sum = take((size_t)world * sizeof *sum);
  for (int r = 0; r < world; r++) {
    struct shape wanted = cut(whole, layout, r).shape;
    if (!same_shape(part[r].shape, wanted))
      return text("rank %d holds %s, not %s", r, shape_text(part[r].shape), shape_text(wanted));
    sum[r] = part[r];
  }
  for (int d = graph->mesh.ndim - 1, stride = 1; d >= 0; stride *= graph->mesh.size[d], d--) {
    if (layout.on[d].kind != PARTIAL) continue;
    struct array *next = take((size_t)world * sizeof *next);
    for (int r = 0; r < world; r++) {
      coordinate_of(r, coordinate);
      next[r] = zeros(sum[r].shape);
      for (int64_t i = 0, n = elements(sum[r].shape); i < n; i++)
        for (int k = 0; k < graph->mesh.size[d]; k++) {
          double x = sum[r + (k - coordinate[d]) * stride].at[i];
          next[r].at[i] = k ? reduce_two(layout.on[d].reduction, next[r].at[i], x) : x;
        }
    }
    sum = next;
  }
  for (int r = 0; r < world; r++) {
    struct array wanted = cut(whole, layout, r);
    int64_t at = difference(sum[r], wanted, tolerance);
    if (at != NONE)
      return text("rank %d: element %" PRId64 " of %s is %.9g, not %.9g", r, at,
                  shape_text(wanted.shape), sum[r].at[at], wanted.at[at]);
  }
  return NULL;
}

/* ------------------------------------------------------------------------ the rows of the table */

static double sigmoid(double x)
{
  return 1 / (1 + exp(-x));
}

/* One element of a pointwise row, or one summand of a reduce row; false if the row has no
 * reference. */
static bool element(enum op_kind kind, const double *x, double s, double *y)
{
  switch (kind) {
  case OP_add:
    *y = x[0] + x[1];
    return true;
  case OP_sub:
    *y = x[0] - x[1];
    return true;
  case OP_mul:
    *y = x[0] * x[1];
    return true;
  case OP_div:
    *y = x[0] / x[1];
    return true;
  case OP_neg:
    *y = -x[0];
    return true;
  case OP_scale:
    *y = s * x[0];
    return true;
  case OP_relu:
    *y = x[0] < 0 ? 0 : x[0];
    return true;
  case OP_relu_back:
    *y = x[1] <= 0 ? 0 : x[0];
    return true;
  case OP_sigmoid:
    *y = sigmoid(x[0]);
    return true;
  case OP_sigmoid_back:
    *y = x[0] * x[1] * (1 - x[1]);
    return true;
  case OP_tanh:
    *y = tanh(x[0]);
    return true;
  case OP_tanh_back:
    *y = x[0] * (1 - x[1] * x[1]);
    return true;
  case OP_silu:
    *y = x[0] * sigmoid(x[0]);
    return true;
  case OP_silu_back:
    *y = x[0] * (sigmoid(x[1]) + x[1] * sigmoid(x[1]) * (1 - sigmoid(x[1])));
    return true;
  case OP_exp:
    *y = exp(x[0]);
    return true;
  case OP_square:
    *y = x[0] * x[0];
    return true;
  case OP_expand:
    *y = s * x[0];
    return true;
  case OP_sum:
    *y = x[0];
    return true;
  case OP_variance:
    *y = (x[0] - x[1]) * (x[0] - x[1]);
    return true;
  case OP_variance_back:
    *y = 2 * s * x[0] * (x[1] - x[2]);
    return true;
  case OP_full:
    *y = s;
    return true;
  default:
    return false;
  }
}

__attribute__((unused)) static bool has_reference(enum op_kind kind)
{
  double x[MAX_INPUTS] = {1, 1, 1, 1}, y;
  return kind == OP_matmul || element(kind, x, 1, &y);
}

/* The element of `t`, aligned at the last dimension, that stands at `index` of `space`. */
static double broadcast_element(const struct op *op, struct array t, struct shape space,
                                const int64_t *index)
{
  int64_t own[MAX_DIMS];
  for (int d = 0; d < t.shape.ndim; d++) {
    int at = space.ndim - t.shape.ndim + d;
    must(t.shape.size[d] == 1 || t.shape.size[d] == space.size[at],
         "%s: an input of shape %s does not fit %s", op_row[op->kind].name, shape_text(t.shape),
         shape_text(space));
    own[d] = t.shape.size[d] == 1 ? 0 : index[at];
  }
  return t.at[place_of(t.shape, own)];
}

/* The indices without those in op->dims, which are gone or 0. */
static void reduced_index(const struct op *op, int ndim, const int64_t *index, int64_t *own)
{
  for (int d = 0, n = 0; d < ndim; d++) {
    bool gone = op->dims >> d & 1;
    if (!gone) own[n++] = index[d];
    if (gone && op->keep) own[n++] = 0;
  }
}

static struct array run_pointwise(const struct op *op, const struct array *in, struct shape shape)
{
  struct array out = zeros(shape);
  for (int64_t i = 0, n = elements(shape); i < n; i++) {
    int64_t index[MAX_DIMS], own[MAX_DIMS];
    double x[MAX_INPUTS];
    indices_of(shape, i, index);
    for (int k = 0; k < op->nin; k++) {
      if (op->kind != OP_expand) {
        x[k] = broadcast_element(op, in[k], shape, index);
        continue;
      }
      reduced_index(op, shape.ndim, index, own);
      x[k] = in[k].at[place_of(in[k].shape, own)];
    }
    must(element(op->kind, x, op->scalar, &out.at[i]), "no reference for %s",
         op_row[op->kind].name);
  }
  return out;
}

static struct array run_reduce(const struct op *op, const struct array *in, struct shape shape)
{
  struct array out = zeros(shape);
  struct shape space = in[0].shape;
  for (int64_t i = 0, n = elements(space); i < n; i++) {
    int64_t index[MAX_DIMS], own[MAX_DIMS];
    double x[MAX_INPUTS], y;
    indices_of(space, i, index);
    for (int k = 0; k < op->nin; k++) x[k] = broadcast_element(op, in[k], space, index);
    must(element(op->kind, x, op->scalar, &y), "no reference for %s", op_row[op->kind].name);
    reduced_index(op, space.ndim, index, own);
    out.at[place_of(shape, own)] += op->scalar * y;
  }
  return out;
}

/* Any einsum of two operands, by walking over all letters. */
static struct array run_matmul(const struct op *op, const struct array *in, struct shape shape)
{
  struct array out = zeros(shape), operand[3] = {in[0], in[1], out};
  char letters[32] = "";
  struct shape space = {0};
  int64_t index[MAX_DIMS], own[3][MAX_DIMS];
  int where[3][MAX_DIMS];
  const char *c = op->equation;
  for (int k = 0; k < 3; k++, c += strspn(c, ",->"))
    for (int d = 0; d < operand[k].shape.ndim; d++, c++) {
      char *found = strchr(letters, *c);
      int at = found ? (int)(found - letters) : space.ndim;
      if (!found) {
        letters[space.ndim] = *c;
        space.size[space.ndim++] = operand[k].shape.size[d];
      }
      must(space.size[at] == operand[k].shape.size[d], "matmul %s of %s and %s to %s: '%c' differs",
           op->equation, shape_text(in[0].shape), shape_text(in[1].shape), shape_text(shape), *c);
      where[k][d] = at;
    }
  for (int64_t i = 0, n = elements(space); i < n; i++) {
    indices_of(space, i, index);
    for (int k = 0; k < 3; k++)
      for (int d = 0; d < operand[k].shape.ndim; d++) own[k][d] = index[where[k][d]];
    out.at[place_of(shape, own[2])] +=
        in[0].at[place_of(in[0].shape, own[0])] * in[1].at[place_of(in[1].shape, own[1])];
  }
  return out;
}

/* What an operation with a rule makes of tensors, whole or parts; `shape` is that of its output. */
__attribute__((unused)) static struct array evaluate(const struct op *op, const struct array *in,
                                                     struct shape shape)
{
  if (op->kind == OP_matmul) return run_matmul(op, in, shape);
  if (is_reduce(op->kind)) return run_reduce(op, in, shape);
  return run_pointwise(op, in, shape);
}

/* ---------------------------------------------------------------------------------- the machine */

/* part[rank][value]: what each rank holds. */
struct machine {
  int world;
  struct array **part;
};

__attribute__((unused)) static struct machine new_machine(void)
{
  struct machine m = {.world = world_size()};
  m.part = alloc((size_t)m.world * sizeof *m.part);
  for (int r = 0; r < m.world; r++)
    m.part[r] = alloc((size_t)(graph->nvalue + 1) * sizeof **m.part);
  return m;
}

/* Gives every rank its part of a value. */
__attribute__((unused)) static void load(struct machine *m, int value, struct array whole)
{
  struct array *part = scatter(whole, graph->value[value].layout);
  for (int r = 0; r < m->world; r++) m->part[r][value] = part[r];
}

/* NULL if the ranks' parts of `value` mean `whole`, else what is wrong. */
__attribute__((unused)) static const char *not_held(const struct machine *m, int value,
                                                    struct array whole, double tolerance)
{
  struct array *part = alloc((size_t)m->world * sizeof *part);
  for (int r = 0; r < m->world; r++) part[r] = m->part[r][value];
  return not_the_whole(part, whole, graph->value[value].layout, tolerance);
}

/* A collective's buffers are flat, and its counts are those that the generated call would name. */
static void run_all_reduce(struct machine *m, const struct op *op, const int *member, int n,
                           int rank, const int64_t *give)
{
  struct array out = zeros(local_shape(op->out, rank));
  must(give[0] == elements(out.shape), "all_reduce of %" PRId64 " elements into %s", give[0],
       shape_text(out.shape));
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    must(elements(in.shape) == give[0],
         "all_reduce: rank %d brings %s, rank %d %" PRId64 " elements", member[k],
         shape_text(in.shape), rank, give[0]);
    for (int64_t i = 0; i < give[0]; i++)
      out.at[i] = k ? reduce_two(op->reduction, out.at[i], in.at[i]) : in.at[i];
  }
  m->part[rank][op->out] = out;
}

static void run_all_gather(struct machine *m, const struct op *op, const int *member, int n,
                           int rank, const int64_t *give)
{
  struct array out = zeros(local_shape(op->out, rank));
  int64_t start = 0;
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    must(elements(in.shape) == give[k], "all_gather: rank %d brings %s, rank %d awaits %" PRId64,
         member[k], shape_text(in.shape), rank, give[k]);
    must(start + give[k] <= elements(out.shape), "all_gather overruns %s", shape_text(out.shape));
    for (int64_t i = 0; i < give[k]; i++) out.at[start + i] = in.at[i];
    start += give[k];
  }
  must(start == elements(out.shape), "all_gather fills %" PRId64 " elements of %s", start,
       shape_text(out.shape));
  m->part[rank][op->out] = out;
}

static void run_reduce_scatter(struct machine *m, const struct op *op, const int *member, int n,
                               int rank, const int64_t *give)
{
  struct array out = zeros(local_shape(op->out, rank));
  int64_t start = 0, all = 0;
  for (int k = 0; k < n; k++) {
    if (member[k] < rank) start += give[k];
    if (member[k] == rank)
      must(give[k] == elements(out.shape), "reduce_scatter: %" PRId64 " elements into %s", give[k],
           shape_text(out.shape));
    all += give[k];
  }
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    must(elements(in.shape) == all, "reduce_scatter: rank %d brings %s, not %" PRId64 " elements",
         member[k], shape_text(in.shape), all);
    for (int64_t i = 0; i < elements(out.shape); i++)
      out.at[i] = k ? reduce_two(op->reduction, out.at[i], in.at[start + i]) : in.at[start + i];
  }
  m->part[rank][op->out] = out;
}

static void run_all_to_all(struct machine *m, const struct op *op, const int *member, int n,
                           int rank, const int64_t *get)
{
  struct array out = zeros(local_shape(op->out, rank));
  int64_t *theirs = alloc((size_t)n * sizeof *theirs), *unused = alloc((size_t)n * sizeof *unused);
  int64_t start = 0;
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    collective_counts(op, member[k], theirs, unused);
    int64_t from = 0, mine = 0, all = 0;
    for (int j = 0; j < n; j++) {
      if (member[j] < rank) from += theirs[j];
      if (member[j] == rank) mine = theirs[j];
      all += theirs[j];
    }
    must(mine == get[k], "all_to_all: rank %d sends %" PRId64 " to rank %d, which awaits %" PRId64,
         member[k], mine, rank, get[k]);
    must(all == elements(in.shape), "all_to_all: rank %d sends %" PRId64 " of %s", member[k], all,
         shape_text(in.shape));
    must(start + mine <= elements(out.shape), "all_to_all overruns %s", shape_text(out.shape));
    for (int64_t i = 0; i < mine; i++) out.at[start + i] = in.at[from + i];
    start += mine;
  }
  must(start == elements(out.shape), "all_to_all fills %" PRId64 " elements of %s", start,
       shape_text(out.shape));
  m->part[rank][op->out] = out;
}

static void run_collective(struct machine *m, const struct op *op, int rank)
{
  int n = group_size(op->group), *member = alloc((size_t)n * sizeof *member);
  int64_t *give = alloc((size_t)n * sizeof *give), *get = alloc((size_t)n * sizeof *get);
  group_members(op->group, rank, member);
  collective_counts(op, rank, give, get);
  switch (op->kind) {
  case OP_all_reduce:
    run_all_reduce(m, op, member, n, rank, give);
    break;
  case OP_all_gather:
    run_all_gather(m, op, member, n, rank, give);
    break;
  case OP_reduce_scatter:
    run_reduce_scatter(m, op, member, n, rank, give);
    break;
  default:
    run_all_to_all(m, op, member, n, rank, get);
    break;
  }
}

static int64_t product(struct shape s, int first, int last)
{
  int64_t n = 1;
  for (int d = first; d < last; d++) n *= s.size[d];
  return n;
}

/* As slice_text: rows of the part, each a stretch of a row of the whole. */
static void run_slice(struct machine *m, const struct op *op, int rank)
{
  struct array in = m->part[rank][op->in[0]], out = zeros(local_shape(op->out, rank));
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  int64_t parts = graph->mesh.size[op->mesh_dim], n = in.shape.size[op->dim];
  int64_t inner = product(in.shape, op->dim + 1, in.shape.ndim);
  int64_t begin = (n + parts - 1) / parts * coordinate[op->mesh_dim] * inner;
  int64_t length = product(out.shape, op->dim, out.shape.ndim), of = n * inner;
  if (elements(out.shape)) {
    must(begin + length <= of, "slice of %s from %" PRId64 " on overruns", shape_text(in.shape),
         begin);
    must(product(in.shape, 0, op->dim) == product(out.shape, 0, op->dim), "slice: rows differ");
    for (int64_t row = 0; row < product(in.shape, 0, op->dim); row++)
      for (int64_t i = 0; i < length; i++) out.at[row * length + i] = in.at[row * of + begin + i];
  }
  m->part[rank][op->out] = out;
}

/* As pack_text: between rows that hold a stretch of every part, and the parts one after the other.
 */
static void run_pack(struct machine *m, const struct op *op, int rank)
{
  struct array in = m->part[rank][op->in[0]], out = zeros(local_shape(op->out, rank));
  must(elements(in.shape) == elements(out.shape), "%s changes the size", op_row[op->kind].name);
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  int64_t inner = product(in.shape, op->dim + 1, in.shape.ndim),
          rows = product(in.shape, 0, op->dim);
  int64_t of = in.shape.size[op->dim] * inner, begin = 0;
  for (int p = 0; p < graph->mesh.size[op->mesh_dim]; p++) {
    coordinate[op->mesh_dim] = p;
    struct part part = local_part(&graph->mesh, graph->value[op->in[0]].shape, op->to, coordinate);
    int64_t length = part.shape.size[op->dim] * inner;
    must(begin + length <= of, "%s: the parts overrun %s", op_row[op->kind].name,
         shape_text(in.shape));
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = 0; i < length; i++) {
        int64_t in_row = row * of + begin + i, in_part = rows * begin + row * length + i;
        if (op->kind == OP_pack)
          out.at[in_part] = in.at[in_row];
        else
          out.at[in_row] = in.at[in_part];
      }
    begin += length;
  }
  must(begin == of, "%s: the parts fill %" PRId64 " of %" PRId64, op_row[op->kind].name, begin, of);
  m->part[rank][op->out] = out;
}

static void run_to_partial(struct machine *m, const struct op *op, int rank)
{
  struct array in = m->part[rank][op->in[0]], out = zeros(in.shape);
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  if (!coordinate[op->mesh_dim]) memcpy(out.at, in.at, (size_t)elements(in.shape) * sizeof *in.at);
  m->part[rank][op->out] = out;
}

/* Runs one operation on all ranks. */
static void run_op(struct machine *m, const struct op *op)
{
  for (int r = 0; r < m->world; r++) {
    struct array in[MAX_INPUTS];
    for (int i = 0; i < op->nin; i++) in[i] = m->part[r][op->in[i]];
    if (is_collective(op->kind))
      run_collective(m, op, r);
    else if (op->kind == OP_slice)
      run_slice(m, op, r);
    else if (op->kind == OP_pack || op->kind == OP_unpack)
      run_pack(m, op, r);
    else if (op->kind == OP_to_partial)
      run_to_partial(m, op, r);
    else
      m->part[r][op->out] = evaluate(op, in, local_shape(op->out, r));
  }
}

/* What the flat program means on whole arrays, whatever the layouts: whole[value] for each value.
   The arrays of what no operation makes are given. */
__attribute__((unused)) static void run_whole(struct array *whole)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    struct array in[MAX_INPUTS];
    if (op->out == NONE) continue;
    for (int k = 0; k < op->nin; k++) in[k] = whole[op->in[k]];
    bool moves = op->kind == OP_redistribute;
    whole[op->out] = moves ? in[0] : evaluate(op, in, graph->value[op->out].shape);
  }
}

/* Runs the flat program, from its first operation to its last, but for the updates. */
__attribute__((unused)) static void run_flat(struct machine *m)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->out != NONE) run_op(m, op);
  }
}

#endif
