/* steps.c: compact layouts, the steps between them, and the steps of DTensor's greedy planner.

   Takes   layouts of plain shards. All pending dimensions of one have one reduction.
   Leaves  legal steps, as struct move defines them: a cut that a step removes or adds is the last
           of its dimension. */
#include "sharding/sharding.h"

#include <string.h>

/* ---------------------------------------------------------------------------------- the layouts */

bool same_compact(const struct compact_layout *a, const struct compact_layout *b)
{
  return !memcmp(a, b, sizeof *a);
}

bool is_any(const struct compact_layout *b, int at)
{
  return memchr(b->at, (unsigned char)at, sizeof b->at) != NULL;
}

int cuts(const struct compact_layout *b, int dim)
{
  int n = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) n += b->at[i] == dim;
  return n;
}

void put_at(struct compact_layout *b, int i, int at)
{
  for (int k = 0; b->at[i] >= 0 && k < graph->mesh.ndim; k++)
    if (b->at[k] == b->at[i] && b->turn[k] > b->turn[i]) b->turn[k]--;
  b->at[i] = WHOLE;
  b->shift[i] = 0;
  b->turn[i] = (int8_t)(at >= 0 ? cuts(b, at) : 0);
  b->at[i] = (int8_t)at;
}

static int first_pending(struct layout layout, unsigned fixed)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == PARTIAL && !(fixed >> i & 1)) return i;
  return NONE;
}

/* The dimensions of the tensor that the layout cuts in strides. */
static unsigned strided_dims(struct layout layout)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == SHARD && shard_stride(layout.on[i]) > 1)
      dims |= 1u << layout.on[i].dim;
  return dims;
}

/* A value that is whole along the stages of a pipeline is on one of them alone, and none moves in
   time: neither is a way to send anything. Nor are sums that stay pending there. */
static bool is_no_way(int mesh_dim, struct placement from, struct placement to)
{
  return graph->mesh.size[mesh_dim] > 1 && from.kind != SHARD && same_placement(from, to) &&
         (graph->mesh.in_time[mesh_dim] || is_over_stages(mesh_dim));
}

struct fixed_part fixed_part_of(struct layout from, struct layout to)
{
  struct fixed_part u = {.fixed_dims = strided_dims(from) | strided_dims(to)};
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (!is_no_way(i, from.on[i], to.on[i])) continue;
    u.fixed |= 1u << i;
    u.layout.on[i] = from.on[i];
  }
  int a = first_pending(from, u.fixed), b = first_pending(to, u.fixed);
  u.other = b == NONE ? SUM : to.on[b].reduction;
  u.pending = a == NONE ? u.other : from.on[a].reduction;
  for (int i = 0; u.fixed_dims && i < graph->mesh.ndim; i++) {
    if (from.on[i].kind != SHARD || !(u.fixed_dims >> from.on[i].dim & 1)) continue;
    u.fixed |= 1u << i;
    u.layout.on[i] = from.on[i];
    if (!same_placement(from.on[i], to.on[i]))
      bug("moves", "%s -> %s: what is cut in strides cannot move", layout_text(from),
          layout_text(to));
  }
  return u;
}

struct compact_layout compact_of(struct layout layout, const struct fixed_part *u)
{
  struct compact_layout b;
  memset(&b, WHOLE, sizeof b.at);
  memset(b.turn, 0, sizeof b.turn);
  memset(b.shift, 0, sizeof b.shift);
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = layout.on[i];
    if (u->fixed >> i & 1) continue;
    if (p.kind == PARTIAL) b.at[i] = p.reduction == u->pending ? PENDING : OTHER;
    if (p.kind != SHARD || b.at[i] != WHOLE) continue;
    int cut[MAX_MESH], n = cuts_of(&graph->mesh, layout, p.dim, cut);
    for (int k = 0; k < n; k++) {
      b.at[cut[k]] = (int8_t)p.dim;
      b.turn[cut[k]] = (int8_t)k;
      b.shift[cut[k]] = (uint8_t)layout.on[cut[k]].shift;
    }
  }
  return b;
}

unsigned reordered_dims(const struct compact_layout *b)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    for (int k = 0; k < i; k++)
      if (b->at[i] >= 0 && b->at[k] == b->at[i] && b->turn[k] > b->turn[i]) dims |= 1u << b->at[i];
  return dims;
}

struct layout layout_of(const struct compact_layout *b, const struct fixed_part *u)
{
  struct layout layout = {0};
  unsigned reordered = reordered_dims(b);
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement *p = &layout.on[i];
    if (b->at[i] >= 0)
      *p = (struct placement){.kind = SHARD, .dim = b->at[i], .shift = b->shift[i]};
    if (b->at[i] >= 0 && reordered >> b->at[i] & 1) p->turn = b->turn[i];
    if (b->at[i] == PENDING) *p = (struct placement){.kind = PARTIAL, .reduction = u->pending};
    if (b->at[i] == OTHER) *p = (struct placement){.kind = PARTIAL, .reduction = u->other};
    if (u->fixed >> i & 1) *p = u->layout.on[i];
  }
  return layout;
}

/* ---------------------------------------------------------------------------------------- steps */

static enum placement_kind placement_of(int at)
{
  return at >= 0 ? SHARD : at == WHOLE ? REPLICATE : PARTIAL;
}

/* The kind of step between two placements on a mesh dimension. */
static enum op_kind kind_of(int from, int to)
{
  static const enum op_kind kind[ANY_PLACEMENT + 1][ANY_PLACEMENT + 1] = {
#define COLLECTIVE(name, from, to, sent, received, ...) [from][to] = OP_##name,
#include "ir/collectives.h"
#undef COLLECTIVE
      [REPLICATE][SHARD] = OP_slice,
      [REPLICATE][PARTIAL] = OP_to_partial,
      [SHARD][PARTIAL] = OP_to_partial,
      [PARTIAL][PARTIAL] = OP_to_partial,
  };
  return kind[placement_of(from)][placement_of(to)];
}

/* Adds a mesh dimension to the group, at the place given by its turn. */
static void join(struct move_step *s, int i, const int8_t *turn)
{
  int at = s->n++;
  for (; at > 0 && turn[s->dim[at - 1]] > turn[i]; at--) s->dim[at] = s->dim[at - 1];
  s->dim[at] = i;
}

/* Cuts that stay keep their turns, so that those removed or added are the last. */
bool step_between(const struct compact_layout *a, const struct compact_layout *b,
                  struct move_step *s)
{
  static const int8_t in_order_of_mesh[MAX_MESH];
  *s = (struct move_step){.n = 0};
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] == b->at[i]) {
      if (a->turn[i] != b->turn[i]) return false;
      continue;
    }
    if (a->at[i] < WHOLE && b->at[i] < WHOLE) return false;
    join(s, i, a->at[i] == WHOLE ? in_order_of_mesh : a->at[i] >= 0 ? a->turn : b->turn);
  }
  if (s->n == 0) return false;
  int first = s->dim[0];
  s->kind = kind_of(a->at[first], b->at[first]);
  for (int k = 1; k < s->n; k++) {
    int i = s->dim[k];
    if (a->at[i] != a->at[first] || kind_of(a->at[i], b->at[i]) != s->kind) return false;
    if (b->at[i] != b->at[first] && s->kind != OP_slice) return false;
    if (s->kind == OP_all_to_all && b->turn[i] < b->turn[s->dim[k - 1]]) return false;
  }
  return true;
}

/* The mesh dimension that is the turn-th to cut `dim`; NONE: there is none. */
static int cut_at(const struct compact_layout *b, int dim, int turn)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (b->at[i] == dim && b->turn[i] == turn) return i;
  return NONE;
}

bool exchange_between(const struct compact_layout *a, const struct compact_layout *b,
                      struct move_step *s)
{
  unsigned same = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] != b->at[i] && (a->at[i] < WHOLE || b->at[i] < WHOLE)) return false;
    if (a->at[i] < 0 && b->at[i] < 0) same |= 1u << i;
    if (a->at[i] < 0 || a->turn[i] != 0) continue;
    for (int turn = 0, cut; (cut = cut_at(a, a->at[i], turn)) != NONE; turn++) {
      if (cut_at(b, a->at[i], turn) != cut) break;
      same |= 1u << cut;
    }
  }
  *s = (struct move_step){.kind = OP_exchange};
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (!(same >> i & 1)) s->dim[s->n++] = i;
  return s->n > 0;
}

struct move_step step_of_move(const struct move *m)
{
  struct move_step s = {
      .kind = m->kind, .n = m->n, .idle_first = m->idle_first, .idle_last = m->idle_last};
  memcpy(s.dim, m->dim, sizeof s.dim);
  return s;
}

struct move move_of(const struct move_step *s, const struct compact_layout *from,
                    const struct compact_layout *to, const struct fixed_part *u)
{
  struct move m = {.kind = s->kind, .n = s->n};
  memcpy(m.dim, s->dim, sizeof m.dim);
  m.from = layout_of(from, u);
  m.to = layout_of(to, u);
  return m;
}

/* --------------------------------------------------------------------------- the greedy planner */

static void walk_to_shifted(struct walk *w, int i, int at, int shift)
{
  struct compact_layout before = w->now;
  if (before.at[i] == at) return;
  put_at(&w->now, i, at);
  w->now.shift[i] = (uint8_t)shift;
  if (!w->move) {
    w->leap[w->n++] = (struct leap){kind_of(before.at[i], at), i, before.at[i], w->now};
    return;
  }
  struct move_step s = {.kind = kind_of(before.at[i], at), .n = 1, .dim = {i}};
  w->move[w->n++] = move_of(&s, &before, &w->now, w->fixed_part);
}

void walk_to(struct walk *w, int i, int at)
{
  walk_to_shifted(w, i, at, 0);
}

/* Whether both layouts cut dimension `dim` by the same mesh dimensions before `end`. */
static bool same_nesting(const struct compact_layout *a, const struct compact_layout *b, int dim,
                         int end)
{
  for (int i = 0; i < end; i++)
    if ((a->at[i] == dim) != (b->at[i] == dim)) return false;
  return true;
}

static void walk_plainly(struct walk *w, const struct compact_layout *to)
{
  struct compact_layout from = w->now;
  int shards = 0, ndim = graph->mesh.ndim;
  for (int i = 0; i < ndim; i++) shards += from.at[i] >= 0;
  for (int i = ndim - 1; i >= 0 && shards > 0; i--) {
    bool nested = to->at[i] >= 0 && !same_nesting(&from, to, to->at[i], i);
    walk_to(w, i, nested ? WHOLE : to->at[i]);
  }
  for (int i = 0; i < ndim; i++) walk_to(w, i, to->at[i]);
}

static unsigned differing_dims(const struct compact_layout *a, const struct compact_layout *b)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] == b->at[i] && a->turn[i] == b->turn[i]) continue;
    if (a->at[i] >= 0) dims |= 1u << a->at[i];
    if (b->at[i] >= 0) dims |= 1u << b->at[i];
  }
  return dims;
}

/* The dimensions whose parts a layout has shifted, and the other one has not so. */
static unsigned shifted_dims(const struct compact_layout *a, const struct compact_layout *b)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] == b->at[i] && a->shift[i] == b->shift[i]) continue;
    if (a->at[i] >= 0 && a->shift[i]) dims |= 1u << a->at[i];
    if (b->at[i] >= 0 && b->shift[i]) dims |= 1u << b->at[i];
  }
  return dims;
}

/* DTensor knows only the order of the mesh, no shifts, and one reduction. A dimension that either
   layout cuts in another order, or shifts, is made whole before and cut after. A value to be
   pending with another reduction is reduced before. */
void walk_greedily(struct walk *w, const struct compact_layout *to)
{
  struct compact_layout nearly = *to;
  unsigned odd = differing_dims(&w->now, to) & (reordered_dims(&w->now) | reordered_dims(to));
  odd |= shifted_dims(&w->now, to);
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (w->now.at[i] == PENDING && is_any(to, OTHER)) walk_to(w, i, WHOLE);
  for (int dim = 0; dim < MAX_DIMS; dim++) {
    if (!(odd >> dim & 1)) continue;
    for (int n = cuts(&w->now, dim); n > 0; n--) walk_to(w, cut_at(&w->now, dim, n - 1), WHOLE);
    for (int n = cuts(&nearly, dim); n > 0; n--)
      put_at(&nearly, cut_at(&nearly, dim, n - 1), WHOLE);
  }
  walk_plainly(w, &nearly);
  for (int dim = 0; dim < MAX_DIMS; dim++)
    for (int turn = 0; odd >> dim & 1 && turn < cuts(to, dim); turn++)
      walk_to_shifted(w, cut_at(to, dim, turn), dim, to->shift[cut_at(to, dim, turn)]);
}

int greedy_moves(struct layout from, struct layout to, struct move *move)
{
  struct fixed_part u = fixed_part_of(from, to);
  struct walk w = {.move = move, .now = compact_of(from, &u), .fixed_part = &u};
  struct compact_layout target = compact_of(to, &u);
  walk_greedily(&w, &target);
  return w.n;
}
