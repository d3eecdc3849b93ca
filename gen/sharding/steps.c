/* steps.c: compact layouts, the steps between them, and the steps of DTensor's greedy planner.

   Takes   layouts of plain shards. All pending dimensions of one have one reduction.
   Leaves  legal steps, as struct move defines them: a cut that a step removes or adds is the last
           of its dimension. */
#include "sharding/sharding.h"

#include <string.h>

/* --------------------------------------------------------------------------------- the layouts */

bool same_compact(const struct compact_layout *a, const struct compact_layout *b)
{
  return !memcmp(a, b, sizeof *a);
}

bool is_any(const struct compact_layout *b, int at)
{
  return memchr(b->at, (unsigned char)at, sizeof b->at) != NULL;
}

bool is_anything_pending(const struct compact_layout *a, const struct compact_layout *b)
{
  return is_any(a, PENDING) || is_any(b, PENDING) || is_any(b, OTHER);
}

int cuts(const struct compact_layout *b, int dim)
{
  int n = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) n += b->at[i] == dim;
  return n;
}

void set_state(struct compact_layout *b, int i, int at)
{
  for (int k = 0; b->at[i] >= 0 && k < graph->mesh.ndim; k++)
    if (b->at[k] == b->at[i] && b->order[k] > b->order[i]) b->order[k]--;
  b->at[i] = WHOLE;
  b->shift[i] = 0;
  b->order[i] = (int8_t)(at >= 0 ? cuts(b, at) : 0);
  b->at[i] = (int8_t)at;
}

struct fixed_part fixed_part_of(struct layout from, struct layout to)
{
  struct fixed_part u = {0};
  int a = NONE, b = NONE; /* the first pending dimensions */
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = from.on[i], q = to.on[i];
    if (p.kind == SHARD && shard_stride(p) > 1) u.fixed_dims |= 1u << p.dim;
    if (q.kind == SHARD && shard_stride(q) > 1) u.fixed_dims |= 1u << q.dim;
    /* A value that is whole over the stages of a pipeline is on one of them only, and none moves
       between micro-batches: neither dimension can send anything. Nor can one where a sum stays
       pending. */
    if (graph->mesh.size[i] > 1 && p.kind != SHARD && same_placement(p, q) &&
        (graph->mesh.microbatch_axis[i] || is_over_stages(i))) {
      u.fixed |= 1u << i;
      u.layout.on[i] = p;
      continue;
    }
    if (a == NONE && p.kind == PARTIAL) a = i;
    if (b == NONE && q.kind == PARTIAL) b = i;
  }
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
  memset(&b, 0, sizeof b);
  memset(&b.at, WHOLE, sizeof b.at);
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = layout.on[i];
    if (u->fixed >> i & 1) continue;
    if (p.kind == PARTIAL) b.at[i] = p.reduction == u->pending ? PENDING : OTHER;
    if (p.kind != SHARD || b.at[i] != WHOLE) continue;
    int cut[MAX_MESH], n = cuts_of(&graph->mesh, layout, p.dim, cut);
    for (int k = 0; k < n; k++) {
      b.at[cut[k]] = (int8_t)p.dim;
      b.order[cut[k]] = (int8_t)k;
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
      if (b->at[i] >= 0 && b->at[k] == b->at[i] && b->order[k] > b->order[i])
        dims |= 1u << b->at[i];
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
    if (b->at[i] >= 0 && reordered >> b->at[i] & 1) p->cut_order = b->order[i];
    if (b->at[i] == PENDING) *p = (struct placement){.kind = PARTIAL, .reduction = u->pending};
    if (b->at[i] == OTHER) *p = (struct placement){.kind = PARTIAL, .reduction = u->other};
    if (u->fixed >> i & 1) *p = u->layout.on[i];
  }
  return layout;
}

/* --------------------------------------------------------------------------------------- steps */

/* The kind of step between two states of a mesh dimension. */
static enum op_kind steps_kind_of(int from, int to)
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
  enum placement_kind a = from >= 0 ? SHARD : from == WHOLE ? REPLICATE : PARTIAL;
  enum placement_kind b = to >= 0 ? SHARD : to == WHOLE ? REPLICATE : PARTIAL;
  return kind[a][b];
}

/* Cuts that stay keep their order, so that those removed or added are the last. */
bool step_between(const struct compact_layout *a, const struct compact_layout *b,
                  struct move_step *s)
{
  static const int8_t in_order_of_mesh[MAX_MESH];
  *s = (struct move_step){.n = 0};
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] == b->at[i]) {
      if (a->order[i] != b->order[i]) return false;
      continue;
    }
    if (a->at[i] < WHOLE && b->at[i] < WHOLE) return false;
    /* The mesh dimension joins the group at the place given by the order of its cut. */
    const int8_t *order = a->at[i] == WHOLE ? in_order_of_mesh
                          : a->at[i] >= 0   ? a->order
                                            : b->order;
    int at = s->n++;
    for (; at > 0 && order[s->dim[at - 1]] > order[i]; at--) s->dim[at] = s->dim[at - 1];
    s->dim[at] = i;
  }
  if (s->n == 0) return false;
  int first = s->dim[0];
  s->kind = steps_kind_of(a->at[first], b->at[first]);
  for (int k = 1; k < s->n; k++) {
    int i = s->dim[k];
    if (a->at[i] != a->at[first] || steps_kind_of(a->at[i], b->at[i]) != s->kind) return false;
    if (b->at[i] != b->at[first] && s->kind != OP_slice) return false;
    if (s->kind == OP_all_to_all && b->order[i] < b->order[s->dim[k - 1]]) return false;
  }
  return true;
}

/* The mesh dimension with the cut of `dim` that is at this place of their order; or NONE. */
static int cut_at(const struct compact_layout *b, int dim, int place)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (b->at[i] == dim && b->order[i] == place) return i;
  return NONE;
}

bool exchange_between(const struct compact_layout *a, const struct compact_layout *b,
                      struct move_step *s)
{
  unsigned same = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] != b->at[i] && (a->at[i] < WHOLE || b->at[i] < WHOLE)) return false;
    if (a->at[i] < 0 && b->at[i] < 0) same |= 1u << i;
    if (a->at[i] < 0 || a->order[i] != 0) continue;
    for (int place = 0, cut; (cut = cut_at(a, a->at[i], place)) != NONE; place++) {
      if (cut_at(b, a->at[i], place) != cut) break;
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

struct move move_of(const struct path_step *s, const struct fixed_part *u)
{
  struct move m = {.kind = s->step.kind, .n = s->step.n};
  memcpy(m.dim, s->step.dim, sizeof m.dim);
  m.from = layout_of(&s->from, u);
  m.to = layout_of(&s->to, u);
  return m;
}

/* -------------------------------------------------------------------------- the greedy planner */

void add_step_along(struct path *p, struct compact_layout *now, int i, int at, int shift)
{
  if (now->at[i] == at) return;
  struct path_step *s = &p->at[p->n++];
  s->step = (struct move_step){.kind = steps_kind_of(now->at[i], at), .n = 1, .dim = {i}};
  s->from = *now;
  set_state(now, i, at);
  now->shift[i] = (uint8_t)shift;
  s->to = *now;
}

/* Whether both layouts cut dimension `dim` by the same mesh dimensions before `end`. */
static bool same_nesting(const struct compact_layout *a, const struct compact_layout *b, int dim,
                         int end)
{
  for (int i = 0; i < end; i++)
    if ((a->at[i] == dim) != (b->at[i] == dim)) return false;
  return true;
}

/* DTensor knows only the order of the mesh, no shifts, and one reduction. A dimension that either
   layout cuts in another order, or shifts, is made whole before and cut after. A value to be
   pending with another reduction is reduced before. */
void add_greedy_steps(struct path *p, const struct compact_layout *from,
                      const struct compact_layout *to)
{
  const int ndim = graph->mesh.ndim;
  struct compact_layout now = *from, nearly = *to;
  unsigned reordered = reordered_dims(from) | reordered_dims(to), odd = 0;
  for (int i = 0; i < ndim; i++) {
    bool same_state = from->at[i] == to->at[i];
    unsigned has = from->at[i] >= 0 ? 1u << from->at[i] : 0;
    unsigned gets = to->at[i] >= 0 ? 1u << to->at[i] : 0;
    if (!same_state || from->order[i] != to->order[i]) odd |= (has | gets) & reordered;
    if (same_state && from->shift[i] == to->shift[i]) continue;
    odd |= (from->shift[i] ? has : 0) | (to->shift[i] ? gets : 0);
  }
  for (int i = 0; i < ndim; i++)
    if (now.at[i] == PENDING && is_any(to, OTHER)) add_step_along(p, &now, i, WHOLE, 0);
  for (int dim = 0; dim < MAX_DIMS; dim++) {
    if (!(odd >> dim & 1)) continue;
    for (int n = cuts(&now, dim); n > 0; n--)
      add_step_along(p, &now, cut_at(&now, dim, n - 1), WHOLE, 0);
    for (int n = cuts(&nearly, dim); n > 0; n--)
      set_state(&nearly, cut_at(&nearly, dim, n - 1), WHOLE);
  }
  /* DTensor's own steps: from the last mesh dimension to the first, then back. */
  struct compact_layout before = now;
  bool is_cut = false;
  for (int i = 0; i < ndim; i++) is_cut |= before.at[i] >= 0;
  for (int i = ndim - 1; i >= 0 && is_cut; i--) {
    bool nested = nearly.at[i] >= 0 && !same_nesting(&before, &nearly, nearly.at[i], i);
    add_step_along(p, &now, i, nested ? WHOLE : nearly.at[i], 0);
  }
  for (int i = 0; i < ndim; i++) add_step_along(p, &now, i, nearly.at[i], 0);
  for (int dim = 0; dim < MAX_DIMS; dim++)
    for (int place = 0; odd >> dim & 1 && place < cuts(to, dim); place++) {
      int i = cut_at(to, dim, place);
      add_step_along(p, &now, i, dim, to->shift[i]);
    }
}

int greedy_moves(struct layout from, struct layout to, struct move *move)
{
  struct path p = {.n = 0};
  struct fixed_part u = fixed_part_of(from, to);
  struct compact_layout a = compact_of(from, &u), b = compact_of(to, &u);
  add_greedy_steps(&p, &a, &b);
  for (int i = 0; i < p.n; i++) move[i] = move_of(&p.at[i], &u);
  return p.n;
}
