/* moves.c: the steps from one layout to another, and what they cost.

   Takes   a tensor's whole shape, its type and two layouts of plain shards. What is pending in one
           layout is pending of one reduction: of more than one there is no way, and nobody asks.
   Leaves  the steps of DTensor's greedy planner, or those that take the least time.

   The model of the links. A rank has a link along each dimension of the mesh, of the plan's
   bandwidth and latency, or of 100 GB/s and 10 us; links of one bandwidth are one link. A
   collective takes the longest latency of its dimensions, and what its busiest rank sends, or
   receives, if that is more, over the slowest of their links:
     all_gather      sends its part to each other member, receives theirs
     reduce_scatter  sends what it does not keep, receives its part from each other member
     all_reduce      both, with its torch.chunk of the elements as its part
     all_to_all      sends what it does not keep, receives what it does not have
     exchange        its pieces; each over the slowest link between the two, all links at once. In a
                     group of more than 256 a rank is taken to send as much as it receives, and to
                     copy all of it
   A copy within a rank takes 2 TB/s, read and written: a slice, what becomes a pending sum, what a
   rank keeps of its part in a gather, an all_to_all or an exchange, and all that is packed before a
   collective or unpacked after it because the parts along its dimension do not lie one after the
   other.

   The fastest way is found best first over all layouts, in whatever order they cut, on the
   tensor's dimensions that either layout cuts, and on the others where something is pending, as
   long as these layouts are not too many; else over those that have on each dimension of the mesh
   what one of the two has, or nothing. Where all links are of one bandwidth no rank may receive
   more than it has to; of pending values, not more than by the greedy planner. Of ways that take
   equal time that of the more familiar collectives is taken, and of the fewer steps. */
#include "tpgen.h"

#include <string.h>

static const double memory_bandwidth = 2e12;

enum { BIG_GROUP = 256 };

/* -------------------------------------------------------------------------- layouts, told briefly
 */

/* What is on a dimension of the mesh: the dimension of the tensor that it cuts, or one of these.
   OTHER: pending, of another reduction than the source's. */
enum { WHOLE = -1, PENDING = -2, OTHER = -3 };

/* As how manieth each cuts is its turn; else it is 0. Layouts that mean the same are the same
   bytes. */
struct brief {
  int8_t at[MAX_MESH], turn[MAX_MESH];
};

/* What PENDING and OTHER stand for. */
struct reductions {
  enum reduction pending, other;
};

static bool same_brief(const struct brief *a, const struct brief *b)
{
  return !memcmp(a, b, sizeof *a);
}

static bool is_any(const struct brief *b, int at)
{
  return memchr(b->at, (unsigned char)at, sizeof b->at) != NULL;
}

static int cuts(const struct brief *b, int dim)
{
  int n = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) n += b->at[i] == dim;
  return n;
}

/* Puts it on mesh dimension i; a cut becomes the last. */
static void put_at(struct brief *b, int i, int at)
{
  for (int k = 0; b->at[i] >= 0 && k < graph->mesh.ndim; k++)
    if (b->at[k] == b->at[i] && b->turn[k] > b->turn[i]) b->turn[k]--;
  b->at[i] = WHOLE;
  b->turn[i] = (int8_t)(at >= 0 ? cuts(b, at) : 0);
  b->at[i] = (int8_t)at;
}

static int first_pending(struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == PARTIAL) return i;
  return NONE;
}

static struct reductions reductions_of(struct layout from, struct layout to)
{
  int a = first_pending(from), b = first_pending(to);
  enum reduction asked = b == NONE ? SUM : to.on[b].reduction;
  return (struct reductions){a == NONE ? asked : from.on[a].reduction, asked};
}

static struct brief brief_of(struct layout layout, struct reductions r)
{
  struct brief b;
  memset(&b, WHOLE, sizeof b.at);
  memset(b.turn, 0, sizeof b.turn);
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = layout.on[i];
    if (p.kind == PARTIAL) b.at[i] = p.reduction == r.pending ? PENDING : OTHER;
    if (p.kind != SHARD || b.at[i] != WHOLE) continue;
    int cut[MAX_MESH], n = cuts_of(&graph->mesh, layout, p.dim, cut);
    for (int k = 0; k < n; k++) {
      b.at[cut[k]] = (int8_t)p.dim;
      b.turn[cut[k]] = (int8_t)k;
    }
  }
  return b;
}

/* Turns are told where the order is not that of the mesh. */
static struct layout layout_of(const struct brief *b, struct reductions r)
{
  struct layout layout = {0};
  unsigned reordered = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    for (int k = 0; k < i; k++)
      if (b->at[i] >= 0 && b->at[k] == b->at[i] && b->turn[k] > b->turn[i])
        reordered |= 1u << b->at[i];
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement *p = &layout.on[i];
    if (b->at[i] >= 0) *p = (struct placement){.kind = SHARD, .dim = b->at[i]};
    if (b->at[i] >= 0 && reordered >> b->at[i] & 1) p->turn = b->turn[i];
    if (b->at[i] == PENDING) *p = (struct placement){.kind = PARTIAL, .reduction = r.pending};
    if (b->at[i] == OTHER) *p = (struct placement){.kind = PARTIAL, .reduction = r.other};
  }
  return layout;
}

/* ----------------------------------------------------------------------------------------- steps
 */

struct step {
  enum op_kind kind;
  int n, dim[MAX_MESH]; /* in the order of the group */
};

/* What leads from one to the other on a dimension of the mesh. */
static enum op_kind kind_of(int from, int to)
{
  if (from == WHOLE) return to >= 0 ? OP_slice : OP_to_partial;
  if (to == WHOLE) return from >= 0 ? OP_all_gather : OP_all_reduce;
  if (to < 0) return OP_to_partial;
  return from >= 0 ? OP_all_to_all : OP_reduce_scatter;
}

/* Adds a dimension to the group, at the place that its turn gives it. */
static void join(struct step *s, int i, const int8_t *turn)
{
  int at = s->n++;
  for (; at > 0 && turn[s->dim[at - 1]] > turn[i]; at--) s->dim[at] = s->dim[at - 1];
  s->dim[at] = i;
}

/* The step, other than an exchange, that leads from a to b; false if none does. Cuts that stay keep
   their turns: so those that go, or come, are the last. */
static bool step_between(const struct brief *a, const struct brief *b, struct step *s)
{
  s->n = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] == b->at[i]) {
      if (a->turn[i] != b->turn[i]) return false;
      continue;
    }
    if (a->at[i] < WHOLE && b->at[i] < WHOLE) return false;
    join(s, i, a->at[i] >= 0 ? a->turn : b->turn);
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

/* The mesh dimension that is the turn-th to cut `dim`; NONE: nothing is. */
static int cut_at(const struct brief *b, int dim, int turn)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (b->at[i] == dim && b->turn[i] == turn) return i;
  return NONE;
}

/* The exchange from a to b, over all dimensions but those that cut a dimension of the tensor alike,
   before any that don't; false if something pending changes. */
static bool exchange_between(const struct brief *a, const struct brief *b, struct step *s)
{
  unsigned alike = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] != b->at[i] && (a->at[i] < WHOLE || b->at[i] < WHOLE)) return false;
    if (a->at[i] < 0 && b->at[i] < 0) alike |= 1u << i;
    if (a->at[i] < 0 || a->turn[i] != 0) continue;
    for (int turn = 0, cut; (cut = cut_at(a, a->at[i], turn)) != NONE; turn++) {
      if (cut_at(b, a->at[i], turn) != cut) break;
      alike |= 1u << cut;
    }
  }
  *s = (struct step){.kind = OP_exchange};
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (!(alike >> i & 1)) s->dim[s->n++] = i;
  return s->n > 0;
}

static struct move move_of(const struct step *s, const struct brief *from, const struct brief *to,
                           struct reductions r)
{
  struct move m = {.kind = s->kind, .n = s->n};
  memcpy(m.dim, s->dim, sizeof m.dim);
  m.from = layout_of(from, r);
  m.to = layout_of(to, r);
  return m;
}

/* ---------------------------------------------------------------------------- the greedy planner
 */

/* The steps so far, and where they have come to. */
struct walk {
  int n;
  struct move *move;
  struct brief now;
  struct reductions reductions;
};

static void walk_to(struct walk *w, int i, int at)
{
  struct brief before = w->now;
  if (before.at[i] == at) return;
  put_at(&w->now, i, at);
  struct step s = {.kind = kind_of(before.at[i], at), .n = 1, .dim = {i}};
  w->move[w->n++] = move_of(&s, &before, &w->now, w->reductions);
}

/* Whether both layouts cut dimension `dim` by the same mesh dimensions before `end`. */
static bool nests_alike(const struct brief *a, const struct brief *b, int dim, int end)
{
  for (int i = 0; i < end; i++)
    if ((a->at[i] == dim) != (b->at[i] == dim)) return false;
  return true;
}

static void walk_greedily(struct walk *w, const struct brief *to)
{
  struct brief from = w->now;
  int shards = 0, ndim = graph->mesh.ndim;
  for (int i = 0; i < ndim; i++) shards += from.at[i] >= 0;
  for (int i = ndim - 1; i >= 0 && shards > 0; i--) {
    bool nested = to->at[i] >= 0 && !nests_alike(&from, to, to->at[i], i);
    walk_to(w, i, nested ? WHOLE : to->at[i]);
  }
  for (int i = 0; i < ndim; i++) walk_to(w, i, to->at[i]);
}

/* The tensor's dimensions that the layout cuts in another order than that of the mesh. */
static unsigned reordered_dims(const struct brief *b)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    for (int k = 0; k < i; k++)
      if (b->at[i] >= 0 && b->at[k] == b->at[i] && b->turn[k] > b->turn[i]) dims |= 1u << b->at[i];
  return dims;
}

static unsigned differing_dims(const struct brief *a, const struct brief *b)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->at[i] == b->at[i] && a->turn[i] == b->turn[i]) continue;
    if (a->at[i] >= 0) dims |= 1u << a->at[i];
    if (b->at[i] >= 0) dims |= 1u << b->at[i];
  }
  return dims;
}

/* DTensor knows no order but that of the mesh, and no two reductions. What one of the two layouts
   cuts in another order is made whole before and cut after; what is pending, and asked for of
   another reduction, is reduced before. */
static int greedy(const struct brief *from, const struct brief *to, struct reductions r,
                  struct move *move)
{
  struct walk w = {.move = move, .now = *from, .reductions = r};
  struct brief nearly = *to;
  unsigned odd = differing_dims(from, to) & (reordered_dims(from) | reordered_dims(to));
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (w.now.at[i] == PENDING && is_any(to, OTHER)) walk_to(&w, i, WHOLE);
  for (int dim = 0; dim < MAX_DIMS; dim++) {
    if (!(odd >> dim & 1)) continue;
    for (int n = cuts(&w.now, dim); n > 0; n--) walk_to(&w, cut_at(&w.now, dim, n - 1), WHOLE);
    for (int n = cuts(&nearly, dim); n > 0; n--)
      put_at(&nearly, cut_at(&nearly, dim, n - 1), WHOLE);
  }
  walk_greedily(&w, &nearly);
  for (int dim = 0; dim < MAX_DIMS; dim++)
    for (int turn = 0; odd >> dim & 1 && turn < cuts(to, dim); turn++)
      walk_to(&w, cut_at(to, dim, turn), dim);
  return w.n;
}

int greedy_moves(struct layout from, struct layout to, struct move *move)
{
  struct reductions r = reductions_of(from, to);
  struct brief a = brief_of(from, r), b = brief_of(to, r);
  return greedy(&a, &b, r, move);
}

/* --------------------------------------------------------------------------------- the links
 */

double link_bandwidth(int mesh_dim)
{
  return graph->mesh.bandwidth[mesh_dim] > 0 ? graph->mesh.bandwidth[mesh_dim] : 100e9;
}

double link_latency(int mesh_dim)
{
  return graph->mesh.latency[mesh_dim] > 0 ? graph->mesh.latency[mesh_dim] : 10e-6;
}

/* ------------------------------------------------------------------------------------- the world
 */

/* What is moved, and on what mesh: the same for all of a plan. A tier is the links of one
   bandwidth; tier 0 is the slowest. */
static struct {
  struct mesh mesh;
  struct shape whole;
  int64_t bytes; /* of an element */
  int ranks;
  int (*coordinate)[MAX_MESH];
  int stride[MAX_MESH]; /* from a rank to the next along a dimension of the mesh */
  int tiers, tier[MAX_MESH];
  double bandwidth[MAX_MESH]; /* by tier */
  double latency[MAX_MESH];   /* by dimension of the mesh */
} world;

static void order_tiers(void)
{
  world.tiers = 0;
  for (int i = 0; i < world.mesh.ndim; i++) {
    double b = link_bandwidth(i);
    int at = 0;
    world.latency[i] = link_latency(i);
    if (world.mesh.size[i] == 1) continue;
    while (at < world.tiers && world.bandwidth[at] < b) at++;
    if (at < world.tiers && world.bandwidth[at] == b) continue;
    for (int k = world.tiers++; k > at; k--) world.bandwidth[k] = world.bandwidth[k - 1];
    world.bandwidth[at] = b;
  }
  if (world.tiers == 0) world.tiers = 1;
  for (int i = 0; i < world.mesh.ndim; i++) {
    world.tier[i] = 0;
    while (world.tier[i] + 1 < world.tiers && world.bandwidth[world.tier[i]] != link_bandwidth(i))
      world.tier[i]++;
  }
}

static bool same_mesh(const struct mesh *a, const struct mesh *b)
{
  if (a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->size[i] != b->size[i] || a->bandwidth[i] != b->bandwidth[i] ||
        a->latency[i] != b->latency[i])
      return false;
  return true;
}

static void enter(struct shape whole, enum type type)
{
  world.whole = whole;
  world.bytes = type_bytes(type);
  if (world.ranks && same_mesh(&world.mesh, &graph->mesh)) return;
  world.mesh = graph->mesh;
  world.ranks = world_size();
  world.coordinate = alloc((size_t)world.ranks * sizeof *world.coordinate);
  for (int r = 0; r < world.ranks; r++) coordinate_of(r, world.coordinate[r]);
  for (int i = world.mesh.ndim - 1, stride = 1; i >= 0; stride *= world.mesh.size[i--])
    world.stride[i] = stride;
  order_tiers();
}

/* ------------------------------------------------------------------------------- who holds what
 */

struct box {
  int64_t first[MAX_DIMS], last[MAX_DIMS];
};

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static int64_t overlap(const struct box *a, const struct box *b)
{
  int64_t n = 1;
  for (int d = 0; d < world.whole.ndim; d++)
    n *= most(0, least(a->last[d], b->last[d]) - most(a->first[d], b->first[d]));
  return n;
}

static int64_t volume(const struct box *b)
{
  int64_t n = 1;
  for (int d = 0; d < world.whole.ndim; d++) n *= b->last[d] - b->first[d];
  return n;
}

/* The boxes of all ranks. */
static void find_boxes(const struct brief *b, struct box *box)
{
  struct cut {
    int dim, by;
  } cut[MAX_MESH];
  int n = 0;
  for (int turn = 0; turn < world.mesh.ndim; turn++)
    for (int i = 0; i < world.mesh.ndim; i++)
      if (b->at[i] >= 0 && b->turn[i] == turn) cut[n++] = (struct cut){b->at[i], i};
  for (int r = 0; r < world.ranks; r++) {
    for (int d = 0; d < world.whole.ndim; d++) {
      box[r].first[d] = 0;
      box[r].last[d] = world.whole.size[d];
    }
    for (int k = 0; k < n; k++) {
      int64_t *first = &box[r].first[cut[k].dim], *last = &box[r].last[cut[k].dim];
      int parts = world.mesh.size[cut[k].by];
      int64_t chunk = (*last - *first + parts - 1) / parts;
      *first = least(*first + chunk * world.coordinate[r][cut[k].by], *last);
      *last = least(*first + chunk, *last);
    }
  }
}

/* ------------------------------------------------------------------------- what a rank must get
 */

/* What each rank lacks of its part; nothing that is pending in the end is anybody's alone. A term
   of a sum is not the sum. Gives what the rank lacks that lacks most. */
static int64_t find_lacks(const struct brief *a, const struct brief *b, const struct box *has,
                          const struct box *wants, int64_t *lacks)
{
  int64_t worst = 0;
  bool terms = false, free = false;
  for (int i = 0; i < world.mesh.ndim; i++) {
    terms |= a->at[i] < WHOLE;
    free |= b->at[i] < WHOLE && world.mesh.size[i] > 1;
  }
  for (int r = 0; r < world.ranks; r++) {
    lacks[r] = free ? 0 : volume(&wants[r]) - (terms ? 0 : overlap(&has[r], &wants[r]));
    worst = most(worst, lacks[r]);
  }
  return worst;
}

/* What all ranks must get, together. Ranks that differ only where the target is pending count as
   one: each element must come to one of them. An element of which there are `terms`, and that
   `wanted` of these have to have, goes from rank to rank terms + wanted - 1 times, or once less if
   one who wants it has a term: until somebody has the sum it is sent once by all others that have a
   term, or by all if it is none of them, and then once to each that wants it and is not the one. */
static int64_t least_in_all(const struct brief *a, const struct brief *b, const struct box *has,
                            const struct box *wants)
{
  int64_t terms = 1, wanted = 1, copies = 1, met = 0;
  bool other = is_any(b, OTHER);
  for (int i = 0; i < world.mesh.ndim; i++) {
    int n = world.mesh.size[i];
    bool free = b->at[i] < WHOLE;
    if (a->at[i] < WHOLE && (!free || other)) terms *= n;
    if (free || b->at[i] >= 0) continue;
    wanted *= n;
    if (a->at[i] == WHOLE) copies *= n;
  }
  for (int r = 0; r < world.ranks; r++) {
    bool counts = true;
    for (int i = 0; i < world.mesh.ndim; i++)
      counts &= a->at[i] >= 0 || b->at[i] >= 0 || world.coordinate[r][i] == 0;
    if (counts) met += overlap(&has[r], &wants[r]);
  }
  if (terms == 1) return elements(world.whole) * wanted - met * copies;
  return elements(world.whole) * (terms - 1 + wanted) - met;
}

/* The elements that the busiest rank must get. */
static int64_t least_elements(const struct brief *a, const struct brief *b, const struct box *has,
                              const struct box *wants, int64_t *lacks)
{
  int64_t worst = find_lacks(a, b, has, wants, lacks);
  return most(worst, (least_in_all(a, b, has, wants) + world.ranks - 1) / world.ranks);
}

/* ----------------------------------------------------------------------- what a step moves
 */

/* Memory that is used again: the last that was asked for is lost. */
struct scratch {
  size_t size;
  void *at;
};

static void *take(struct scratch *s, size_t size)
{
  if (size > s->size) {
    s->size = 2 * size;
    s->at = alloc(s->size);
  }
  return memset(s->at, 0, size);
}

/* Elements by tier and rank, and those that each rank copies to have them in order. */
struct traffic {
  int64_t *sent, *got; /* [tier * world.ranks + rank] */
  int64_t *copied;     /* each is read and written */
  bool one_to_one;     /* nobody gives to two, or gets from two */
};

static struct traffic no_traffic(void)
{
  static struct scratch room;
  size_t n = (size_t)(world.ranks * world.tiers);
  int64_t *at = take(&room, (2 * n + (size_t)world.ranks) * sizeof *at);
  return (struct traffic){.sent = at, .got = at + n, .copied = at + 2 * n};
}

/* A step with what every rank holds before and after it. */
struct stage {
  const struct step *step;
  const struct brief *from, *to;
  const struct box *has, *gets;
};

static int members(const struct step *s)
{
  int n = 1;
  for (int i = 0; i < s->n; i++) n *= world.mesh.size[s->dim[i]];
  return n;
}

/* The slowest link of a step. */
static int slowest(const struct step *s)
{
  int tier = world.tiers;
  for (int i = 0; i < s->n; i++)
    if (world.mesh.size[s->dim[i]] > 1 && world.tier[s->dim[i]] < tier)
      tier = world.tier[s->dim[i]];
  return tier < world.tiers ? tier : 0;
}

/* The slowest link between two ranks. */
static int tier_between(const struct step *s, int a, int b)
{
  int tier = world.tiers - 1;
  for (int i = 0; tier > 0 && i < s->n; i++) {
    int d = s->dim[i];
    if (world.coordinate[a][d] != world.coordinate[b][d] && world.tier[d] < tier)
      tier = world.tier[d];
  }
  return tier;
}

/* Whether no rank has parts along `dim` that do not lie one after the other. The first has most. */
static bool outermost(const struct box *box, int dim)
{
  for (int d = 0; d < dim; d++)
    if (box->last[d] - box->first[d] > 1) return volume(box) == 0;
  return true;
}

static int member_at(const struct step *s, int rank)
{
  int member = 0;
  for (int i = 0; i < s->n; i++)
    member = member * world.mesh.size[s->dim[i]] + world.coordinate[rank][s->dim[i]];
  return member;
}

static void add_collective(const struct stage *g, struct traffic *t)
{
  const struct step *s = g->step;
  int64_t n = members(s), at = (int64_t)slowest(s) * world.ranks;
  int dim = g->from->at[s->dim[0]], dim_to = g->to->at[s->dim[0]];
  bool pack = dim_to >= 0 && !outermost(&g->has[0], dim_to);
  bool unpack = dim >= 0 && !outermost(&g->gets[0], dim);
  for (int r = 0; r < world.ranks; r++) {
    int64_t has = volume(&g->has[r]), gets = volume(&g->gets[r]), *sent = &t->sent[at + r];
    int64_t *got = &t->got[at + r], part, kept = 0;
    switch (s->kind) {
    case OP_all_gather:
      *sent = has * (n - 1);
      *got = gets - has;
      kept = has;
      break;
    case OP_reduce_scatter:
      *sent = has - gets;
      *got = gets * (n - 1);
      break;
    case OP_all_reduce:
      part = chunk_size(has, (int)n, member_at(s, r));
      *sent = *got = has - part + part * (n - 1);
      continue;
    case OP_all_to_all:
      kept = overlap(&g->has[r], &g->gets[r]);
      *sent = has - kept;
      *got = gets - kept;
      break;
    default: /* slice, to_partial */
      t->copied[r] = gets;
      continue;
    }
    t->copied[r] = kept + (pack ? has : 0) + (unpack ? gets : 0);
  }
}

/* The members of a group, as ranks counted from its first. Those that differ in what the source
   does not cut hold the same. */
struct group_of {
  int n, *rank, *cell;  /* the first member that holds the same */
  int holders, *holder; /* of the first cell */
};

static struct group_of find_members(const struct step *s, const struct brief *from)
{
  static struct scratch room;
  struct group_of m = {.n = members(s)};
  m.rank = take(&room, (size_t)m.n * 3 * sizeof *m.rank);
  m.cell = m.rank + m.n;
  m.holder = m.cell + m.n;
  for (int k = 0; k < m.n; k++) {
    for (int i = s->n - 1, rest = k, step = 1; i >= 0; i--) {
      int size = world.mesh.size[s->dim[i]], at = rest % size;
      m.rank[k] += at * world.stride[s->dim[i]];
      if (from->at[s->dim[i]] >= 0) m.cell[k] += at * step;
      rest /= size;
      step *= size;
    }
    if (m.cell[k] == 0) m.holder[m.holders++] = m.rank[k];
  }
  return m;
}

/* Who of those that hold what `first` does gives to `to` (exchange.c). */
static int giver(const struct step *s, const struct group_of *m, int first, int to,
                 const int64_t *load)
{
  int best = NONE, quickest = NONE;
  for (int k = 0; k < m->holders; k++) {
    int rank = first + m->holder[k], tier = tier_between(s, rank, to);
    if (best != NONE && (tier < quickest || (tier == quickest && load[rank] >= load[best])))
      continue;
    best = rank;
    quickest = tier;
  }
  return best;
}

/* Whether where the boxes meet lies in one run of the first. */
static bool meets_in_run(const struct box *of, const struct box *with)
{
  bool inside = false; /* a dimension outside of this one takes more than one place */
  for (int d = 0; d < world.whole.ndim; d++) {
    int64_t n = least(of->last[d], with->last[d]) - most(of->first[d], with->first[d]);
    if (inside && n != of->last[d] - of->first[d]) return false;
    inside |= n > 1;
  }
  return true;
}

/* What is known of an exchange while its pieces are dealt out. */
struct deal {
  int64_t *load;             /* by rank: what it sends */
  int *gives_to, *gets_from; /* by rank: how many */
  bool gives_runs, gets_runs;
};

static void deal_piece(const struct stage *g, const struct group_of *m, int first, int to,
                       struct deal *d, struct traffic *t)
{
  int64_t n = overlap(&g->has[first], &g->gets[to]);
  int from = giver(g->step, m, first, to, d->load);
  int64_t at = (int64_t)tier_between(g->step, from, to) * world.ranks;
  t->sent[at + from] += n;
  t->got[at + to] += n;
  d->load[from] += n;
  d->gives_to[from]++;
  d->gets_from[to]++;
}

static void deal_out(const struct stage *g, const struct group_of *m, int base, struct deal *d,
                     struct traffic *t)
{
  for (int k = 0; k < m->n; k++) {
    int to = base + m->rank[k];
    for (int f = 0; f < m->n; f++) {
      int first = base + m->rank[f];
      if (m->cell[f] != f || !overlap(&g->has[first], &g->gets[to])) continue;
      d->gives_runs &= meets_in_run(&g->has[first], &g->gets[to]);
      d->gets_runs &= meets_in_run(&g->gets[to], &g->has[first]);
      if (m->cell[k] != f) deal_piece(g, m, first, to, d, t);
    }
  }
}

static void add_exchange(const struct stage *g, struct traffic *t)
{
  static struct scratch room;
  size_t n = (size_t)world.ranks;
  struct group_of m = find_members(g->step, g->from);
  struct deal d = {.gives_runs = true, .gets_runs = true};
  d.load = take(&room, n * (sizeof *d.load + 2 * sizeof *d.gives_to));
  d.gives_to = (int *)(d.load + n);
  d.gets_from = d.gives_to + n;
  for (int r = 0; r < world.ranks; r++)
    if (member_at(g->step, r) == 0) deal_out(g, &m, r, &d, t);
  t->one_to_one = true;
  for (int r = 0; r < world.ranks; r++) {
    t->one_to_one &= d.gives_to[r] <= 1 && d.gets_from[r] <= 1;
    int64_t kept = overlap(&g->has[r], &g->gets[r]);
    t->copied[r] += kept;
    if (!d.gives_runs) t->copied[r] += d.load[r] + kept;
    if (!d.gets_runs) t->copied[r] += volume(&g->gets[r]);
  }
}

/* An exchange in a big group, as the model has it. */
static void guess_exchange(const struct stage *g, struct traffic *t)
{
  int64_t at = (int64_t)slowest(g->step) * world.ranks;
  for (int r = 0; r < world.ranks; r++) {
    int64_t kept = overlap(&g->has[r], &g->gets[r]);
    t->sent[at + r] = t->got[at + r] = volume(&g->gets[r]) - kept;
    t->copied[r] = kept + volume(&g->has[r]) + volume(&g->gets[r]);
  }
}

static struct traffic traffic_of(const struct stage *g, bool planning)
{
  struct traffic t = no_traffic();
  if (g->step->kind != OP_exchange)
    add_collective(g, &t);
  else if (planning && members(g->step) > BIG_GROUP)
    guess_exchange(g, &t);
  else
    add_exchange(g, &t);
  return t;
}

/* Picoseconds: whole numbers, so that equal times are equal. Rounded up, so that what is told of
   parts is no less than what is told of the whole. */
static int64_t picoseconds(double seconds)
{
  double p = seconds * 1e12;
  int64_t down = (int64_t)p;
  return (double)down < p ? down + 1 : down;
}

static double latency_of(const struct step *s)
{
  double longest = 0;
  if (s->kind == OP_slice || s->kind == OP_to_partial) return 0;
  for (int i = 0; i < s->n; i++) {
    double l = world.latency[s->dim[i]];
    if (world.mesh.size[s->dim[i]] > 1 && l > longest) longest = l;
  }
  return longest;
}

static int64_t time_of(const struct step *s, const struct traffic *t)
{
  int64_t busy = 0, copied = 0;
  for (int tier = 0; tier < world.tiers; tier++) {
    int64_t n = 0, at = (int64_t)tier * world.ranks;
    for (int r = 0; r < world.ranks; r++) n = most(n, most(t->sent[at + r], t->got[at + r]));
    busy = most(busy, picoseconds((double)(n * world.bytes) / world.bandwidth[tier]));
  }
  for (int r = 0; r < world.ranks; r++) copied = most(copied, t->copied[r]);
  return picoseconds(latency_of(s)) + busy +
         picoseconds(2 * (double)(copied * world.bytes) / memory_bandwidth);
}

/* ----------------------------------------------------------------------------- all layouts
 */

/* A layout on the way; what follows from it is worked out when it is first asked for. */
struct state {
  struct brief brief;
  bool far; /* from here to the target something has to be sent */
  bool known;
  int gone_on;    /* the last label here that was gone on from, or NONE */
  int64_t rest;   /* the time that the way from here takes at least */
  int64_t *lacks; /* by rank */
  struct box *box;
};

enum { START, TARGET, MAX_STATES = 600 };

/* The search, of one plan after the other. */
static struct {
  struct brief from, to;
  struct reductions reductions;
  bool limited; /* in what a rank may receive: to these elements */
  int64_t limit;
  int64_t shortest; /* latency */
  double bandwidth; /* of all tiers */
  int states, room;
  struct state state[MAX_STATES];
} way;

/* Whether more than slices leads from here to the target. */
static bool is_far(const struct brief *b)
{
  for (int i = 0; i < world.mesh.ndim; i++) {
    bool stays = b->at[i] == way.to.at[i] && b->turn[i] == way.to.turn[i];
    bool starts = b->at[i] == WHOLE || (b->at[i] >= 0 && way.to.at[i] < WHOLE);
    if (!stays && !starts) return true;
  }
  return false;
}

static void add_state(const struct brief *b)
{
  if (way.states > TARGET && same_brief(b, &way.from)) return;
  if (way.states > TARGET && same_brief(b, &way.to)) return;
  if (way.states < way.room)
    way.state[way.states] = (struct state){.brief = *b, .far = is_far(b), .gone_on = NONE};
  way.states++;
}

/* All layouts that are as `b` on the dimensions of the mesh before i, and on the others cut these
   dimensions of the tensor, in every order, or are pending where one end of the way is. */
static void add_states(struct brief b, int i, unsigned dims)
{
  if (way.states > way.room) return;
  if (i == world.mesh.ndim) {
    add_state(&b);
    return;
  }
  add_states(b, i + 1, dims);
  if (world.mesh.size[i] == 1) return;
  struct brief with = b;
  with.at[i] = PENDING;
  if ((way.from.at[i] == PENDING || way.to.at[i] == PENDING) && !is_any(&b, OTHER))
    add_states(with, i + 1, dims);
  with.at[i] = OTHER;
  if (way.to.at[i] == OTHER && !is_any(&b, PENDING)) add_states(with, i + 1, dims);
  for (int d = 0; d < world.whole.ndim; d++)
    for (int turn = dims >> d & 1 ? cuts(&b, d) : NONE; turn >= 0; turn--) {
      with = b;
      for (int k = 0; k < i; k++) with.turn[k] += b.at[k] == d && b.turn[k] >= turn;
      with.at[i] = (int8_t)d;
      with.turn[i] = (int8_t)turn;
      add_states(with, i + 1, dims);
    }
}

/* Cuts in the order in which they stand at one end of the way, then the others. */
static void add_in_order_of(struct brief b, const struct brief *end)
{
  int key[MAX_MESH];
  for (int i = 0; i < world.mesh.ndim; i++)
    key[i] = b.at[i] == end->at[i] ? end->turn[i] : MAX_MESH + i;
  for (int i = 0; i < world.mesh.ndim; i++) {
    b.turn[i] = 0;
    for (int k = 0; b.at[i] >= 0 && k < world.mesh.ndim; k++)
      b.turn[i] += b.at[k] == b.at[i] && key[k] < key[i];
  }
  add_state(&b);
}

/* All layouts that are as `b` on the dimensions of the mesh before i, and on the others as one end
   of the way is, or whole; what is pending there may cut dimension `dim` of the tensor too. */
static void add_mixtures(struct brief b, int i, int dim)
{
  if (way.states > way.room) return;
  if (i == world.mesh.ndim) {
    add_in_order_of(b, &way.from);
    if (reordered_dims(&way.from) | reordered_dims(&way.to)) add_in_order_of(b, &way.to);
    return;
  }
  int from = way.from.at[i], to = way.to.at[i];
  add_mixtures(b, i + 1, dim);
  if (world.mesh.size[i] == 1) return;
  for (int k = 0; k < 3; k++) {
    int at = k == 0 ? from : k == 1 ? to : dim;
    if (at == WHOLE || (k > 0 && at == from) || (k > 1 && (at == to || from != PENDING))) continue;
    if ((at == OTHER && is_any(&b, PENDING)) || (at == PENDING && is_any(&b, OTHER))) continue;
    struct brief with = b;
    with.at[i] = (int8_t)at;
    add_mixtures(with, i + 1, dim);
  }
}

/* The dimensions of the tensor that one end of the way cuts; or all of more than one element. */
static unsigned dims_to_cut(bool all)
{
  unsigned dims = 0;
  for (int i = 0; i < world.mesh.ndim; i++) {
    if (way.from.at[i] >= 0) dims |= 1u << way.from.at[i];
    if (way.to.at[i] >= 0) dims |= 1u << way.to.at[i];
  }
  for (int d = 0; all && d < world.whole.ndim; d++)
    if (world.whole.size[d] > 1) dims |= 1u << d;
  return dims;
}

/* As many layouts as there is room for: all, all on dimensions that are cut, or mixtures. */
static void find_states(void)
{
  struct brief whole;
  memset(&whole, 0, sizeof whole);
  memset(whole.at, WHOLE, sizeof whole.at);
  int first = 0;
  while (first + 1 < world.whole.ndim && world.whole.size[first] <= 1) first++;
  way.room = (int)least(MAX_STATES, 16 + (1 << 17) / world.ranks);
  for (int attempt = 0; attempt < 3; attempt++) {
    way.states = 0;
    add_state(&way.from);
    add_state(&way.to);
    if (attempt < 2)
      add_states(whole, 0, dims_to_cut(attempt == 0));
    else
      add_mixtures(whole, 0, world.whole.ndim ? first : WHOLE);
    if (way.states <= way.room) return;
  }
  way.states = way.room;
}

/* Works out what is not known of a state yet. */
static const struct state *know(int which)
{
  static struct {
    int ranks;
    struct box *box;
    int64_t *lacks;
  } kept[MAX_STATES];
  struct state *s = &way.state[which];
  if (s->known) return s;
  if (kept[which].ranks < world.ranks) {
    kept[which].ranks = world.ranks;
    kept[which].box = alloc((size_t)world.ranks * sizeof *s->box);
    kept[which].lacks = alloc((size_t)world.ranks * sizeof *s->lacks);
  }
  s->known = true;
  s->box = kept[which].box;
  s->lacks = kept[which].lacks;
  find_boxes(&s->brief, s->box);
  const struct box *wanted = which == TARGET ? s->box : know(TARGET)->box;
  int64_t n = least_elements(&s->brief, &way.to, s->box, wanted, s->lacks);
  s->rest = (s->far ? way.shortest : 0) + picoseconds((double)(n * world.bytes) / way.bandwidth);
  return s;
}

/* ------------------------------------------------------------------------------ the fastest way
 */

/* A way from the source to a state. `time` is that of its steps, `least` what it will be at the
   target at least. Of a rough one the last step, an exchange, is not dealt out yet. */
struct label {
  int state, before, steps, strangeness;
  int next; /* here that was gone on from before */
  bool rough;
  struct step step;
  int64_t time, least;
};

enum { MAX_LABELS = 20000 };

static struct {
  int n, room, got_room, nheap;
  struct label *label;
  int64_t *got; /* by label and rank: the elements that it has received */
  int *heap;
  struct label best; /* at the target */
} search;

/* How little a step is known to those who read it. */
static int strangeness(const struct step *s, bool one_to_one)
{
  switch (s->kind) {
  case OP_slice:
  case OP_to_partial:
    return 1;
  case OP_all_to_all:
    return 3;
  case OP_exchange:
    return one_to_one ? 4 : 5;
  default:
    return 2;
  }
}

static bool is_better(const struct label *a, const struct label *b)
{
  if (a->least != b->least) return a->least < b->least;
  return a->strangeness < b->strangeness;
}

/* Whether it cannot end better than what was found already. */
static bool is_hopeless(const struct label *l)
{
  if (l->least != search.best.least) return l->least > search.best.least;
  int more = l->state == TARGET ? 0 : way.state[l->state].far ? 2 : 1;
  return l->strangeness + more >= search.best.strangeness;
}

static bool comes_before(int a, int b)
{
  const struct label *x = &search.label[a], *y = &search.label[b];
  return is_better(x, y) || (!is_better(y, x) && a < b);
}

static void push(int label)
{
  int at = search.nheap++;
  for (; at > 0 && comes_before(label, search.heap[(at - 1) / 2]); at = (at - 1) / 2)
    search.heap[at] = search.heap[(at - 1) / 2];
  search.heap[at] = label;
}

static int pop(void)
{
  int first = search.heap[0], last = search.heap[--search.nheap], at = 0;
  for (int next; (next = 2 * at + 1) < search.nheap; at = next) {
    if (next + 1 < search.nheap && comes_before(search.heap[next + 1], search.heap[next])) next++;
    if (!comes_before(search.heap[next], last)) break;
    search.heap[at] = search.heap[next];
  }
  search.heap[at] = last;
  return first;
}

static int64_t *got_by(int label)
{
  return search.got + (size_t)label * (size_t)world.ranks;
}

/* Works out the label's last step; false if a rank receives more than it may on this way. */
static bool finish(struct label *l, int64_t *got)
{
  const struct label *b = &search.label[l->before];
  const struct state *from = know(b->state), *to = know(l->state);
  struct stage g = {&l->step, &from->brief, &to->brief, from->box, to->box};
  struct traffic t = traffic_of(&g, true);
  const int64_t *before = got_by(l->before);
  l->rough = false;
  l->time = b->time + time_of(&l->step, &t);
  l->least = l->time + to->rest;
  l->strangeness = b->strangeness + strangeness(&l->step, t.one_to_one);
  if (!way.limited) return true;
  for (int r = 0; r < world.ranks; r++) {
    got[r] = before[r] + t.got[r];
    if (got[r] + to->lacks[r] > way.limit) return false;
  }
  return true;
}

/* The same for an exchange, before it is known who gives what: no less than in the end. */
static bool guess(struct label *l, int64_t *got)
{
  const struct label *b = &search.label[l->before];
  const struct state *from = know(b->state), *to = know(l->state);
  const int64_t *before = got_by(l->before);
  int64_t busiest = 0, sum = 0;
  l->rough = true;
  for (int r = 0; r < world.ranks; r++) {
    int64_t n = volume(&to->box[r]) - overlap(&from->box[r], &to->box[r]);
    busiest = most(busiest, n);
    sum += n;
    if (!way.limited) continue;
    got[r] = before[r] + n;
    if (got[r] + to->lacks[r] > way.limit) return false;
  }
  busiest = most(busiest, (sum + world.ranks - 1) / world.ranks);
  l->time += picoseconds((double)(busiest * world.bytes) / way.bandwidth);
  l->least = most(l->least, l->time + to->rest);
  return true;
}

/* Considers the way on from a label by a step to a state. */
static void consider(int before, int state, const struct step *s)
{
  const struct label *b = &search.label[before];
  const struct state *from = know(b->state), *to = &way.state[state];
  struct label l = {.state = state, .before = before, .steps = b->steps + 1, .step = *s};
  l.time = b->time + picoseconds(latency_of(s));
  l.strangeness = b->strangeness + strangeness(s, true);
  l.least = l.time + from->rest + way.shortest * (to->far - from->far);
  if (is_hopeless(&l)) return;
  l.least = most(l.least, l.time + know(state)->rest);
  if (is_hopeless(&l) || search.n == search.room) return;
  int64_t *got = got_by(search.n);
  bool rough = s->kind == OP_exchange && state != TARGET;
  if (!(rough ? guess(&l, got) : finish(&l, got)) || is_hopeless(&l)) return;
  if (state == TARGET) search.best = l;
  search.label[search.n] = l;
  if (state != TARGET) push(search.n);
  search.n++;
}

/* Whether a way to the same state that was gone on from before is as good in everything. */
static bool is_dominated(int label)
{
  const struct label *l = &search.label[label];
  for (int k = way.state[l->state].gone_on; k != NONE; k = search.label[k].next) {
    const struct label *other = &search.label[k];
    if (other->time > l->time) continue;
    if (other->time == l->time && other->strangeness > l->strangeness) continue;
    bool less = false;
    for (int r = 0; way.limited && r < world.ranks; r++) less |= got_by(label)[r] < got_by(k)[r];
    if (!less) return true;
  }
  return false;
}

static void go_on(int label)
{
  struct step s;
  int here = search.label[label].state;
  search.label[label].next = way.state[here].gone_on;
  way.state[here].gone_on = label;
  for (int t = TARGET; t < way.states; t++) {
    const struct brief *a = &way.state[here].brief, *b = &way.state[t].brief;
    bool alone = t == here;
    if (!alone && step_between(a, b, &s)) {
      consider(label, t, &s);
      alone = !is_collective(s.kind) || (t != TARGET && world.tiers == 1);
    }
    if (!alone && exchange_between(a, b, &s)) consider(label, t, &s);
  }
}

/* Leaves the best label at the target, unless none is better than `best`. */
static void find_way(struct label best, int most_steps)
{
  search.room = (int)least(MAX_LABELS, 64 + (1 << 21) / world.ranks);
  size_t n = (size_t)search.room;
  if (!search.label) {
    search.label = alloc(MAX_LABELS * sizeof *search.label);
    search.heap = alloc(MAX_LABELS * sizeof *search.heap);
  }
  if (search.got_room < world.ranks)
    search.got = alloc(n * (size_t)world.ranks * sizeof *search.got);
  search.got_room = (int)most(search.got_room, world.ranks);
  search.best = best;
  search.label[0] = (struct label){.state = START, .least = know(START)->rest};
  search.n = 1;
  search.nheap = 0;
  memset(search.got, 0, (size_t)world.ranks * sizeof *search.got);
  push(0);
  while (search.nheap > 0) {
    int at = pop();
    struct label *l = &search.label[at];
    if (is_hopeless(l)) continue;
    if (!l->rough) {
      if (l->steps < most_steps && !is_dominated(at)) go_on(at);
    } else if (finish(l, got_by(at))) {
      push(at);
    }
  }
}

/* -------------------------------------------------------------------------------------- the plan
 */

static struct traffic traffic_of_move(const struct move *m, struct reductions r, bool planning)
{
  static struct box *has, *gets;
  static int room;
  if (room < world.ranks) {
    room = world.ranks;
    has = alloc((size_t)room * sizeof *has);
    gets = alloc((size_t)room * sizeof *gets);
  }
  struct step s = {.kind = m->kind, .n = m->n};
  memcpy(s.dim, m->dim, sizeof s.dim);
  struct brief from = brief_of(m->from, r), to = brief_of(m->to, r);
  find_boxes(&from, has);
  find_boxes(&to, gets);
  return traffic_of(&(struct stage){&s, &from, &to, has, gets}, planning);
}

/* Fills in the time and the bytes; gives the label that stands for these steps. */
static struct label assess(struct moves *moves, struct reductions r)
{
  static struct scratch room;
  int64_t *got = take(&room, (size_t)world.ranks * sizeof *got), busiest = 0;
  struct label l = {.state = NONE};
  for (int i = 0; i < moves->n; i++) {
    const struct move *m = &moves->move[i];
    struct step s = {.kind = m->kind, .n = m->n};
    memcpy(s.dim, m->dim, sizeof s.dim);
    struct traffic t = traffic_of_move(m, r, true);
    l.time += time_of(&s, &t);
    l.strangeness += strangeness(&s, t.one_to_one);
    for (int k = 0; k < world.ranks; k++)
      for (int tier = 0; tier < world.tiers; tier++) got[k] += t.got[tier * world.ranks + k];
  }
  for (int k = 0; k < world.ranks; k++) busiest = most(busiest, got[k]);
  l.least = l.time;
  moves->time = (double)l.time * 1e-12;
  moves->bytes = busiest * world.bytes;
  return l;
}

static void add_steps(struct moves *moves, const struct label *l)
{
  if (l->state == START) return;
  const struct label *before = &search.label[l->before];
  add_steps(moves, before);
  moves->move[moves->n++] = move_of(&l->step, &way.state[before->state].brief,
                                    &way.state[l->state].brief, way.reductions);
}

/* How much a rank may receive where all links are as quick: what it must, or what it does on the
   greedy way. */
static void set_limit(const struct moves *greedily)
{
  bool pending = is_any(&way.from, PENDING) || is_any(&way.to, PENDING) || is_any(&way.to, OTHER);
  const struct state *from = know(START), *to = know(TARGET);
  way.limited = world.tiers == 1;
  way.limit = pending ? greedily->bytes / world.bytes
                      : least_elements(&way.from, &way.to, from->box, to->box, from->lacks);
}

static void plan_fastest(struct moves *moves, const struct brief *from, const struct brief *to,
                         struct reductions r)
{
  struct moves greedily = {0};
  way.from = *from;
  way.to = *to;
  way.reductions = r;
  way.bandwidth = way.shortest = 0;
  for (int t = 0; t < world.tiers; t++) way.bandwidth += world.bandwidth[t];
  for (int i = 0; i < world.mesh.ndim; i++) {
    int64_t l = picoseconds(world.latency[i]);
    if (world.mesh.size[i] > 1 && (!way.shortest || l < way.shortest)) way.shortest = l;
  }
  find_states();
  greedily.n = greedy(from, to, r, greedily.move);
  struct label best = assess(&greedily, r);
  set_limit(&greedily);
  if (way.limited && greedily.bytes > way.limit * world.bytes) best.least = INT64_MAX;
  find_way(best, MAX_MOVES - moves->n);
  if (search.best.state == TARGET) {
    add_steps(moves, &search.best);
    return;
  }
  memcpy(&moves->move[moves->n], greedily.move, (size_t)greedily.n * sizeof *greedily.move);
  moves->n += greedily.n;
}

/* Without what is on dimensions of one rank. */
static struct brief trimmed(struct brief b)
{
  for (int i = 0; i < world.mesh.ndim; i++)
    if (world.mesh.size[i] == 1 && b.at[i] != WHOLE) put_at(&b, i, WHOLE);
  return b;
}

/* Where a dimension of the mesh has one rank, what is on it comes off first and goes on last. */
static void plan_around(struct moves *moves, const struct brief *from, const struct brief *to,
                        struct reductions r)
{
  struct walk w = {.move = moves->move, .now = *from, .reductions = r};
  struct brief last = trimmed(*to);
  if (same_brief(from, to)) return;
  for (int i = 0; i < world.mesh.ndim; i++)
    if (world.mesh.size[i] == 1) walk_to(&w, i, WHOLE);
  moves->n = w.n;
  if (!same_brief(&w.now, &last)) plan_fastest(moves, &w.now, &last, r);
  w = (struct walk){.n = moves->n, .move = moves->move, .now = last, .reductions = r};
  for (int i = 0; i < world.mesh.ndim; i++)
    if (world.mesh.size[i] == 1) walk_to(&w, i, to->at[i]);
  moves->n = w.n;
  if (!same_brief(&w.now, to)) moves->move[w.n - 1].to = layout_of(to, r);
}

/* What a plan follows from. */
struct question {
  struct mesh mesh;
  struct shape whole;
  int64_t bytes;
  bool greedy;
  struct brief from, to;
  struct reductions reductions;
};

/* Plans by the hash of their question; those with one hash in a chain. */
struct remembered {
  struct question question;
  struct moves moves;
  struct remembered *next;
};

static uint64_t hash_of(const struct question *q)
{
  uint64_t hash = HASH_START;
  hash = hash_bytes(hash, &q->mesh.size, sizeof q->mesh.size);
  hash = hash_bytes(hash, &q->whole.size, sizeof q->whole.size);
  hash = hash_bytes(hash, &q->from, sizeof q->from);
  return hash_bytes(hash, &q->to, sizeof q->to);
}

static bool same_question(const struct question *a, const struct question *b)
{
  return a->bytes == b->bytes && a->greedy == b->greedy && same_brief(&a->from, &b->from) &&
         same_brief(&a->to, &b->to) && a->reductions.pending == b->reductions.pending &&
         a->reductions.other == b->reductions.other && same_shape(a->whole, b->whole) &&
         same_mesh(&a->mesh, &b->mesh);
}

const struct moves *plan_moves(struct shape whole, enum type type, struct layout from,
                               struct layout to)
{
  enum { BUCKETS = 4096 };
  static struct remembered *bucket[BUCKETS];
  struct reductions r = reductions_of(from, to);
  struct question q = {graph->mesh,     whole, type_bytes(type), graph->greedy, brief_of(from, r),
                       brief_of(to, r), r};
  struct remembered **at = &bucket[hash_of(&q) % BUCKETS];
  for (struct remembered *k = *at; k; k = k->next)
    if (same_question(&k->question, &q)) return &k->moves;
  struct remembered *new = alloc(sizeof *new);
  new->question = q;
  new->next = *at;
  *at = new;
  enter(whole, type);
  if (graph->greedy)
    new->moves.n = greedy(&q.from, &q.to, r, new->moves.move);
  else
    plan_around(&new->moves, &q.from, &q.to, r);
  assess(&new->moves, r);
  return &new->moves;
}

void add_traffic(const struct move *m, struct shape whole, enum type type, int64_t *sent,
                 int64_t *received)
{
  enter(whole, type);
  struct traffic t = traffic_of_move(m, reductions_of(m->from, m->to), false);
  for (int tier = 0; tier < world.tiers; tier++)
    for (int r = 0; r < world.ranks; r++) {
      sent[r] += t.sent[tier * world.ranks + r] * world.bytes;
      received[r] += t.got[tier * world.ranks + r] * world.bytes;
    }
}

int64_t least_bytes(struct shape whole, enum type type, struct layout from, struct layout to)
{
  enter(whole, type);
  struct reductions r = reductions_of(from, to);
  struct brief a = brief_of(from, r), b = brief_of(to, r);
  size_t n = (size_t)world.ranks;
  struct box *has = alloc(2 * n * sizeof *has);
  find_boxes(&a, has);
  find_boxes(&b, has + n);
  return world.bytes * least_elements(&a, &b, has, has + n, alloc(n * sizeof(int64_t)));
}
