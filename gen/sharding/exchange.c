/* exchange.c: the direct exchange: who sends which piece of a tensor to whom.

   Takes   a move between two layouts of plain shards, over a group. Values pending on other mesh
           dimensions stay pending; cuts by other dimensions come before those of the group.
   Leaves  the pieces that a rank sends and receives: boxes, at most one for each pair of ranks.

   A rank that needs a part may hold some of it already. Each other part of the source that overlaps
   it comes from one holder in the group: the one over the fastest links; of equals, the one that
   sends least so far, in the order of the receivers. So all ranks find the same pieces by
   themselves.

   Groups whose ranks share parts of one size have the same pieces: these are computed once for all
   of them. */
#include "sharding/sharding.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- the deal */

/* The slowest link between two members. */
static int tier_between(const struct deal *d, const struct member *a, const struct member *b)
{
  int tier = world.tiers - 1;
  for (int i = 0; tier > 0 && i < d->step->n; i++) {
    int dim = d->step->dim[i];
    if (a->coordinate[dim] != b->coordinate[dim]) tier = (int)lesser(tier, world.tier[dim]);
  }
  return tier;
}

/* Which of the members that hold the same as `first` sends to `to`. */
static int giver(const struct deal *d, int first, const struct member *to)
{
  int best = NONE, quickest = NONE;
  for (int k = 0; k < d->holders; k++) {
    int at = first + d->holder[k], tier = tier_between(d, &d->member[at], to);
    if (best != NONE && tier < quickest) continue;
    if (best != NONE && tier == quickest && d->member[at].load >= d->member[best].load) continue;
    best = at;
    quickest = tier;
  }
  return best;
}

/* Whether the boxes overlap in one contiguous run of the first. */
static bool meets_in_run(int ndim, const struct box *of, const struct box *with)
{
  bool inside = false; /* a dimension outside of this one has more than one index */
  for (int d = 0; d < ndim; d++) {
    int64_t n = lesser(of->last[d], with->last[d]) - greater(of->first[d], with->first[d]);
    if (inside && n != of->last[d] - of->first[d]) return false;
    inside |= n > 1;
  }
  return true;
}

static void give(struct deal *d, int from, int to, int64_t n)
{
  struct member *a = &d->member[from], *b = &d->member[to];
  int tier = tier_between(d, a, b);
  a->load += n;
  a->sent[tier] += n;
  b->got[tier] += n;
  d->one_to_one = d->one_to_one && !a->gives++ && !b->gets_from++;
}

bool is_idle_member(const struct move_step *s, int member)
{
  return member < s->idle_first || member >= members(s) - s->idle_last;
}

void deal_out(struct deal *d, const struct compact_layout *from, const struct compact_layout *to)
{
  d->gives_runs = d->gets_runs = d->one_to_one = true;
  find_group_members(d, from, to);
  for (int k = 0; k < d->n; k++) {
    const struct member *m = &d->member[k];
    if (is_idle_member(d->step, k)) continue;
    for (int first = 0; first < d->n; first++) {
      const struct member *f = &d->member[first];
      int64_t n = f->cell == first ? box_overlap(&f->has, &m->gets) : 0;
      if (n == 0) continue;
      d->gives_runs = d->gives_runs && meets_in_run(d->whole.ndim, &f->has, &m->gets);
      d->gets_runs = d->gets_runs && meets_in_run(d->whole.ndim, &m->gets, &f->has);
      int giving = m->cell == first ? k : giver(d, first, m);
      if (giving != k) give(d, giving, k, n);
      if (!d->listed) continue;
      GROW(d->given, d->ngiven, d->room);
      d->given[d->ngiven++] = (struct given){giving, k};
    }
  }
}

/* --------------------------------------------------------------------------- what was dealt out */

/* The pieces of a group, cached by what they depend on. */
struct kept {
  struct mesh mesh;
  struct shape whole; /* that the group shares */
  struct move_step step;
  struct compact_layout from, to;
  struct deal deal;
  int *got;             /* by member: where the pieces that it receives begin */
  int *gave, *by_giver; /* by member: where those that it sends begin in the list by_giver */
  struct kept *next;
};

/* Where each member's pieces begin; those of the member after the last are the end. */
static int *begins(const struct deal *d, bool of_givers)
{
  int *at = alloc((size_t)(d->n + 1) * sizeof *at);
  for (int i = 0; i < d->ngiven; i++) at[(of_givers ? d->given[i].from : d->given[i].to) + 1]++;
  for (int k = 0; k < d->n; k++) at[k + 1] += at[k];
  return at;
}

/* The pieces are in the order of the receivers, also among those of each sender. */
static void index_pieces(struct kept *k)
{
  const struct deal *d = &k->deal;
  k->got = begins(d, false);
  k->gave = begins(d, true);
  k->by_giver = alloc((size_t)d->ngiven * sizeof *k->by_giver);
  int *next = alloc((size_t)(d->n + 1) * sizeof *next);
  memcpy(next, k->gave, (size_t)d->n * sizeof *next);
  for (int i = 0; i < d->ngiven; i++) k->by_giver[next[d->given[i].from]++] = i;
}

static struct kept *make_deal(struct kept question)
{
  struct kept *k = alloc(sizeof *k);
  *k = question;
  struct deal *d = &k->deal;
  *d = (struct deal){.step = &k->step, .n = members(&k->step), .whole = k->whole, .listed = true};
  d->member = alloc((size_t)d->n * sizeof *d->member);
  d->holder = alloc((size_t)d->n * sizeof *d->holder);
  deal_out(d, &k->from, &k->to);
  index_pieces(k);
  return k;
}

/* What the ranks of a group hold together, as the other mesh dimensions cut it. */
static struct shape shared_part(const struct move *m, struct shape whole, const int *coordinate)
{
  struct layout layout = m->from;
  for (int i = 0; i < m->n; i++) layout.on[m->dim[i]] = (struct placement){0};
  return local_part(&graph->mesh, whole, layout, coordinate).shape;
}

static bool same_step(const struct move_step *a, const struct move_step *b)
{
  return a->n == b->n && a->idle_first == b->idle_first && a->idle_last == b->idle_last &&
         !memcmp(a->dim, b->dim, (size_t)a->n * sizeof *a->dim);
}

static const struct kept *deal_of(const struct move *m, struct shape whole, const int *coordinate)
{
  enum { BUCKETS = 256 };
  static struct kept *bucket[BUCKETS];
  static const struct graph *of;
  if (is_other_graph(&of)) memset(bucket, 0, sizeof bucket);
  struct fixed_part u = fixed_part_of(m->from, m->to);
  enter_context(whole, F32, &u, coordinate, false);
  struct kept q = {.mesh = graph->mesh, .whole = shared_part(m, whole, coordinate)};
  q.step = step_of_move(m);
  q.from = of_group(&q.step, compact_of(m->from, &u));
  q.to = of_group(&q.step, compact_of(m->to, &u));
  uint64_t hash = hash_bytes(HASH_START, &q.from, sizeof q.from);
  hash = hash_bytes(hash, q.whole.size, sizeof q.whole.size);
  q.next = bucket[hash % BUCKETS];
  for (struct kept *k = q.next; k; k = k->next)
    if (same_compact(&k->from, &q.from) && same_compact(&k->to, &q.to) &&
        same_step(&k->step, &q.step) && same_shape(k->whole, q.whole) &&
        same_mesh(&k->mesh, &q.mesh))
      return k;
  return bucket[hash % BUCKETS] = make_deal(q);
}

/* --------------------------------------------------------------------------- a rank's own lists */

/* The overlap of the sender's and the receiver's box, counted from the start of `own`. */
static struct piece piece_of(const struct deal *d, struct given g, int member,
                             const struct box *own)
{
  const struct box *a = &d->member[g.from].has, *b = &d->member[g.to].gets;
  struct piece p = {.member = member, .part.shape.ndim = d->whole.ndim};
  for (int i = 0; i < d->whole.ndim; i++) {
    int64_t first = greater(a->first[i], b->first[i]);
    p.part.shape.size[i] = lesser(a->last[i], b->last[i]) - first;
    p.part.first[i] = first - own->first[i];
  }
  return p;
}

int pieces_given(const struct move *m, struct shape whole, int rank, struct piece *list)
{
  int at[MAX_MESH] = {0}, n = 0;
  coordinate_of(rank, at);
  const struct kept *k = deal_of(m, whole, at);
  int me = member_at(&k->step, at);
  for (int i = k->gave[me]; i < k->gave[me + 1]; i++) {
    struct given g = k->deal.given[k->by_giver[i]];
    list[n++] = piece_of(&k->deal, g, g.to, &k->deal.member[me].has);
  }
  return n;
}

int pieces_got(const struct move *m, struct shape whole, int rank, struct piece *list)
{
  int at[MAX_MESH] = {0}, n = 0;
  coordinate_of(rank, at);
  const struct kept *k = deal_of(m, whole, at);
  int me = member_at(&k->step, at);
  for (int i = k->got[me]; i < k->got[me + 1]; i++, n++) {
    struct given g = k->deal.given[i];
    struct piece p = piece_of(&k->deal, g, g.from, &k->deal.member[me].gets);
    int here = n;
    for (; here > 0 && list[here - 1].member > p.member; here--) list[here] = list[here - 1];
    list[here] = p;
  }
  return n;
}

/* Whether a condition holds for all pieces of every group. */
typedef bool question(const struct deal *d);

static bool all_groups(const struct move *m, struct shape whole, question *holds)
{
  for (int r = 0, n = world_size(); r < n; r++) {
    int at[MAX_MESH] = {0}, inside = 0;
    coordinate_of(r, at);
    for (int i = 0; i < m->n; i++) inside += at[m->dim[i]];
    if (inside == 0 && !holds(&deal_of(m, whole, at)->deal)) return false;
  }
  return true;
}

static bool in_runs_given(const struct deal *d)
{
  return d->gives_runs;
}

static bool in_runs_got(const struct deal *d)
{
  return d->gets_runs;
}

static bool is_one_to_one(const struct deal *d)
{
  return d->one_to_one;
}

bool gives_runs(const struct move *m, struct shape whole)
{
  return all_groups(m, whole, in_runs_given);
}

bool gets_runs(const struct move *m, struct shape whole)
{
  return all_groups(m, whole, in_runs_got);
}

bool is_permutation(const struct move *m, struct shape whole)
{
  return all_groups(m, whole, is_one_to_one);
}
