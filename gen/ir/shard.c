/* shard.c: which part of a tensor a rank holds. Cuts as torch.chunk does
   (tests/golden/local_shapes.tsv). */
#include "ir/ir.h"

#include <string.h>

int ranks_along(int mesh_dim)
{
  return graph->mesh.microbatch_axis[mesh_dim] ? 1 : graph->mesh.size[mesh_dim];
}

int time_dimension(void)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->mesh.microbatch_axis[i]) return i;
  return NONE;
}

int microbatches(void)
{
  int dim = time_dimension();
  return dim == NONE ? 1 : graph->mesh.size[dim];
}

struct layout over_time(struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->mesh.microbatch_axis[i]) layout.on[i] = (struct placement){0};
  return usual_cut_order(layout);
}

unsigned dimensions_of_ranks(void)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (!graph->mesh.microbatch_axis[i]) dims |= 1u << i;
  return dims;
}

bool is_of_microbatch(int value)
{
  int dim = time_dimension();
  return dim != NONE && graph->value[value].layout.on[dim].kind != REPLICATE;
}

int world_size(void)
{
  int n = 1;
  for (int i = 0; i < graph->mesh.ndim; i++) n *= ranks_along(i);
  return n;
}

/* Ranks are laid over the mesh row by row: neighbours in the last dimension are consecutive. */
void coordinate_of(int rank, int coordinate[MAX_MESH])
{
  for (int i = graph->mesh.ndim - 1; i >= 0; i--) {
    coordinate[i] = graph->mesh.microbatch_axis[i] ? graph->mesh.now : rank % ranks_along(i);
    rank /= ranks_along(i);
  }
}

/* The rank at that place, whatever the micro-batch. */
int rank_at_coordinate(const int coordinate[MAX_MESH])
{
  int rank = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (!graph->mesh.microbatch_axis[i]) rank = rank * graph->mesh.size[i] + coordinate[i];
  return rank;
}

int64_t shard_stride(struct placement p)
{
  return p.outer > 1 ? p.outer : 1;
}

/* The part that a rank at this coordinate holds: it is another where it is shifted. */
static int part_held(const struct mesh *mesh, struct placement p, int mesh_dim, int coordinate)
{
  int n = mesh->size[mesh_dim];
  return p.shift ? (coordinate + n - (int)p.shift % n) % n : coordinate;
}

int64_t chunk_size(int64_t n, int parts, int index)
{
  int64_t chunk = (n + parts - 1) / parts, first = chunk * index;
  return first >= n ? 0 : first + chunk < n ? chunk : n - first;
}

int64_t cut_first(const struct mesh *mesh, int mesh_dim, int64_t n, int index)
{
  int parts = mesh->size[mesh_dim];
  int64_t chunk = (n + parts - 1) / parts, first = chunk * index;
  if (mesh->microbatch_axis[mesh_dim])
    return n / parts * index + (index < n % parts ? index : n % parts);
  return first < n ? first : n;
}

int64_t cut_size(const struct mesh *mesh, int mesh_dim, int64_t n, int index)
{
  int parts = mesh->size[mesh_dim];
  if (mesh->microbatch_axis[mesh_dim]) return n / parts + (index < n % parts);
  return chunk_size(n, parts, index);
}

int cuts_of(const struct mesh *mesh, struct layout layout, int dim, int cut[MAX_MESH])
{
  int n = 0;
  for (int i = 0; i < mesh->ndim; i++) {
    if (layout.on[i].kind != SHARD || layout.on[i].dim != dim) continue;
    int at = n++;
    for (; at > 0 && layout.on[cut[at - 1]].cut_order > layout.on[i].cut_order; at--)
      cut[at] = cut[at - 1];
    cut[at] = i;
  }
  return n;
}

bool is_reordered(const struct mesh *mesh, struct layout layout, int dim)
{
  int cut[MAX_MESH], n = cuts_of(mesh, layout, dim, cut);
  for (int i = 1; i < n; i++)
    if (cut[i - 1] > cut[i]) return true;
  return false;
}

bool is_strided(const struct mesh *mesh, struct layout layout, int dim)
{
  for (int i = 0; i < mesh->ndim; i++)
    if (layout.on[i].kind == SHARD && layout.on[i].dim == dim && shard_stride(layout.on[i]) > 1)
      return true;
  return false;
}

/* The size of the factor that a cut with this outer factor cuts: up to the next finer cut of
   `dim`. */
static int64_t factor_of(const struct mesh *mesh, struct layout layout, int dim, int64_t size,
                         int64_t stride)
{
  int64_t next = size;
  for (int i = 0; i < mesh->ndim; i++) {
    struct placement p = layout.on[i];
    if (p.kind == SHARD && p.dim == dim && shard_stride(p) > stride && shard_stride(p) < next)
      next = shard_stride(p);
  }
  return next / stride;
}

/* The mesh dimensions that cut the same factor of the dimension as `mesh_dim`, in their order. */
static void cuts_of_factor(const struct mesh *mesh, struct layout layout, int mesh_dim,
                           int cut[MAX_MESH])
{
  int n = cuts_of(mesh, layout, layout.on[mesh_dim].dim, cut), kept = 0;
  for (int i = 0; i < n; i++)
    if (shard_stride(layout.on[cut[i]]) == shard_stride(layout.on[mesh_dim])) cut[kept++] = cut[i];
}

/* Whether the one in time of these cuts makes equal parts of each part of n that those before it
   make. */
static bool are_equal_in_time(const struct mesh *mesh, const int *cut, int64_t n)
{
  bool equal = true;
  if (mesh->microbatch_axis[*cut]) return n % mesh->size[*cut] == 0;
  for (int k = 0; k < mesh->size[*cut] && equal; k++)
    equal = are_equal_in_time(mesh, cut + 1, cut_size(mesh, *cut, n, k));
  return equal;
}

bool is_cut_evenly_in_time(const struct mesh *mesh, struct layout layout, int mesh_dim,
                           struct shape whole)
{
  const struct placement p = layout.on[mesh_dim];
  int cut[MAX_MESH];
  cuts_of_factor(mesh, layout, mesh_dim, cut);
  return are_equal_in_time(mesh, cut,
                           factor_of(mesh, layout, p.dim, whole.size[p.dim], shard_stride(p)));
}

/* The local size of a strided dimension: the product of its factors' parts. */
static int64_t strided_size(const struct mesh *mesh, struct layout layout, int dim, int64_t size,
                            const int coordinate[MAX_MESH])
{
  int64_t product = size;
  unsigned done = 0;
  int cut[MAX_MESH], ncut = cuts_of(mesh, layout, dim, cut);
  for (int i = 0; i < ncut; i++) {
    if (done >> i & 1) continue;
    int64_t stride = shard_stride(layout.on[cut[i]]);
    int64_t factor = factor_of(mesh, layout, dim, size, stride), n = factor;
    for (int k = i; k < ncut; k++) {
      if (shard_stride(layout.on[cut[k]]) != stride) continue;
      n = cut_size(mesh, cut[k], n, part_held(mesh, layout.on[cut[k]], cut[k], coordinate[cut[k]]));
      done |= 1u << k;
    }
    product = product / factor * n;
  }
  return product;
}

static void shard_cut_along(const struct mesh *mesh, struct placement cut, int mesh_dim,
                            int64_t whole, const int coordinate[MAX_MESH], struct part *p)
{
  int dim = cut.dim, index = part_held(mesh, cut, mesh_dim, coordinate[mesh_dim]);
  int64_t n = p->shape.size[dim];
  p->shape.size[dim] = cut_size(mesh, mesh_dim, n, index);
  p->first[dim] += cut_first(mesh, mesh_dim, n, index);
  if (!p->shape.size[dim]) p->first[dim] = whole;
}

static void cut_plainly(const struct mesh *mesh, struct layout layout, int dim, int64_t whole,
                        const int coordinate[MAX_MESH], struct part *p)
{
  int cut[MAX_MESH], ncut = cuts_of(mesh, layout, dim, cut);
  for (int i = 0; i < ncut; i++)
    shard_cut_along(mesh, layout.on[cut[i]], cut[i], whole, coordinate, p);
}

/* Whether this dimension cuts plainly, and no later dimension of the mesh cuts the same tensor
   dimension: true in most layouts. */
static bool cuts_alone(const struct mesh *mesh, const struct layout *layout, int mesh_dim)
{
  const struct placement *p = &layout->on[mesh_dim];
  for (int i = mesh_dim + 1; i < mesh->ndim; i++)
    if (layout->on[i].kind == SHARD && layout->on[i].dim == p->dim) return false;
  return p->outer <= 1;
}

struct part local_part(const struct mesh *mesh, struct shape whole, struct layout layout,
                       const int coordinate[MAX_MESH])
{
  struct part p = {.shape = whole};
  unsigned done = 0;
  for (int i = 0; i < mesh->ndim; i++) {
    if (layout.on[i].kind != SHARD || done >> layout.on[i].dim & 1) continue;
    int d = layout.on[i].dim;
    done |= 1u << d;
    if (cuts_alone(mesh, &layout, i))
      shard_cut_along(mesh, layout.on[i], i, whole.size[d], coordinate, &p);
    else if (is_strided(mesh, layout, d))
      p.shape.size[d] = strided_size(mesh, layout, d, whole.size[d], coordinate);
    else
      cut_plainly(mesh, layout, d, whole.size[d], coordinate, &p);
  }
  return p;
}

struct shape shape_of_part(int value, int rank)
{
  const struct value *v = &graph->value[value];
  const struct mesh *mesh = &graph->mesh;
  struct shape shape = v->shape;
  int coordinate[MAX_MESH] = {0};
  unsigned cut = 0;
  if (rank || mesh->now) coordinate_of(rank, coordinate);
  if (v->on_other_stages) {
    for (int d = 0; d < shape.ndim; d++) shape.size[d] = 0;
    return shape;
  }
  /* Mostly each dimension is cut once at most, and plainly: passes ask this all the time. */
  for (int i = 0; i < mesh->ndim; i++) {
    const struct placement *p = &v->layout.on[i];
    if (p->kind != SHARD) continue;
    if (p->outer > 1 || cut >> p->dim & 1)
      return local_part(mesh, v->shape, v->layout, coordinate).shape;
    cut |= 1u << p->dim;
    shape.size[p->dim] =
        cut_size(mesh, i, shape.size[p->dim], part_held(mesh, *p, i, coordinate[i]));
  }
  return shape;
}

/* Whether a factor of `a` elements, and one of `b`, are cut at the same places by the first n of
   these cuts. */
static bool are_cut_alike(int64_t a, int64_t b, const int *cut, int n)
{
  if (!n) return true;
  const int parts = graph->mesh.size[*cut];
  if (a % parts == 0 && b % parts == 0) return are_cut_alike(a / parts, b / parts, cut + 1, n - 1);
  for (int k = 0; k < parts; k++) {
    int64_t x = cut_size(&graph->mesh, *cut, a, k), y = cut_size(&graph->mesh, *cut, b, k);
    if (x * b != y * a || !are_cut_alike(x, y, cut + 1, n - 1)) return false;
  }
  return true;
}

bool moves_in_time(struct shape whole, struct layout from, struct layout to)
{
  const int dim = time_dimension();
  if (dim == NONE || from.on[dim].kind != SHARD || !same_placement(from.on[dim], to.on[dim]))
    return false;
  int a[MAX_MESH], b[MAX_MESH], of = from.on[dim].dim, n = 0;
  const int64_t size = whole.size[of], stride = shard_stride(from.on[dim]);
  cuts_of_factor(&graph->mesh, from, dim, a);
  cuts_of_factor(&graph->mesh, to, dim, b);
  do {
    if (a[n] != b[n]) return true;
  } while (a[n++] != dim);
  /* Another cut may be within another factor of the dimension. */
  const int64_t x = factor_of(&graph->mesh, from, of, size, stride);
  const int64_t y = factor_of(&graph->mesh, to, of, size, stride);
  return x != y && !are_cut_alike(x, y, a, n);
}

int group_size(int group)
{
  int n = 1;
  if (graph->group[group].is_edge) return 2;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->group[group].dims >> i & 1) n *= ranks_along(i);
  return n;
}

int first_member(int group, int rank)
{
  int at[MAX_MESH];
  coordinate_of(rank, at);
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->group[group].dims >> i & 1) at[i] = 0;
  return rank_at_coordinate(at);
}

int place_in_group(int group, int rank)
{
  const struct group *g = &graph->group[group];
  int coordinate[MAX_MESH], place = 0;
  coordinate_of(rank, coordinate);
  for (int i = 0; i < g->n; i++) place = place * ranks_along(g->dim[i]) + coordinate[g->dim[i]];
  return place;
}

/* The rank of stage `from`, and that of stage `to`; none where this one is of neither. */
static int edge_members(const struct group *g, int rank, int *members)
{
  const int *coordinate = graph->stages->coordinate;
  const int ends[] = {coordinate[g->from], coordinate[g->to]};
  int at[MAX_MESH], dim = g->dim[0];
  coordinate_of(rank, at);
  if (at[dim] != ends[0] && at[dim] != ends[1]) return 0;
  for (int k = 0; k < 2; k++) {
    at[dim] = ends[k];
    members[k] = rank_at_coordinate(at);
  }
  return 2;
}

int group_members(int group, int rank, int *members)
{
  const struct group *g = &graph->group[group];
  int at[MAX_MESH], n = group_size(group);
  if (g->is_edge) return edge_members(g, rank, members);
  coordinate_of(rank, at);
  for (int k = 0; k < n; k++) {
    int rest = k;
    for (int i = g->n - 1; i >= 0; i--) {
      at[g->dim[i]] = rest % ranks_along(g->dim[i]);
      rest /= ranks_along(g->dim[i]);
    }
    members[k] = rank_at_coordinate(at);
  }
  return n;
}

static bool same_kind_and_dim(struct placement a, struct placement b)
{
  if (a.kind != b.kind) return false;
  if (a.kind == SHARD)
    return a.dim == b.dim && a.shift == b.shift && shard_stride(a) == shard_stride(b);
  return a.kind == REPLICATE || a.reduction == b.reduction;
}

bool same_placement(struct placement a, struct placement b)
{
  return same_kind_and_dim(a, b) && (a.kind != SHARD || a.cut_order == b.cut_order);
}

/* Asked millions of times on a mesh of many dimensions, so it looks at each pair once. */
struct layout usual_cut_order(struct layout layout)
{
  bool is_ordered = false;
  for (int i = 0; i < graph->mesh.ndim && !is_ordered; i++) is_ordered = layout.on[i].cut_order;
  if (!is_ordered) return layout;
  int order[MAX_MESH], place[MAX_MESH] = {0}, rank[MAX_MESH] = {0};
  unsigned with[MAX_MESH], reordered = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    order[i] = layout.on[i].cut_order;
    with[i] = 1u << i;
    for (int k = 0; k < i; k++) {
      /* Whether both cut the same factor of the same dimension, so that their order matters. */
      bool share_a_cut = layout.on[i].kind == SHARD && layout.on[k].kind == SHARD &&
                         layout.on[i].dim == layout.on[k].dim &&
                         shard_stride(layout.on[i]) == shard_stride(layout.on[k]);
      if (!share_a_cut) continue;
      with[i] |= 1u << k;
      with[k] |= 1u << i;
      place[i]++;
      rank[order[k] <= order[i] ? i : k]++;
    }
  }
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (rank[i] != place[i]) reordered |= with[i];
  for (int i = 0; i < graph->mesh.ndim; i++)
    layout.on[i].cut_order = reordered >> i & 1 ? rank[i] : 0;
  return layout;
}

bool same_layout(struct layout a, struct layout b)
{
  bool reordered = false;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (!memcmp(&a.on[i], &b.on[i], sizeof *a.on)) continue;
    if (!same_kind_and_dim(a.on[i], b.on[i])) return false;
    reordered |= a.on[i].cut_order != b.on[i].cut_order;
  }
  if (!reordered) return true;
  a = usual_cut_order(a);
  b = usual_cut_order(b);
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (!same_placement(a.on[i], b.on[i])) return false;
  return true;
}

bool same_layout_but_units(struct layout a, struct layout b)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (graph->mesh.size[d] > 1 && !same_placement(a.on[d], b.on[d])) return false;
  return true;
}

bool same_local_shape(struct layout a, struct layout b)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = a.on[d], q = b.on[d];
    if ((p.kind == SHARD || q.kind == SHARD) && !same_placement(p, q)) return false;
  }
  return true;
}

char *placement_text(struct placement p)
{
  static const char *const reduction[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  if (p.kind == SHARD && shard_stride(p) > 1) return text("S(%d/%lld)", p.dim, (long long)p.outer);
  if (p.kind == SHARD && p.shift) return text("S(%d)-%d", p.dim, (int)p.shift);
  if (p.kind == SHARD) return text("S(%d)", p.dim);
  if (p.kind == PARTIAL) return text("P(%s)", reduction[p.reduction]);
  return text("R");
}

char *placement_over(struct layout layout, int mesh_dim)
{
  int cut[MAX_MESH], order = 0, dim = layout.on[mesh_dim].dim;
  char *placement = placement_text(layout.on[mesh_dim]);
  if (layout.on[mesh_dim].kind != SHARD || !is_reordered(&graph->mesh, layout, dim))
    return placement;
  /* The cuts have another order than the mesh: "S(0)[1]". */
  cuts_of(&graph->mesh, layout, dim, cut);
  while (cut[order] != mesh_dim) order++;
  return text("%s[%d]", placement, order);
}

char *layout_text(struct layout layout)
{
  struct buffer b = {0};
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->mesh.size[i] > 1) put(&b, "%s%s", b.length ? " " : "", placement_over(layout, i));
  if (!b.length) put(&b, "R");
  return b.text;
}

char *shape_text(struct shape s)
{
  struct buffer b = {0};
  put(&b, "[");
  for (int i = 0; i < s.ndim; i++) put(&b, "%s%lld", i ? ", " : "", (long long)s.size[i]);
  put(&b, "]");
  return b.text;
}
