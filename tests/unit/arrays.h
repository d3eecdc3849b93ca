/* arrays.h: tensors as plain arrays of doubles, whatever their type; which part of a tensor each
   rank holds under a layout, written from the definition in gen/ir/graph.h and not with the
   functions of gen/ir/shard.c; and whether what the ranks hold_part is what it should be. */
#ifndef ARRAYS_H
#define ARRAYS_H

#include "unit.h"

struct array {
  struct shape shape;
  double *at;
};

/* Memory for arrays, all of it free again after forget(): a test makes very many. */
enum { POOL = 1 << 24 };
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

/* The indices of the element after this one; false at the end. */
static bool next_index(struct shape s, int64_t *index)
{
  for (int d = s.ndim - 1; d >= 0; d--) {
    if (++index[d] < s.size[d]) return true;
    index[d] = 0;
  }
  return false;
}

static int64_t place_in_array(struct shape s, const int64_t *index)
{
  int64_t flat = 0;
  for (int d = 0; d < s.ndim; d++) flat = flat * s.size[d] + index[d];
  return flat;
}

static bool is_near(double a, double b, double tolerance)
{
  if (a == b) return true;
  double size = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
  return fabs(a - b) <= tolerance * (1 + size);
}

/* Where two tensors of a shape differ by more than the tolerance, absolute and relative; or
   NONE. */
__attribute__((unused)) static int64_t difference(struct array a, struct array b, double tolerance)
{
  for (int64_t i = 0, n = elements(a.shape); i < n; i++)
    if (!is_near(a.at[i], b.at[i], tolerance)) return i;
  return NONE;
}

/* ---------------------------------------------------------------------------------------- parts */

/* The indices along one dimension that a rank holds, ascending. */
struct array_part {
  int64_t n, at[2048];
};

static int64_t outer_of(struct placement p)
{
  return p.outer > 1 ? p.outer : 1;
}

/* What remains of [first, first + n) after it is cut among the ranks of mesh dimension i. */
static void chunk(int i, int shift, const int *coordinate, int64_t *first, int64_t *n)
{
  int64_t size = graph->mesh.size[i], each = (*n + size - 1) / size;
  int64_t index = (coordinate[i] - shift + size) % size; /* that of a rank before it, in a ring */
  int64_t begin = each * index < *n ? each * index : *n;
  int64_t end = begin + each < *n ? begin + each : *n;
  *first += begin;
  *n = end - begin;
}

/* The strides of the cuts of dimension `dim`, 1 among them, ascending: the dimension is seen as
   factors of u1/u0, u2/u1, ..., size/u_last. Gives how many. */
static int outers_of(struct layout layout, int dim, int64_t *outer)
{
  int n = 0;
  outer[n++] = 1;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (layout.on[i].kind != SHARD || layout.on[i].dim != dim) continue;
    int64_t u = outer_of(layout.on[i]);
    int at = n;
    while (at > 0 && outer[at - 1] > u) at--;
    if (at > 0 && outer[at - 1] == u) continue;
    memmove(outer + at + 1, outer + at, (size_t)(n - at) * sizeof *outer);
    outer[at] = u;
    n++;
  }
  return n;
}

static void hold_part(struct layout layout, int dim, int64_t size, const int *coordinate,
                      struct array_part *held)
{
  int64_t outer[MAX_MESH + 2];
  int n = outers_of(layout, dim, outer);
  outer[n] = size;
  held->n = 1;
  held->at[0] = 0;
  for (int j = 0; j < n; j++) {
    must(size == 0 || outer[j + 1] % outer[j] == 0,
         "%" PRId64 " elements cannot be cut in strides of %" PRId64, size, outer[j]);
    int64_t factor = outer[j + 1] / outer[j], first = 0, count = factor;
    for (int order = 0; order <= MAX_MESH; order++)
      for (int i = 0; i < graph->mesh.ndim; i++)
        if (layout.on[i].kind == SHARD && layout.on[i].dim == dim &&
            layout.on[i].cut_order == order && outer_of(layout.on[i]) == outer[j])
          chunk(i, (int)layout.on[i].shift, coordinate, &first, &count);
    int64_t before = held->n;
    held->n = before * count;
    must(held->n <= (int64_t)(sizeof held->at / sizeof *held->at), "a dimension is too long");
    for (int64_t a = before; a-- > 0;)
      for (int64_t b = count; b-- > 0;) held->at[a * count + b] = held->at[a] * factor + first + b;
  }
}

/* The part of `whole` that `rank` holds. */
__attribute__((unused)) static struct array cut(struct array whole, struct layout layout, int rank)
{
  static struct array_part held[MAX_DIMS];
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  struct shape shape = whole.shape;
  for (int d = 0; d < shape.ndim; d++) {
    hold_part(layout, d, whole.shape.size[d], coordinate, &held[d]);
    shape.size[d] = held[d].n;
  }
  struct array t = zeros(shape);
  int64_t index[MAX_DIMS] = {0}, there[MAX_DIMS];
  if (!elements(shape)) return t;
  for (double *to = t.at;; to++) {
    for (int d = 0; d < shape.ndim; d++) there[d] = held[d].at[index[d]];
    *to = whole.at[place_in_array(whole.shape, there)];
    if (!next_index(shape, index)) return t;
  }
}

/* The shape of the part, and where in the whole it begins. */
__attribute__((unused)) static struct part part_of(struct shape whole, struct layout layout,
                                                   int rank)
{
  static struct array_part held;
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  struct part p = {.shape = whole};
  for (int d = 0; d < whole.ndim; d++) {
    hold_part(layout, d, whole.size[d], coordinate, &held);
    p.shape.size[d] = held.n;
    p.first[d] = held.n ? held.at[0] : 0;
  }
  return p;
}

/* ----------------------------------------------------------------------- parts, sums and wholes */

/* What a rank may hold_part of a pending value of which `rest` is left. Of a sum: a summand; of a
   maximum or minimum: a lesser or a greater number. */
static double pending_part(enum type type, enum reduction reduction, double rest)
{
  if (type == BOOL)
    return reduction == SUM ? 0 : reduction == MAX ? rest && draw_below(2) : rest || draw_below(2);
  bool is_whole = type == I32 || type == I64 || draw_below(2);
  double size = is_whole ? draw_below(4) : 3 * fabs(draw_number());
  if (reduction != SUM) return rest + (reduction == MAX ? -size : size);
  return draw_below(2) ? size : -size;
}

/* Along mesh dimension d the ranks, which hold_part the same so far, take parts of a pending value.
   Those alike in all but this and the later dimensions hold_part the same afterwards too. */
static void make_pending(struct array *full, int d, int stride, enum type type,
                         enum reduction reduction)
{
  int world = world_size(), n = graph->mesh.size[d], coordinate[MAX_MESH];
  for (int r = 0; r < world; r += stride) {
    coordinate_of(r, coordinate);
    if (coordinate[d]) continue;
    for (int64_t i = 0, m = elements(full[r].shape); i < m; i++) {
      double rest = full[r].at[i];
      int owner = draw_below(n);
      for (int k = 0; k < n; k++) {
        if (k == owner) continue;
        double mine = pending_part(type, reduction, full[r + owner * stride].at[i]);
        if (reduction == SUM) rest -= mine;
        for (int below = 0; below < stride; below++) full[r + k * stride + below].at[i] = mine;
      }
      for (int below = 0; below < stride; below++) full[r + owner * stride + below].at[i] = rest;
    }
  }
}

/* What each rank holds of `whole` under `layout`. */
__attribute__((unused)) static struct array *scatter_type(struct array whole, enum type type,
                                                          struct layout layout)
{
  int world = world_size();
  struct array *full = take((size_t)world * sizeof *full),
               *part = take((size_t)world * sizeof *part);
  bool pending = false;
  for (int d = 0; d < graph->mesh.ndim; d++) pending |= layout.on[d].kind == PARTIAL;
  for (int r = 0; r < world; r++) {
    full[r] = whole;
    if (!pending) continue;
    full[r] = zeros(whole.shape);
    memcpy(full[r].at, whole.at, (size_t)elements(whole.shape) * sizeof(double));
  }
  for (int d = 0, stride = world; d < graph->mesh.ndim; d++) {
    stride /= graph->mesh.size[d];
    if (layout.on[d].kind == PARTIAL) make_pending(full, d, stride, type, layout.on[d].reduction);
  }
  for (int r = 0; r < world; r++) part[r] = cut(full[r], layout, r);
  return part;
}

__attribute__((unused)) static struct array *scatter(struct array whole, struct layout layout)
{
  return scatter_type(whole, F32, layout);
}

/* What is no number stays none: a library may take either side of a comparison with it. */
static double reduce_two(enum reduction how, double a, double b)
{
  if (isnan(a) || isnan(b)) return NAN;
  if (how == MAX) return a > b ? a : b;
  if (how == MIN) return a < b ? a : b;
  return a + b;
}

/* What each rank holds once mesh dimension d, whose ranks are `stride` apart, is reduced. */
static struct array *reduced_along(const struct array *part, int d, int stride, enum reduction how)
{
  int world = world_size(), coordinate[MAX_MESH];
  struct array *next = take((size_t)world * sizeof *next);
  for (int r = 0; r < world; r++) {
    coordinate_of(r, coordinate);
    int first = r - coordinate[d] * stride;
    next[r] = zeros(part[r].shape);
    for (int64_t i = 0, n = elements(part[r].shape); i < n; i++) {
      double all = part[first].at[i];
      for (int k = 1; k < graph->mesh.size[d]; k++)
        all = reduce_two(how, all, part[first + k * stride].at[i]);
      next[r].at[i] = all;
    }
  }
  return next;
}

/* NULL if the ranks' parts mean `whole` under `layout`, else what is wrong. */
__attribute__((unused)) static const char *
not_the_whole(const struct array *part, struct array whole, struct layout layout, double tolerance)
{
  int world = world_size();
  struct array *expected = take((size_t)world * sizeof *expected);
  for (int r = 0; r < world; r++) {
    expected[r] = cut(whole, layout, r);
    if (!same_shape(part[r].shape, expected[r].shape))
      return text("rank %d holds %s, not %s", r, shape_text(part[r].shape),
                  shape_text(expected[r].shape));
  }
  for (int d = graph->mesh.ndim - 1, stride = 1; d >= 0; stride *= graph->mesh.size[d], d--)
    if (layout.on[d].kind == PARTIAL) part = reduced_along(part, d, stride, layout.on[d].reduction);
  for (int r = 0; r < world; r++) {
    int64_t at = difference(part[r], expected[r], tolerance);
    if (at != NONE)
      return text("rank %d: element %" PRId64 " of %s is %.9g, not %.9g", r, at,
                  shape_text(part[r].shape), part[r].at[at], expected[r].at[at]);
  }
  return NULL;
}

#endif
