/* segments.c: divides a redistribution into segments, each between layouts of plain shards; and the
   cost of a redistribution. */
#include "sharding/sharding.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The smallest outer factor above `least` among both layouts' cuts of the dimension; or `size`. */
static int64_t next_stride(struct layout a, struct layout b, int dim, int64_t least, int64_t size)
{
  int64_t next = size;
  for (int i = 0; i < 2 * graph->mesh.ndim; i++) {
    struct placement p = i % 2 ? b.on[i / 2] : a.on[i / 2];
    if (p.kind != SHARD || p.dim != dim) continue;
    if (shard_stride(p) > least && shard_stride(p) < next) next = shard_stride(p);
  }
  return next;
}

/* Whether cutting a dimension of outer * inner elements over these n mesh dimensions, one after
   the other, gives each rank the same as cutting its outer factor only. */
static bool is_aligned(int64_t outer, int64_t inner, const int *cut, int n)
{
  if (!n || !outer) return true;
  int64_t parts = graph->mesh.size[*cut], chunk = (outer + parts - 1) / parts;
  if (graph->mesh.microbatch_axis[*cut] && inner > 1 && outer % parts) return false;
  if ((outer * inner + parts - 1) / parts != chunk * inner) return false;
  return is_aligned(chunk, inner, cut + 1, n - 1) &&
         is_aligned(outer % chunk, inner, cut + 1, n - 1);
}

/* Whether the layout's cuts of a dimension remain cuts of its factors if it is split at the
   outer factors of `other`, too. */
static bool can_be_split(struct layout layout, struct layout other, int dim, int64_t size)
{
  int cut[MAX_MESH], ncut = cuts_of(&graph->mesh, layout, dim, cut);
  for (int64_t at = 1, next; at < size; at = next) {
    next = next_stride(layout, other, dim, at, size);
    if (next % at) return false;
    int64_t end = next_stride(layout, layout, dim, at, size);
    int here[MAX_MESH], n = 0;
    for (int i = 0; i < ncut; i++)
      if (shard_stride(layout.on[cut[i]]) == at) here[n++] = cut[i];
    if (!is_aligned(next / at, end / next, here, n)) return false;
  }
  return true;
}

/* The dimensions that must be split into factors between two layouts: those with strided cuts that
   differ. */
static unsigned dims_to_split(struct shape whole, struct layout a, struct layout b)
{
  unsigned dims = 0;
  for (int d = 0; d < whole.ndim; d++) {
    if (!is_strided(&graph->mesh, a, d) && !is_strided(&graph->mesh, b, d)) continue;
    int x[MAX_MESH], y[MAX_MESH], n = cuts_of(&graph->mesh, a, d, x);
    bool differ = cuts_of(&graph->mesh, b, d, y) != n;
    for (int i = 0; i < n && !differ; i++)
      differ = x[i] != y[i] || shard_stride(a.on[x[i]]) != shard_stride(b.on[y[i]]);
    if (differ) dims |= 1u << d;
  }
  return dims;
}

bool take_move_apart(struct shape whole, struct layout a, struct layout b, struct factors *f)
{
  unsigned split = dims_to_split(whole, a, b);
  int n = 0;
  int64_t size[MAX_DIMS + 2 * MAX_MESH];
  for (int d = 0; d < whole.ndim; d++) {
    for (int64_t at = 1, next; n == 0 || f->of[n - 1] != d || at < whole.size[d]; at = next) {
      next = split >> d & 1 ? next_stride(a, b, d, at, whole.size[d]) : whole.size[d];
      f->of[n] = d;
      f->outer[n] = at;
      size[n++] = next / at;
    }
  }
  f->shape.ndim = n;
  if (n > MAX_DIMS) return false;
  memcpy(f->shape.size, size, (size_t)n * sizeof *size);
  return true;
}

struct layout on_factors(const struct factors *f, struct layout layout)
{
  const int n = f->shape.ndim;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement *p = &layout.on[i];
    if (p->kind != SHARD) continue;
    const int dim = p->dim;
    const int64_t stride = shard_stride(*p);
    int at = 0;
    while (f->of[at] != dim) at++;
    bool is_split = at + 1 < n && f->of[at + 1] == dim;
    while (is_split && at < n && (f->of[at] != dim || f->outer[at] != stride)) at++;
    if (at == n)
      bug("redistribute", "dimension %d is not cut inside %" PRId64 " parts", dim, stride);
    p->dim = at;
    if (is_split) p->outer = 0;
  }
  return usual_cut_order(layout);
}

/* The layout without its cuts of these dimensions. */
static struct layout whole_along(struct layout layout, unsigned dims)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == SHARD && dims >> layout.on[i].dim & 1)
      layout.on[i] = (struct placement){0};
  return layout;
}

int find_waypoints(struct shape whole, struct layout from, struct layout to,
                   struct layout *waypoint)
{
  unsigned split = dims_to_split(whole, from, to), unsplittable = 0, ones = 0;
  if (!split) {
    waypoint[0] = from;
    waypoint[1] = to;
    return same_layout(from, to) ? 1 : 2;
  }
  for (int d = 0; d < whole.ndim; d++) {
    const int64_t size = whole.size[d];
    if (size == 1) ones |= 1u << d; /* a view's rule has no letter for it */
    if (split >> d & 1 && !(can_be_split(from, to, d, size) && can_be_split(to, from, d, size)))
      unsplittable |= 1u << d;
  }
  struct layout all[] = {from, whole_along(from, ones), whole_along(from, ones | unsplittable),
                         whole_along(to, ones), to};
  int n = 0;
  for (int i = 0; i < MAX_WAYPOINTS; i++)
    if (n == 0 || !same_layout(waypoint[n - 1], all[i])) waypoint[n++] = all[i];
  return n;
}

int segments_of(struct shape whole, enum type type, struct layout from, struct layout to,
                struct move_segment segment[MAX_SEGMENTS])
{
  struct layout waypoint[MAX_WAYPOINTS];
  struct factors f;
  int n = find_waypoints(whole, from, to, waypoint) - 1;
  for (int i = 0; i < n; i++) {
    if (!take_move_apart(whole, waypoint[i], waypoint[i + 1], &f)) return NONE;
    struct layout a = on_factors(&f, waypoint[i]), b = on_factors(&f, waypoint[i + 1]);
    segment[i] = (struct move_segment){.whole = f.shape, .moves = plan_moves(f.shape, type, a, b)};
  }
  return n;
}

/* Whether a layout has only plain shards. */
static bool is_plain(const struct layout *layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout->on[i].kind == SHARD && shard_stride(layout->on[i]) > 1) return false;
  return true;
}

bool is_pending_layout(const struct layout *layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout->on[i].kind == PARTIAL) return true;
  return false;
}

/* For plain shards. If nothing is pending, the fastest path is assumed to reach the lower bound,
   as it does where links are equal; else to cost what the greedy path costs. */
static double plain_cost(struct cost_model *m, struct shape whole, enum type type,
                         struct layout from, struct layout to)
{
  if (plan_options->greedy || is_pending_layout(&from) || is_pending_layout(&to))
    return (double)greedy_bytes(m, whole, type, from, to);
  return (double)least_bytes(m, whole, type, from, to);
}

static double find_cost(struct cost_model *m, struct shape whole, enum type type,
                        struct layout from, struct layout to)
{
  struct layout waypoint[MAX_WAYPOINTS];
  struct factors f;
  double bytes = 0;
  if (!reductions_agree(from) || !reductions_agree(to)) return INFINITY;
  if (is_plain(&from) && is_plain(&to)) return plain_cost(m, whole, type, from, to);
  for (int i = 1, n = find_waypoints(whole, from, to, waypoint); i < n; i++) {
    if (!take_move_apart(whole, waypoint[i - 1], waypoint[i], &f)) return INFINITY;
    struct layout a = on_factors(&f, waypoint[i - 1]), b = on_factors(&f, waypoint[i]);
    bytes += plain_cost(m, f.shape, type, a, b);
  }
  return bytes;
}

double move_cost(struct cost_model *m, struct shape whole, enum type type, struct layout from,
                 struct layout to)
{
  enum { MOST_BYTES = 8 << 20 };
  bool is_new;
  if (m->costs.bytes > MOST_BYTES) empty_memo(&m->costs);
  ask_move(m, &m->cost, whole, type, &from, &to);
  double *cost = answer_to(&m->costs, &m->cost, sizeof *cost, &is_new);
  if (is_new) *cost = find_cost(m, whole, type, from, to);
  return *cost;
}
