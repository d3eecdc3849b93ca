/* layouts.c: the layouts of the search, by numbers, and what a move between two of them costs.

   A move changes one dimension of the mesh after the other, in the order that costs least, or
   several by one exchange. A byte that a rank receives costs what its dimension of the mesh says.
 */
#include "auto/auto.h"

#include <math.h>
#include <string.h>

/* Coordinates of some ranks: of all, unless there are too many. */
static void sample_places(struct auto_space *s)
{
  int n = 1, places[MOST_DIMS];
  for (int i = 0; i < s->ndim; i++) {
    places[i] = graph->mesh.size[s->dim[i]];
    if (n * places[i] > MOST_SAMPLED >> (s->ndim - 1 - i)) places[i] = 2;
    n *= places[i];
  }
  s->places = n;
  for (int r = 0; r < n; r++)
    for (int i = s->ndim - 1, left = r; i >= 0; left /= places[i], i--) {
      const int k = left % places[i], size = graph->mesh.size[s->dim[i]];
      s->place[r][s->dim[i]] = places[i] < size && k ? size - 1 : k;
    }
}

/* The bandwidth of a dimension of the mesh, as the plan or its cluster gives it; 0: not given. */
static double bandwidth_of(int mesh_dim)
{
  const double given = graph->mesh.bandwidth[mesh_dim];
  return given > 0 || !has_cluster() ? given : link_of_dimension(mesh_dim).bandwidth;
}

static double latency_of(int mesh_dim)
{
  const double given = graph->mesh.latency[mesh_dim];
  return given > 0 || !has_cluster() ? given : link_of_dimension(mesh_dim).latency;
}

/* ------------------------------------------------------------------------------------- numbers */

static struct memo layouts;

/* The parts of sampled ranks: of each dimension of the tensor, in so many units as there are ranks.
   Of strided layouts only the size is known. */
enum { CUT_DIMS = MAX_DIMS, MOST_PLACEMENTS = 128 };
enum changed_as { AS_IT_IS, CUTTING_LAST, CHANGES };
struct known_layout {
  struct layout layout;
  int place[MAX_MESH];             /* the numbers of its placements; NONE: without one */
  int *changed[CHANGES][MAX_MESH]; /* by placement: see changed_to(); 0: not known yet */
  int plain;                       /* without pending sums; NONE: not known yet */
  bool is_strided;
  double size;                                  /* of a part, in parts of the whole */
  unsigned cut;                                 /* a bit for each dimension that is cut */
  int32_t (*first)[CUT_DIMS], (*end)[CUT_DIMS]; /* by sampled rank; NULL: not known yet */
};

static int nlayout, layout_room;
static struct known_layout *layout_list;

/* Placements have numbers, too: in the order in which they were seen. */
static int nplacement;
static struct placement placement_list[MOST_PLACEMENTS];

static int number_of_placement(struct placement p)
{
  for (int i = 0; i < nplacement; i++)
    if (!memcmp(&placement_list[i], &p, sizeof p)) return i;
  if (nplacement == MOST_PLACEMENTS) return NONE;
  placement_list[nplacement] = p;
  return nplacement++;
}

int number_of_layout(struct layout layout)
{
  static struct query q;
  layout = usual_cut_order(layout);
  begin_query(&q);
  ask_layout(&q, &layout);
  const int n = number_of_query(&layouts, &q);
  if (n >= nlayout) {
    GROW(layout_list, nlayout, layout_room);
    struct known_layout *k = &layout_list[nlayout++];
    *k = (struct known_layout){.layout = layout, .plain = NONE};
    for (int d = 0; d < graph->mesh.ndim; d++) k->place[d] = number_of_placement(layout.on[d]);
  }
  return n;
}

struct layout layout_of_number(int number)
{
  return layout_list[number].layout;
}

struct home whole_home(void)
{
  const struct layout whole = {.on = {{.kind = REPLICATE}}};
  const int number = number_of_layout(whole);
  return (struct home){.layout = number, .gradient = number};
}

bool cuts_well(int64_t size, int64_t parts)
{
  static const double MOST_MORE = 1.25;
  const int64_t largest = (size + parts - 1) / parts;
  return size % parts == 0 ||
         (size > parts && (double)(largest * parts) <= MOST_MORE * (double)size);
}

bool cuts_all_well(const struct auto_space *s, struct shape shape, struct layout layout)
{
  int64_t parts[MAX_DIMS];
  for (int d = 0; d < shape.ndim; d++) parts[d] = 1;
  for (int i = 0; i < s->ndim; i++) {
    const struct placement p = layout.on[s->dim[i]];
    if (p.kind != SHARD) continue;
    parts[p.dim] *= graph->mesh.size[s->dim[i]];
    if (shard_stride(p) > 1 && shape.size[p.dim] / shard_stride(p) % graph->mesh.size[s->dim[i]])
      return false;
  }
  for (int d = 0; d < shape.ndim; d++)
    if (!cuts_well(shape.size[d], parts[d])) return false;
  return true;
}

/* --------------------------------------------------------------------------------- moved bytes */

static struct layout without_pending(struct layout l)
{
  for (int d = 0; d < MAX_MESH; d++)
    if (l.on[d].kind == PARTIAL) l.on[d] = (struct placement){0};
  return l;
}

/* The part of each sampled rank, where all cuts are even. */
static const struct known_layout *parts_of(const struct auto_space *s, int number)
{
  struct known_layout *k = &layout_list[number];
  if (k->first) return k;
  k->first = alloc(MOST_SAMPLED * sizeof *k->first);
  k->end = alloc(MOST_SAMPLED * sizeof *k->end);
  k->size = 1;
  int32_t whole = 1;
  for (int i = 0; i < s->ndim; i++) {
    const int d = s->dim[i];
    whole *= graph->mesh.size[d];
    if (k->layout.on[d].kind != SHARD) continue;
    k->size /= graph->mesh.size[d];
    k->cut |= 1u << k->layout.on[d].dim;
    k->is_strided |= shard_stride(k->layout.on[d]) > 1;
  }
  for (int r = 0; r < s->places; r++)
    for (int dim = 0; dim < CUT_DIMS; dim++) {
      int32_t first = 0, size = whole;
      int cut[MAX_MESH];
      const int n = k->cut >> dim & 1 ? cuts_of(&graph->mesh, k->layout, dim, cut) : 0;
      for (int i = 0; i < n; i++) {
        size /= graph->mesh.size[cut[i]];
        first += size * s->place[r][cut[i]];
      }
      k->first[r][dim] = first;
      k->end[r][dim] = first + size;
    }
  return k;
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

static int plain_number(int number)
{
  if (layout_list[number].plain == NONE) {
    const int plain = number_of_layout(without_pending(layout_list[number].layout));
    layout_list[number].plain = plain;
  }
  return layout_list[number].plain;
}

/* How much some rank lacks of its new part, in parts of the whole. */
static double lacking(const struct auto_space *s, int from, int to)
{
  const int x = plain_number(from), y = plain_number(to);
  if (x == y) return 0;
  parts_of(s, x); /* these two may move the list */
  const struct known_layout *b = parts_of(s, y), *a = parts_of(s, x);
  if (a->is_strided || b->is_strided) {
    /* Where strides stay, the other cuts are within equal parts. */
    if (same_strides(a->layout, b->layout)) return b->size > a->size ? b->size - a->size : 0;
    return b->size;
  }
  double whole = 1, least = b->size;
  for (int i = 0; i < s->ndim; i++) whole *= graph->mesh.size[s->dim[i]];
  for (int r = 0; r < s->places; r++) {
    double common = 1;
    for (unsigned left = a->cut | b->cut; left; left &= left - 1) {
      const int dim = __builtin_ctz(left);
      const int32_t *p = a->first[r], *q = b->first[r];
      const int32_t first = p[dim] > q[dim] ? p[dim] : q[dim];
      const int32_t e = a->end[r][dim], f = b->end[r][dim], end = e < f ? e : f;
      common *= end > first ? (double)(end - first) / whole : 0;
    }
    if (common < least) least = common;
  }
  return b->size - least;
}

/* A move: the bytes, in parts of the whole and by their weights, and the steps. */
struct price_of_move {
  double bytes;
  int steps;
  bool is_known;
};

/* `from` with the placement of this dimension of the mesh as in `to`; or with that, as the last
   cut. */
static int changed_to(int from, int to, int d, enum changed_as how)
{
  const int place = layout_list[to].place[d];
  const int *known = layout_list[from].changed[how][d];
  if (known && place != NONE && known[place]) return known[place] - 1;
  struct layout l = layout_list[from].layout;
  l.on[d] = layout_list[to].layout.on[d];
  if (how == CUTTING_LAST) l.on[d].cut_order = MAX_MESH;
  const int n = number_of_layout(l);
  if (place == NONE) return n;
  int **row = &layout_list[from].changed[how][d];
  if (!*row) *row = alloc(MOST_PLACEMENTS * sizeof **row);
  (*row)[place] = n + 1;
  return n;
}

static double bytes_of_step(const struct auto_space *s, int before, int after, int d)
{
  const struct layout from = layout_list[before].layout, to = layout_list[after].layout;
  const double n = graph->mesh.size[d], weight = s->weight[d];
  const enum placement_kind a = from.on[d].kind, b = to.on[d].kind;
  if (a == PARTIAL && b == PARTIAL) return INFINITY; /* of another reduction */
  if (b == PARTIAL) return a == REPLICATE ? 0 : INFINITY;
  if (a == PARTIAL) {
    double all = 1;
    for (int i = 0; i < s->ndim; i++)
      if (s->dim[i] != d && from.on[s->dim[i]].kind == SHARD) all /= graph->mesh.size[s->dim[i]];
    if (b == REPLICATE) return 2 * all * (n - 1) / n * weight;
    /* The sum leaves the parts of an innermost cut; another order takes an exchange more. */
    const int inner = changed_to(before, after, d, CUTTING_LAST);
    return (all * (n - 1) / n + lacking(s, inner, after)) * weight;
  }
  return lacking(s, before, after) * weight;
}

static double least_of(const struct auto_space *s, int now, int to, unsigned left)
{
  if (!left) return lacking(s, now, to);
  double least = INFINITY;
  for (int i = 0; i < s->ndim; i++) {
    const int d = s->dim[i];
    if (!(left >> d & 1)) continue;
    const bool is_last = !(left & (left - 1));
    const int next = is_last ? to : changed_to(now, to, d, AS_IT_IS);
    const double here = bytes_of_step(s, now, next, d);
    if (here >= least) continue;
    const double rest = is_last ? 0 : least_of(s, next, to, left & ~(1u << d));
    if (here + rest < least) least = here + rest;
  }
  return least;
}

/* The sum over several dimensions at once: by parts of parts, the fastest dimension first. */
static double bytes_of_sum(const struct auto_space *s, struct layout from, unsigned dims)
{
  double bytes = 0, part = 1;
  for (int i = 0; i < s->ndim; i++)
    if (from.on[s->dim[i]].kind == SHARD) part /= graph->mesh.size[s->dim[i]];
  while (dims) {
    int next = NONE;
    for (int i = 0; i < s->ndim; i++) {
      const int d = s->dim[i];
      if (dims >> d & 1 && (next == NONE || s->weight[d] < s->weight[next])) next = d;
    }
    const double n = graph->mesh.size[next];
    bytes += 2 * part * (n - 1) / n * s->weight[next];
    part /= n;
    dims &= ~(1u << next);
  }
  return bytes;
}

static struct price_of_move find_price(const struct auto_space *s, int before, int after)
{
  const struct layout from = layout_list[before].layout, to = layout_list[after].layout;
  unsigned changed = 0, pending = 0, summed = 0;
  double slowest = 0;
  for (int i = 0; i < s->ndim; i++) {
    const int d = s->dim[i];
    if (same_placement(from.on[d], to.on[d])) continue;
    changed |= 1u << d;
    pending |= from.on[d].kind == PARTIAL || to.on[d].kind == PARTIAL;
    if (from.on[d].kind == PARTIAL && to.on[d].kind == REPLICATE) summed |= 1u << d;
    if (s->weight[d] > slowest) slowest = s->weight[d];
  }
  struct price_of_move p = {.is_known = true, .steps = __builtin_popcount(changed)};
  if (!changed) return p;
  p.bytes = least_of(s, before, after, changed);
  if (summed & (summed - 1)) {
    struct layout whole = from;
    for (int d = 0; d < MAX_MESH; d++)
      if (summed >> d & 1) whole.on[d] = (struct placement){0};
    const int next = number_of_layout(whole);
    const double sum = bytes_of_sum(s, from, summed);
    const double rest = next == after ? 0 : least_of(s, next, after, changed & ~summed);
    if (sum + rest < p.bytes) {
      p.bytes = sum + rest;
      p.steps = 1 + __builtin_popcount(changed & ~summed);
    }
  }
  if (!pending && p.bytes > 0) {
    const double at_once = lacking(s, before, after) * slowest;
    if (at_once < p.bytes) p.bytes = at_once, p.steps = 1;
  }
  return p;
}

/* By layouts before and after, in pieces of a row: most of a row is not needed. */
enum { PIECE = 32 };
static int nrow, row_room;
static struct row {
  int n, room;
  struct price_of_move **piece;
} * row;

static struct price_of_move *price_at(int from, int to)
{
  while (nrow <= from) {
    GROW(row, nrow, row_room);
    row[nrow++] = (struct row){0};
  }
  struct row *r = &row[from];
  while (r->n <= to / PIECE) {
    GROW(r->piece, r->n, r->room);
    r->piece[r->n++] = NULL;
  }
  struct price_of_move **piece = &r->piece[to / PIECE];
  if (!*piece) *piece = alloc(PIECE * sizeof **piece);
  return &(*piece)[to % PIECE];
}

/* Forgets the layouts and the moves of another graph. */
static void forget_other_graph(void)
{
  static const struct graph *of;
  if (!is_other_graph(&of)) return;
  empty_memo(&layouts);
  layout_list = NULL;
  row = NULL;
  nlayout = layout_room = nrow = row_room = nplacement = 0;
}

double cost_of_move(const struct auto_space *s, double bytes, int from, int to)
{
  if (from == to) return 0;
  struct price_of_move *p = price_at(from, to);
  if (!p->is_known) *p = find_price(s, from, to);
  return p->bytes * bytes + p->steps * s->step;
}

struct auto_space make_space(unsigned dims)
{
  struct auto_space s = {.parts = 1};
  double most = 0;
  forget_other_graph();
  for (int d = 0; d < graph->mesh.ndim; d++) {
    const bool is_chosen = dims >> d & 1 && graph->mesh.size[d] > 1 && s.ndim < MOST_DIMS;
    if (is_chosen) s.dim[s.ndim++] = d;
    if (is_chosen) most = fmax(most, bandwidth_of(d));
    bool cuts = false;
    for (int i = 0; i < graph->nvalue; i++)
      cuts |= graph->value[i].role == BATCH && graph->value[i].layout.on[d].kind == SHARD;
    if (cuts && !is_chosen && !graph->mesh.microbatch_axis[d]) s.parts *= graph->mesh.size[d];
  }
  sample_places(&s);
  s.step = STEP;
  if (most > 0 && graph->mesh.device.bandwidth > 0) s.second = most;
  for (int i = 0; i < s.ndim && s.second > 0; i++)
    s.step = fmax(s.step, latency_of(s.dim[i]) * s.second);
  for (int i = 0; i < s.ndim; i++) {
    const double bandwidth = bandwidth_of(s.dim[i]);
    s.weight[s.dim[i]] = most > 0 && bandwidth > 0 ? most / bandwidth : 1;
  }
  return s;
}
