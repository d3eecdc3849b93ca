/* exchange.c: the direct exchange: who gives which piece of a tensor to whom.

   Takes   a move from one layout to another, of plain shards, over a group; what is pending on
           other dimensions of the mesh stays so.
   Leaves  the pieces that a rank gives and gets: boxes, at most one for each pair of ranks.

   A rank that gets a part holds some of it already; of every other part of the source that meets
   it, one holder in the group sends the piece. Of several holders it is the one over the quickest
   links; of equals the one that has the least to send so far, in the order of the receivers. So
   all ranks come to the same pieces by themselves. */
#include "tpgen.h"

#include <string.h>

/* ------------------------------------------------------------------------------ parts in a group
 */

/* The parts of the members of a group, whose coordinates on other dimensions are `base`. */
struct parts {
  int n;
  struct part *from, *to;
};

static void member_coordinate(const struct move *m, int member, const int base[MAX_MESH],
                              int coordinate[MAX_MESH])
{
  memcpy(coordinate, base, MAX_MESH * sizeof *base);
  for (int i = m->n - 1; i >= 0; i--) {
    coordinate[m->dim[i]] = member % graph->mesh.size[m->dim[i]];
    member /= graph->mesh.size[m->dim[i]];
  }
}

static int member_of(const struct move *m, const int coordinate[MAX_MESH])
{
  int member = 0;
  for (int i = 0; i < m->n; i++)
    member = member * graph->mesh.size[m->dim[i]] + coordinate[m->dim[i]];
  return member;
}

/* Where two parts meet; false where they don't. */
static bool meet(const struct part *a, const struct part *b, struct part *both)
{
  *both = *a;
  for (int d = 0; d < a->shape.ndim; d++) {
    int64_t last_a = a->first[d] + a->shape.size[d], last_b = b->first[d] + b->shape.size[d];
    int64_t first = a->first[d] > b->first[d] ? a->first[d] : b->first[d];
    int64_t last = last_a < last_b ? last_a : last_b;
    if (last <= first) return false;
    both->first[d] = first;
    both->shape.size[d] = last - first;
  }
  return true;
}

static bool same_part(const struct part *a, const struct part *b)
{
  if (!same_shape(a->shape, b->shape)) return false;
  return !memcmp(a->first, b->first, (size_t)a->shape.ndim * sizeof *a->first);
}

/* ------------------------------------------------------------------------------------ who gives */

/* All pieces of a group: from member `from` to member `to`. */
struct given {
  int from, to;
  struct part part; /* in the whole */
};
struct deal {
  struct mesh mesh;
  struct shape whole;
  struct move move;
  int base[MAX_MESH];
  struct parts parts;
  int n, room;
  struct given *given;
};

/* The seconds a byte takes from one member to another: over the slowest link between them. */
static double slowness(const struct move *m, int a, int b)
{
  double most = 0;
  for (int i = m->n - 1; i >= 0; i--) {
    int n = graph->mesh.size[m->dim[i]];
    double s = 1 / link_bandwidth(m->dim[i]);
    if (a % n != b % n && s > most) most = s;
    a /= n;
    b /= n;
  }
  return most;
}

/* Who of those that hold the same as `first` gives to `to`; itself, if it holds that. */
static int giver(const struct deal *d, int first, int to, const int64_t *sent)
{
  int best = NONE;
  double least = 0;
  if (same_part(&d->parts.from[to], &d->parts.from[first])) return to;
  for (int k = first; k < d->parts.n; k++) {
    if (!same_part(&d->parts.from[k], &d->parts.from[first])) continue;
    double s = slowness(&d->move, k, to);
    if (best != NONE && (s > least || (s == least && sent[k] >= sent[best]))) continue;
    best = k;
    least = s;
  }
  return best;
}

/* For each member, the first that holds the same part. */
static int *first_holders(const struct parts *p)
{
  int *first = alloc((size_t)p->n * sizeof *first);
  for (int k = 0; k < p->n; k++) {
    first[k] = 0;
    while (!same_part(&p->from[first[k]], &p->from[k])) first[k]++;
  }
  return first;
}

static void deal_out(struct deal *d)
{
  int n = d->parts.n, *first = first_holders(&d->parts);
  int64_t *sent = alloc((size_t)n * sizeof *sent);
  for (int to = 0; to < n; to++)
    for (int k = 0; k < n; k++) {
      struct part piece;
      if (first[k] != k || !meet(&d->parts.from[k], &d->parts.to[to], &piece)) continue;
      int from = giver(d, k, to, sent);
      if (from != to) sent[from] += elements(piece.shape);
      GROW(d->given, d->n, d->room);
      d->given[d->n++] = (struct given){from, to, piece};
    }
}

/* What was dealt out before: a rank asks for what it gives and what it gets, and so do all. */
enum { KEPT = 64 };
static struct deal kept[KEPT];
static int nkept;

static bool same_move(const struct move *a, const struct move *b)
{
  if (a->n != b->n || memcmp(a->dim, b->dim, (size_t)a->n * sizeof *a->dim)) return false;
  return same_layout(a->from, b->from) && same_layout(a->to, b->to);
}

static bool same_mesh(const struct mesh *a, const struct mesh *b)
{
  if (a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->size[i] != b->size[i] || a->bandwidth[i] != b->bandwidth[i]) return false;
  return true;
}

static const struct deal *deal_of(const struct move *m, struct shape whole, const int *coordinate)
{
  int base[MAX_MESH];
  memcpy(base, coordinate, sizeof base);
  for (int i = 0; i < m->n; i++) base[m->dim[i]] = 0;
  for (int i = 0; i < nkept && i < KEPT; i++)
    if (same_mesh(&kept[i].mesh, &graph->mesh) && same_shape(kept[i].whole, whole) &&
        same_move(&kept[i].move, m) &&
        !memcmp(kept[i].base, base, (size_t)graph->mesh.ndim * sizeof *base))
      return &kept[i];
  struct deal *d = &kept[nkept++ % KEPT];
  *d = (struct deal){.mesh = graph->mesh, .whole = whole, .move = *m, .parts = {.n = 1}};
  memcpy(d->base, base, sizeof base);
  for (int i = 0; i < m->n; i++) d->parts.n *= graph->mesh.size[m->dim[i]];
  d->parts.from = alloc((size_t)d->parts.n * sizeof *d->parts.from);
  d->parts.to = alloc((size_t)d->parts.n * sizeof *d->parts.to);
  for (int k = 0; k < d->parts.n; k++) {
    int at[MAX_MESH];
    member_coordinate(m, k, base, at);
    d->parts.from[k] = local_part(&graph->mesh, whole, m->from, at);
    d->parts.to[k] = local_part(&graph->mesh, whole, m->to, at);
  }
  deal_out(d);
  return d;
}

/* --------------------------------------------------------------------------- what a rank is told
 */

static struct piece piece_of(const struct given *g, int member, const struct part *own)
{
  struct piece p = {.member = member, .part = g->part};
  for (int d = 0; d < own->shape.ndim; d++) p.part.first[d] -= own->first[d];
  return p;
}

int pieces_given(const struct move *m, struct shape whole, int rank, struct piece *list)
{
  int at[MAX_MESH] = {0}, n = 0;
  coordinate_of(rank, at);
  const struct deal *d = deal_of(m, whole, at);
  int me = member_of(m, at);
  for (int i = 0; i < d->n; i++)
    if (d->given[i].from == me)
      list[n++] = piece_of(&d->given[i], d->given[i].to, &d->parts.from[me]);
  return n;
}

int pieces_got(const struct move *m, struct shape whole, int rank, struct piece *list)
{
  int at[MAX_MESH] = {0}, n = 0;
  coordinate_of(rank, at);
  const struct deal *d = deal_of(m, whole, at);
  int me = member_of(m, at);
  for (int i = 0; i < d->n; i++) {
    if (d->given[i].to != me) continue;
    struct piece p = piece_of(&d->given[i], d->given[i].from, &d->parts.to[me]);
    int k = n++;
    for (; k > 0 && list[k - 1].member > p.member; k--) list[k] = list[k - 1];
    list[k] = p;
  }
  return n;
}

/* Whether a box of a part lies in one run. */
static bool is_run(const struct part *piece, struct shape of)
{
  bool inside = false; /* a dimension outside of this one takes more than one place */
  for (int d = 0; d < of.ndim; d++) {
    if (inside && piece->shape.size[d] != of.size[d]) return false;
    inside |= piece->shape.size[d] > 1;
  }
  return true;
}

/* What is asked of every group's pieces: whether it holds for all of them. */
typedef bool question(const struct deal *d);

static bool all_groups(const struct move *m, struct shape whole, question *holds)
{
  for (int r = 0; r < world_size(); r++) {
    int at[MAX_MESH] = {0};
    coordinate_of(r, at);
    if (member_of(m, at) == 0 && !holds(deal_of(m, whole, at))) return false;
  }
  return true;
}

static bool all_given_in_runs(const struct deal *d)
{
  for (int i = 0; i < d->n; i++)
    if (!is_run(&d->given[i].part, d->parts.from[d->given[i].from].shape)) return false;
  return true;
}

static bool all_got_in_runs(const struct deal *d)
{
  for (int i = 0; i < d->n; i++)
    if (!is_run(&d->given[i].part, d->parts.to[d->given[i].to].shape)) return false;
  return true;
}

static bool all_one_to_one(const struct deal *d)
{
  bool *gives = alloc((size_t)d->parts.n), *gets = alloc((size_t)d->parts.n);
  for (int i = 0; i < d->n; i++) {
    const struct given *g = &d->given[i];
    if (g->from == g->to) continue;
    if (gives[g->from] || gets[g->to]) return false;
    gives[g->from] = gets[g->to] = true;
  }
  return true;
}

bool gives_runs(const struct move *m, struct shape whole)
{
  return all_groups(m, whole, all_given_in_runs);
}

bool gets_runs(const struct move *m, struct shape whole)
{
  return all_groups(m, whole, all_got_in_runs);
}

bool is_permutation(const struct move *m, struct shape whole)
{
  return all_groups(m, whole, all_one_to_one);
}
