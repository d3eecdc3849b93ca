/* layouts.c: the layouts of the search, by numbers, and what a move between two of them costs.

   A move changes one dimension of the mesh after the other, in the order that costs least, or
   several by one exchange. A byte that a rank receives costs what its dimension of the mesh says. */
#include "auto/auto.h"

#include <math.h>
#include <string.h>

struct auto_space make_space(unsigned dims)
{
  struct auto_space s = {.parts = 1};
  double most = 0;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    const bool is_chosen = dims >> d & 1 && graph->mesh.size[d] > 1 && s.ndim < MOST_DIMS;
    if (is_chosen) s.dim[s.ndim++] = d;
    if (is_chosen && graph->mesh.bandwidth[d] > most) most = graph->mesh.bandwidth[d];
    bool cuts = false;
    for (int i = 0; i < graph->nvalue; i++)
      cuts |= graph->value[i].role == BATCH && graph->value[i].layout.on[d].kind == SHARD;
    if (cuts && !is_chosen && !graph->mesh.microbatch_axis[d]) s.parts *= graph->mesh.size[d];
  }
  for (int i = 0; i < s.ndim; i++) {
    const double bandwidth = graph->mesh.bandwidth[s.dim[i]];
    s.weight[s.dim[i]] = most > 0 && bandwidth > 0 ? most / bandwidth : 1;
  }
  return s;
}

/* ------------------------------------------------------------------------------------- numbers */

static struct memo layouts;


static int nlayout, layout_room;
static struct layout *layout_list;

int number_of_layout(struct layout layout)
{
  static struct query q;
  layout = usual_cut_order(layout);
  begin_query(&q);
  ask_layout(&q, &layout);
  const int n = number_of_query(&layouts, &q);
  if (n >= nlayout) {
    GROW(layout_list, nlayout, layout_room);
    layout_list[nlayout++] = layout;
  }
  return n;
}

struct layout layout_of_number(int number)
{
  return layout_list[number];
}

struct home whole_home(void)
{
  const struct layout whole = {.on = {{.kind = REPLICATE}}};
  return (struct home){.layout = number_of_layout(whole)};
}

static int nshape, shape_room;
static struct known_shape {
  struct shape shape;
  int64_t bytes;
} * shape_list;

int number_of_shape(struct shape shape, int64_t bytes)
{
  for (int i = 0; i < nshape; i++)
    if (shape_list[i].bytes == bytes && same_shape(shape_list[i].shape, shape)) return i;
  GROW(shape_list, nshape, shape_room);
  shape_list[nshape] = (struct known_shape){shape, bytes};
  return nshape++;
}

bool cuts_evenly(const struct auto_space *s, struct shape shape, struct layout layout)
{
  int64_t parts[MAX_DIMS];
  for (int d = 0; d < shape.ndim; d++) parts[d] = 1;
  for (int i = 0; i < s->ndim; i++) {
    const struct placement p = layout.on[s->dim[i]];
    if (p.kind != SHARD) continue;
    parts[p.dim] *= graph->mesh.size[s->dim[i]];
    if (shape.size[p.dim] / shard_stride(p) % graph->mesh.size[s->dim[i]]) return false;
  }
  for (int d = 0; d < shape.ndim; d++)
    if (shape.size[d] % parts[d]) return false;
  return true;
}

/* --------------------------------------------------------------------------------- moved bytes */

double bytes_of_part(const struct auto_space *s, int shape, int layout)
{
  const struct known_shape *of = &shape_list[shape];
  const struct layout l = layout_list[layout];
  int coordinate[MAX_MESH] = {0};
  (void)s;
  return (double)(elements(local_part(&graph->mesh, of->shape, l, coordinate).shape) * of->bytes);
}

static struct layout without_pending(struct layout l)
{
  for (int d = 0; d < MAX_MESH; d++)
    if (l.on[d].kind == PARTIAL) l.on[d] = (struct placement){0};
  return l;
}

static bool has_strides(struct layout l)
{
  for (int d = 0; d < MAX_MESH; d++)
    if (l.on[d].kind == SHARD && shard_stride(l.on[d]) > 1) return true;
  return false;
}

/* Whether the strided placements of one are those of the other: then they count as plain. */
static bool same_strides(struct layout a, struct layout b)
{
  for (int d = 0; d < MAX_MESH; d++) {
    const int64_t x = a.on[d].kind == SHARD ? shard_stride(a.on[d]) : 1;
    const int64_t y = b.on[d].kind == SHARD ? shard_stride(b.on[d]) : 1;
    if ((x > 1 || y > 1) && !same_placement(a.on[d], b.on[d])) return false;
  }
  return true;
}

/* The bytes that some rank lacks of its new part. */
static double lacking(const struct auto_space *s, int shape, struct layout from, struct layout to)
{
  enum { MOST_PLACES = 64 };
  const struct known_shape *of = &shape_list[shape];
  from = without_pending(from);
  to = without_pending(to);
  if (has_strides(from) || has_strides(to)) {
    /* Where strides stay, the other cuts are within equal parts. */
    int coordinate[MAX_MESH] = {0};
    const int64_t had = elements(local_part(&graph->mesh, of->shape, from, coordinate).shape);
    const int64_t gets = elements(local_part(&graph->mesh, of->shape, to, coordinate).shape);
    if (same_strides(from, to)) return (double)((gets > had ? gets - had : 0) * of->bytes);
    return (double)(gets * of->bytes);
  }
  int n = 1, places[MOST_DIMS];
  for (int i = 0; i < s->ndim; i++) {
    places[i] = graph->mesh.size[s->dim[i]];
    if (n * places[i] > MOST_PLACES) places[i] = places[i] > 2 ? 2 : places[i];
    n *= places[i];
  }
  int64_t most = 0;
  for (int r = 0; r < n; r++) {
    int coordinate[MAX_MESH] = {0};
    for (int i = s->ndim - 1, left = r; i >= 0; left /= places[i], i--) {
      const int k = left % places[i], size = graph->mesh.size[s->dim[i]];
      coordinate[s->dim[i]] = places[i] < size && k ? size - 1 : k;
    }
    const struct part a = local_part(&graph->mesh, of->shape, from, coordinate);
    const struct part b = local_part(&graph->mesh, of->shape, to, coordinate);
    int64_t common = 1;
    for (int d = 0; d < of->shape.ndim; d++) {
      const int64_t first = greater(a.first[d], b.first[d]);
      const int64_t end =
          lesser(a.first[d] + a.shape.size[d], b.first[d] + b.shape.size[d]);
      common *= greater(0, end - first);
    }
    most = greater(most, elements(b.shape) - common);
  }
  return (double)(most * of->bytes);
}

/* Each step counts a little, so that of equal costs that of fewer steps is taken. */
static const double STEP = 1e-3;

static double cost_of_step(const struct auto_space *s, int shape, struct layout from, struct layout to,
                           int d)
{
  const double n = graph->mesh.size[d], weight = s->weight[d];
  const enum placement_kind a = from.on[d].kind, b = to.on[d].kind;
  if (a == PARTIAL && b == PARTIAL) return INFINITY; /* of another reduction */
  if (b == PARTIAL) return a == REPLICATE ? STEP : INFINITY;
  if (a == PARTIAL) {
    struct layout whole = from;
    whole.on[d] = (struct placement){0};
    whole = usual_cut_order(without_pending(whole));
    const double all = bytes_of_part(s, shape, number_of_layout(whole));
    if (b == REPLICATE) return 2 * all * (n - 1) / n * weight + STEP;
    /* The sum leaves the parts of an innermost cut; another order takes an exchange more. */
    struct layout inner = from;
    inner.on[d] = to.on[d];
    inner.on[d].cut_order = MAX_MESH;
    inner = usual_cut_order(inner);
    return (all * (n - 1) / n + lacking(s, shape, inner, to)) * weight + STEP;
  }
  return lacking(s, shape, from, to) * weight + STEP;
}

/* With the placements of these dimensions of the mesh as in `to`. */
static struct layout changed_to(struct layout from, struct layout to, unsigned dims)
{
  /* The cuts keep their order: those of `to` where both cut. */
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (dims >> d & 1) from.on[d] = to.on[d];
  return usual_cut_order(from);
}

static double least_of(const struct auto_space *s, int shape, struct layout now, struct layout to,
                       unsigned left)
{
  if (!left) return same_layout(now, to) ? 0 : lacking(s, shape, now, to);
  double least = INFINITY;
  for (int i = 0; i < s->ndim; i++) {
    const int d = s->dim[i];
    if (!(left >> d & 1)) continue;
    const struct layout next = changed_to(now, to, 1u << d);
    const double here = cost_of_step(s, shape, now, next, d);
    if (here >= least) continue;
    const double rest = least_of(s, shape, next, to, left & ~(1u << d));
    if (here + rest < least) least = here + rest;
  }
  return least;
}

static double find_cost(const struct auto_space *s, int shape, struct layout from, struct layout to)
{
  unsigned changed = 0, pending = 0;
  double slowest = 0;
  for (int i = 0; i < s->ndim; i++) {
    const int d = s->dim[i];
    if (same_placement(from.on[d], to.on[d])) continue;
    changed |= 1u << d;
    pending |= from.on[d].kind == PARTIAL || to.on[d].kind == PARTIAL;
    if (s->weight[d] > slowest) slowest = s->weight[d];
  }
  if (!changed) return 0;
  double least = least_of(s, shape, from, to, changed);
  if (!pending) {
    const double at_once = lacking(s, shape, from, to) * slowest + STEP;
    if (at_once < least) least = at_once;
  }
  return least;
}

double cost_of_move(const struct auto_space *s, int shape, int from, int to)
{
  if (from == to) return 0;
  static struct memo costs;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_number(&q, shape);
  ask_number(&q, from);
  ask_number(&q, to);
  double *answer = answer_to(&costs, &q, sizeof *answer, &is_new);
  if (is_new) *answer = find_cost(s, shape, layout_list[from], layout_list[to]);
  return *answer;
}
