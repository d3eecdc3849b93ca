/* legs.c: divides a redistribution into legs, each between layouts of plain shards; and the cost of
   a redistribution. */
#include "sharding/sharding.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool is_cut(struct placement p, int dim)
{
  return p.kind == SHARD && p.dim == dim;
}

/* The smallest outer factor above `least` among both layouts' cuts of the dimension; or `size`. */
static int64_t next_stride(struct layout a, struct layout b, int dim, int64_t least, int64_t size)
{
  int64_t next = size;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = a.on[i], q = b.on[i];
    if (is_cut(p, dim) && shard_stride(p) > least && shard_stride(p) < next) next = shard_stride(p);
    if (is_cut(q, dim) && shard_stride(q) > least && shard_stride(q) < next) next = shard_stride(q);
  }
  return next;
}

/* Whether cutting a dimension of outer * inner elements over these n mesh dimensions, one after
   the other, gives each rank the same as cutting its outer factor alone. */
static bool is_aligned(int64_t outer, int64_t inner, const int *cut, int n)
{
  if (!n || !outer) return true;
  int64_t parts = graph->mesh.size[*cut], chunk = (outer + parts - 1) / parts;
  if (graph->mesh.in_time[*cut] && inner > 1 && outer % parts) return false;
  if ((outer * inner + parts - 1) / parts != chunk * inner) return false;
  return is_aligned(chunk, inner, cut + 1, n - 1) &&
         is_aligned(outer % chunk, inner, cut + 1, n - 1);
}

/* Whether the layout's cuts of a dimension remain cuts of its factors if it is split at the
   outer factors of `other`, too. */
static bool goes_apart(struct layout layout, struct layout other, int dim, int64_t size)
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

static bool differ(struct layout a, struct layout b, int dim)
{
  int x[MAX_MESH], y[MAX_MESH], n = cuts_of(&graph->mesh, a, dim, x);
  if (cuts_of(&graph->mesh, b, dim, y) != n) return true;
  for (int i = 0; i < n; i++)
    if (x[i] != y[i] || shard_stride(a.on[x[i]]) != shard_stride(b.on[y[i]])) return true;
  return false;
}

/* The dimensions that must be split into factors between two layouts. */
static unsigned strided_dims(struct shape whole, struct layout a, struct layout b)
{
  unsigned dims = 0;
  for (int d = 0; d < whole.ndim; d++)
    if ((is_strided(&graph->mesh, a, d) || is_strided(&graph->mesh, b, d)) && differ(a, b, d))
      dims |= 1u << d;
  return dims;
}

bool take_move_apart(struct shape whole, struct layout a, struct layout b, struct factors *f)
{
  unsigned strided = strided_dims(whole, a, b);
  int n = 0;
  int64_t size[MAX_DIMS + 2 * MAX_MESH];
  for (int d = 0; d < whole.ndim; d++) {
    for (int64_t at = 1, next; n == 0 || f->of[n - 1] != d || at < whole.size[d]; at = next) {
      next = strided >> d & 1 ? next_stride(a, b, d, at, whole.size[d]) : whole.size[d];
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

static int factor_at(const struct factors *f, int dim, int64_t stride)
{
  for (int i = 0; i < f->shape.ndim; i++)
    if (f->of[i] == dim && f->outer[i] == stride) return i;
  bug("redistribute", "dimension %d is not cut inside %" PRId64 " parts", dim, stride);
}

struct layout on_factors(const struct factors *f, struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement *p = &layout.on[i];
    if (p->kind != SHARD) continue;
    int at = 0;
    while (f->of[at] != p->dim) at++;
    bool alone = at + 1 == f->shape.ndim || f->of[at + 1] != p->dim;
    p->dim = alone ? at : factor_at(f, p->dim, shard_stride(*p));
    if (!alone) p->outer = 0;
  }
  return usual_turns(layout);
}

/* The layout without its cuts of these dimensions. */
static struct layout whole_along(struct layout layout, unsigned dims)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == SHARD && dims >> layout.on[i].dim & 1)
      layout.on[i] = (struct placement){0};
  return layout;
}

/* The dimensions of one element. A view's rule has no letter for them. */
static unsigned ones_of(struct shape whole)
{
  unsigned ones = 0;
  for (int d = 0; d < whole.ndim; d++)
    if (whole.size[d] == 1) ones |= 1u << d;
  return ones;
}

int find_stops(struct shape whole, struct layout from, struct layout to, struct layout *stop)
{
  unsigned strided = strided_dims(whole, from, to), apart = 0;
  if (!strided) {
    stop[0] = from;
    stop[1] = to;
    return same_layout(from, to) ? 1 : 2;
  }
  unsigned ones = ones_of(whole);
  for (int d = 0; d < whole.ndim; d++)
    if (strided >> d & 1 &&
        !(goes_apart(from, to, d, whole.size[d]) && goes_apart(to, from, d, whole.size[d])))
      apart |= 1u << d;
  struct layout way[] = {from, whole_along(from, ones), whole_along(from, ones | apart),
                         whole_along(to, ones), to};
  int n = 0;
  for (int i = 0; i < MAX_STOPS; i++)
    if (n == 0 || !same_layout(stop[n - 1], way[i])) stop[n++] = way[i];
  return n;
}

static bool is_plain(struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == SHARD && shard_stride(layout.on[i]) > 1) return false;
  return true;
}

int legs_of(struct shape whole, enum type type, struct layout from, struct layout to,
            struct leg leg[MAX_LEGS])
{
  struct layout stop[MAX_STOPS];
  struct factors f;
  int n = find_stops(whole, from, to, stop) - 1;
  for (int i = 0; i < n; i++) {
    if (!take_move_apart(whole, stop[i], stop[i + 1], &f)) return NONE;
    struct layout a = on_factors(&f, stop[i]), b = on_factors(&f, stop[i + 1]);
    leg[i] = (struct leg){.whole = f.shape, .moves = plan_moves(f.shape, type, a, b)};
  }
  return n;
}

static bool is_pending(struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == PARTIAL) return true;
  return false;
}

/* For plain shards. If nothing is pending, the fastest way is assumed to reach the lower bound,
   as it does where links are equal; else to cost what the greedy way costs. */
static int64_t plain_cost(struct shape whole, enum type type, struct layout from, struct layout to)
{
  bool least = !plan_options->greedy && !is_pending(from) && !is_pending(to);
  return (least ? least_bytes : greedy_bytes)(whole, type, from, to);
}

static double find_cost(struct shape whole, enum type type, struct layout from, struct layout to)
{
  struct layout stop[MAX_STOPS];
  struct factors f;
  double bytes = 0;
  if (!reductions_agree(from) || !reductions_agree(to)) return INFINITY;
  if (is_plain(from) && is_plain(to)) return (double)plain_cost(whole, type, from, to);
  for (int i = 1, n = find_stops(whole, from, to, stop); i < n; i++) {
    if (!take_move_apart(whole, stop[i - 1], stop[i], &f)) return INFINITY;
    struct layout a = on_factors(&f, stop[i - 1]), b = on_factors(&f, stop[i]);
    bytes += (double)plain_cost(f.shape, type, a, b);
  }
  return bytes;
}

/* Everything that a cost depends on, as numbers. */
enum { ASKED = 4 + MAX_MESH + MAX_DIMS + 2 * MAX_MESH };
struct asked {
  int n;
  uint64_t at[ASKED];
};

static uint64_t in_a_number(struct placement p)
{
  if (p.kind == PARTIAL) return 1 + (uint64_t)p.reduction;
  if (p.kind == REPLICATE) return 0;
  return (uint64_t)shard_stride(p) << 16 | (uint64_t)p.turn << 8 | (uint64_t)p.dim << 4 | 15;
}

static void ask_cost(struct asked *q, struct shape whole, enum type type, struct layout from,
                     struct layout to)
{
  int ndim = graph->mesh.ndim;
  q->n = 0;
  q->at[q->n++] = (uint64_t)type_bytes(type) << 1 | plan_options->greedy;
  q->at[q->n++] = (uint64_t)ndim << 8 | (uint64_t)whole.ndim;
  for (int i = 0; i < ndim; i++) q->at[q->n++] = (uint64_t)graph->mesh.size[i];
  for (int d = 0; d < whole.ndim; d++) q->at[q->n++] = (uint64_t)whole.size[d];
  for (int i = 0; i < ndim; i++) q->at[q->n++] = in_a_number(from.on[i]);
  for (int i = 0; i < ndim; i++) q->at[q->n++] = in_a_number(to.on[i]);
}

/* The engine asks this very often, mostly with repeats: the last answers are kept. */
double move_cost(struct shape whole, enum type type, struct layout from, struct layout to)
{
  enum { KEPT_BITS = 14 };
  static struct {
    struct asked asked;
    double bytes;
  } kept[1 << KEPT_BITS], *k;
  struct asked q;
  uint64_t hash = HASH_START;
  ask_cost(&q, whole, type, from, to);
  for (int i = 0; i < q.n; i++) hash = (hash ^ q.at[i]) * UINT64_C(0x9e3779b97f4a7c15);
  k = &kept[hash >> (64 - KEPT_BITS)];
  if (k->asked.n == q.n && !memcmp(k->asked.at, q.at, (size_t)q.n * sizeof *q.at)) return k->bytes;
  k->asked = q;
  k->bytes = find_cost(whole, type, from, to);
  return k->bytes;
}
