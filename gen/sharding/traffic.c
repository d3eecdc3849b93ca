/* traffic.c: what a step of a redistribution moves, how long it takes, and lower bounds.

   The cost model is alpha-beta. A rank has a link along each dimension of the mesh, with the plan's
   bandwidth and latency, or 100 GB/s and 10 us; links of one bandwidth count as one link. A
   collective takes the largest latency of its dimensions, plus what its busiest rank sends or
   receives, whichever is more, over the slowest of their links:
     all_gather      sends its part to each other member, receives theirs
     reduce_scatter  sends what it does not keep, receives its part from each other member
     all_reduce      both, with its torch.chunk of the elements as its part
     all_to_all, exchange
                     each piece over the slowest link between the two ranks, all links at once
   A copy within a rank reads and writes at the memory's bandwidth (device.c): a slice; a conversion
   to a pending sum; what a rank keeps of its part in a gather, an all_to_all or an exchange; and
   packing before or unpacking after a collective along a dimension whose parts are not contiguous.
   Dimensions of size 1 cost nothing.

   With more than 32 ranks a plan samples some of them, along each dimension of the mesh from the
   first to the last. In a group of more than 64 the pieces of an exchange are not computed for a
   plan: each rank is assumed to send as much as it receives, and to copy all of it. */
#include "sharding/sharding.h"

#include <string.h>

/* ------------------------------------------------------------------------------- who holds what */

void find_boxes(const struct compact_layout *b, struct box *box)
{
  struct cut_list c = cuts_in_turn(b);
  for (int k = 0; k < world.sampled_ranks; k++)
    cut_box(&c, world.whole, world.coordinate[k], &box[k]);
}

/* ------------------------------------------------------------------------- what a rank must get */

/* What each sampled rank lacks of its part, and the maximum. If the target is pending, no rank
   needs a particular part; a term of a sum does not count as the sum. */
static int64_t find_lacks(const struct compact_layout *a, const struct compact_layout *b,
                          const struct box *has, const struct box *wants, int64_t *lacks)
{
  int64_t worst = 0;
  bool terms = false, shared = false;
  for (int i = 0; i < world.mesh.ndim; i++) {
    terms |= a->at[i] < WHOLE && world.mesh.size[i] > 1;
    shared |= b->at[i] < WHOLE && world.mesh.size[i] > 1;
  }
  for (int k = 0; k < world.sampled_ranks; k++) {
    int64_t kept = terms ? 0 : box_overlap(&has[k], &wants[k]);
    lacks[k] = shared ? 0 : volume(&wants[k]) - kept;
    worst = greater(worst, lacks[k]);
  }
  return worst;
}

/* How many elements of its part, or of a term of it, one of the target's ranks holds already. */
static int64_t met_elements(const struct compact_layout *a, const struct compact_layout *b,
                            const struct box *has, const struct box *wants)
{
  int64_t met = 0;
  if (world.sampled_ranks < world.ranks) return elements(world.whole);
  for (int k = 0; k < world.sampled_ranks; k++) {
    bool counts = true;
    for (int i = 0; i < world.mesh.ndim; i++)
      counts &= a->at[i] >= 0 || b->at[i] >= 0 || world.coordinate[k][i] == 0;
    if (counts) met += box_overlap(&has[k], &wants[k]);
  }
  return met;
}

/* What all ranks must receive together. Ranks that differ only where the target is pending count
   as one: each element must reach one of them. An element with `terms` terms that `needers` ranks
   need is sent terms + needers - 1 times, or once less if a rank that needs it has a term: every
   other holder of a term sends once until one rank has the sum, and then each other rank that
   needs it receives it once. */
static int64_t least_in_all(const struct compact_layout *a, const struct compact_layout *b,
                            const struct box *has, const struct box *wants)
{
  int64_t terms = 1, needers = 1, copies = 1;
  bool other = is_any(b, OTHER);
  for (int i = 0; i < world.mesh.ndim; i++) {
    int n = world.mesh.size[i];
    bool shared = b->at[i] < WHOLE;
    if (a->at[i] < WHOLE && (!shared || other)) terms *= n;
    if (shared || b->at[i] >= 0) continue;
    needers *= n;
    if (a->at[i] == WHOLE) copies *= n;
  }
  int64_t met = met_elements(a, b, has, wants);
  if (terms == 1) return elements(world.whole) * needers - met * copies;
  return elements(world.whole) * (terms - 1 + needers) - met;
}

int64_t least_elements(const struct compact_layout *a, const struct compact_layout *b,
                       const struct box *has, const struct box *wants, int64_t *lacks)
{
  int64_t worst = find_lacks(a, b, has, wants, lacks);
  bool pending = is_any(a, PENDING) || is_any(b, PENDING) || is_any(b, OTHER);
  if (!pending) return worst;
  return greater(worst, (least_in_all(a, b, has, wants) + world.ranks - 1) / world.ranks);
}

/* Whether all ranks are looked at, each in all micro-batches. */
static bool has_few_places(void)
{
  int64_t n = 1;
  for (int i = 0; i < graph->mesh.ndim; i++) n *= graph->mesh.size[i];
  return n <= MANY_RANKS;
}

int64_t least_bytes(struct shape whole, enum type type, struct layout from, struct layout to)
{
  static struct scratch room;
  static const int origin[MAX_MESH];
  struct fixed_part u = fixed_part_of(from, to);
  enter_context(whole, type, &u, origin, has_few_places());
  struct compact_layout a = compact_of(from, &u), b = compact_of(to, &u);
  if (!is_any(&a, PENDING) && !is_any(&b, PENDING) && !is_any(&b, OTHER))
    return world.bytes * most_lacking(&a, &b);
  size_t n = (size_t)world.sampled_ranks;
  struct box *has = scratch_alloc(&room, n * (2 * sizeof *has + sizeof(int64_t)));
  find_boxes(&a, has);
  find_boxes(&b, has + n);
  return world.bytes * least_elements(&a, &b, has, has + n, (int64_t *)(has + 2 * n));
}

/* ---------------------------------------------------------------------------- what a step moves */

static struct traffic no_traffic(void)
{
  static struct scratch room;
  size_t n = (size_t)world.sampled_ranks, all = n * (size_t)world.tiers;
  int64_t *at = scratch_alloc(&room, 2 * (all + n) * sizeof *at);
  return (struct traffic){at, at + all, at + 2 * all, at + 2 * all + n, false};
}

/* The slowest link of a step. */
static int slowest(const struct move_step *s)
{
  int tier = world.tiers - 1;
  for (int i = 0; i < s->n; i++)
    if (world.mesh.size[s->dim[i]] > 1 && world.tier[s->dim[i]] < tier)
      tier = world.tier[s->dim[i]];
  return tier;
}

static int64_t sent_by(const struct traffic *t, int sampled_rank)
{
  int64_t sum = 0;
  for (int tier = 0; tier < world.tiers; tier++)
    sum += t->sent[tier * world.sampled_ranks + sampled_rank];
  return sum;
}

/* What the ranks of a group share: their part by the cuts of other mesh dimensions. */
static struct shape shared_shape(const struct stage *g, const int coordinate[MAX_MESH])
{
  struct compact_layout b = *g->from;
  struct shape shape = world.whole;
  struct box box;
  for (int i = 0; i < g->step->n; i++) put_at(&b, g->step->dim[i], WHOLE);
  struct cut_list c = cuts_in_turn(&b);
  cut_box(&c, world.whole, coordinate, &box);
  for (int d = 0; d < shape.ndim; d++) shape.size[d] = box.last[d] - box.first[d];
  return shape;
}

/* To the sampled ranks among the members, if all ranks are sampled; else to that of the first. */
static void add_deal(const struct deal *d, const int base[MAX_MESH], struct traffic *t)
{
  for (int k = 0; k < d->n; k++) {
    const struct member *m = &d->member[k];
    int sampled_rank = 0;
    for (int i = 0; i < world.mesh.ndim && world.sampled_ranks == world.ranks; i++)
      sampled_rank = sampled_rank * world.mesh.size[i] + base[i] + m->coordinate[i];
    for (int tier = 0; tier < world.tiers; tier++) {
      int at = tier * world.sampled_ranks + sampled_rank;
      t->sent[at] = greater(t->sent[at], m->sent[tier]);
      t->got[at] = greater(t->got[at], m->got[tier]);
    }
  }
}

/* The pieces of all groups together, and properties that hold for all. Groups that share parts
   of one size have the same pieces: a plan looks at one of them. */
static struct deal add_pieces(const struct stage *g, bool planning, struct traffic *t)
{
  static struct scratch room, holders;
  struct deal all = {.gives_runs = true, .gets_runs = true, .one_to_one = true};
  struct shape last = {.ndim = NONE};
  for (int k = 0; k < world.sampled_ranks; k++) {
    const int *base = world.coordinate[k];
    if (member_at(g->step, base) != 0) continue;
    struct deal d = {.step = g->step, .n = members(g->step), .whole = shared_shape(g, base)};
    if (planning && same_shape(d.whole, last)) continue;
    last = d.whole;
    d.member = scratch_alloc(&room, (size_t)d.n * sizeof *d.member);
    d.holder = scratch_alloc(&holders, (size_t)d.n * sizeof *d.holder);
    deal_out(&d, g->from, g->to);
    add_deal(&d, base, t);
    all.gives_runs = all.gives_runs && d.gives_runs;
    all.gets_runs = all.gets_runs && d.gets_runs;
    all.one_to_one = all.one_to_one && d.one_to_one;
  }
  return all;
}

/* In a big group, for a plan: everything over the slowest link, and as much sent as received. */
static struct deal guess_pieces(const struct stage *g, struct traffic *t)
{
  for (int k = 0; k < world.sampled_ranks; k++) {
    int at = slowest(g->step) * world.sampled_ranks + k;
    t->sent[at] = t->got[at] = volume(&g->gets[k]) - box_overlap(&g->has[k], &g->gets[k]);
  }
  return (struct deal){0};
}

static struct deal exchange_pieces(const struct stage *g, bool planning, struct traffic *t)
{
  if (planning && members(g->step) > BIG_GROUP) return guess_pieces(g, t);
  return add_pieces(g, planning, t);
}

static void add_exchange(const struct stage *g, bool planning, struct traffic *t)
{
  struct deal all = exchange_pieces(g, planning, t);
  t->one_to_one = all.one_to_one;
  for (int k = 0; k < world.sampled_ranks; k++) {
    int64_t gets = volume(&g->gets[k]), kept = box_overlap(&g->has[k], &g->gets[k]);
    if (is_idle_member(g->step, member_at(g->step, world.coordinate[k]))) kept = gets;
    t->received[k] = gets - kept;
    t->copied[k] = kept;
    if (!all.gives_runs) t->copied[k] += sent_by(t, k) + kept;
    if (!all.gets_runs) t->copied[k] += gets;
  }
}

/* Whether the parts along `dim` are contiguous on every rank. The first rank has the largest. */
static bool outermost(const struct box *box, int dim)
{
  for (int d = 0; d < dim; d++)
    if (box->last[d] - box->first[d] > 1) return volume(box) == 0;
  return true;
}

static void add_all_to_all(const struct stage *g, bool planning, struct traffic *t)
{
  int dim = g->from->at[g->step->dim[0]], dim_to = g->to->at[g->step->dim[0]];
  bool pack = !outermost(&g->has[0], dim_to), unpack = !outermost(&g->gets[0], dim);
  bool by_tier = planning && world.tiers > 1;
  if (by_tier) exchange_pieces(g, planning, t);
  for (int k = 0; k < world.sampled_ranks; k++) {
    int64_t has = volume(&g->has[k]), gets = volume(&g->gets[k]);
    int64_t kept = box_overlap(&g->has[k], &g->gets[k]);
    t->received[k] = gets - kept;
    t->copied[k] = kept + (pack ? has : 0) + (unpack ? gets : 0);
    if (by_tier) continue;
    t->sent[k] = has - kept;
    t->got[k] = gets - kept;
  }
}

static void add_collective(const struct stage *g, struct traffic *t)
{
  const struct move_step *s = g->step;
  int64_t n = members(s), *sent = t->sent + slowest(s) * world.sampled_ranks;
  int dim = g->from->at[s->dim[0]], dim_to = g->to->at[s->dim[0]];
  bool pack = dim_to >= 0 && !outermost(&g->has[0], dim_to);
  bool unpack = dim >= 0 && !outermost(&g->gets[0], dim);
  for (int k = 0; k < world.sampled_ranks; k++) {
    int64_t has = volume(&g->has[k]), gets = volume(&g->gets[k]);
    struct share of = {.n = n, .has = has, .gets = gets};
    if (!is_collective(s->kind)) { /* slice, to_partial */
      t->copied[k] = gets;
      continue;
    }
    of.member = member_at(s, world.coordinate[k]);
    sent[k] = elements_sent(s->kind, &of);
    t->received[k] = elements_received(s->kind, &of);
    t->copied[k] = (gathers_shards(s->kind) ? has : 0) + (unpack ? gets : 0) + (pack ? has : 0);
  }
  memcpy(t->got + slowest(s) * world.sampled_ranks, t->received,
         (size_t)world.sampled_ranks * sizeof *t->received);
}

/* --------------------------------------------------------------------------------------- a step */

struct traffic traffic_of(const struct stage *g, bool planning)
{
  struct traffic t = no_traffic();
  if (g->step->kind == OP_exchange)
    add_exchange(g, planning, &t);
  else if (collective_row[g->step->kind].pairwise)
    add_all_to_all(g, planning, &t);
  else
    add_collective(g, &t);
  return t;
}

struct traffic traffic_of_move(const struct move *m, const struct fixed_part *u, bool planning)
{
  static struct scratch room;
  struct box *has = scratch_alloc(&room, (size_t)world.sampled_ranks * 2 * sizeof *has),
             *gets = has + world.sampled_ranks;
  struct move_step s = step_of_move(m);
  struct compact_layout from = compact_of(m->from, u), to = compact_of(m->to, u);
  find_boxes(&from, has);
  find_boxes(&to, gets);
  return traffic_of(&(struct stage){&s, &from, &to, has, gets}, planning);
}

/* With fixed cuts there are several contexts, in each of which ranks differ only in the rest. */
void add_traffic(const struct move *m, struct shape whole, enum type type, int64_t *sent,
                 int64_t *received)
{
  struct fixed_part u = fixed_part_of(m->from, m->to);
  for (int first = 0, ranks = world_size(); first < ranks; first++) {
    int base[MAX_MESH] = {0};
    bool begins = true;
    coordinate_of(first, base);
    for (int i = 0; i < graph->mesh.ndim; i++) begins &= u.fixed >> i & 1 || base[i] == 0;
    if (!begins) continue;
    enter_context(whole, type, &u, base, true);
    struct traffic t = traffic_of_move(m, &u, false);
    for (int k = 0; k < world.sampled_ranks; k++) {
      int rank = 0;
      bool later = false; /* of a later micro-batch: a rank moves for one at a time */
      for (int i = 0; i < graph->mesh.ndim; i++) {
        later |= graph->mesh.in_time[i] && world.coordinate[k][i];
        rank = rank * ranks_along(i) + base[i] + world.coordinate[k][i];
      }
      if (later) continue;
      sent[rank] += sent_by(&t, k) * world.bytes;
      received[rank] += t.received[k] * world.bytes;
    }
  }
}

int64_t picoseconds(double seconds)
{
  static const int64_t longest = INT64_MAX / 64;
  double p = seconds * 1e12;
  if (p >= (double)longest) return longest;
  int64_t down = (int64_t)p;
  return (double)down < p ? down + 1 : down;
}

int64_t transfer_time(int64_t elements, double bandwidth)
{
  return picoseconds((double)(elements * world.bytes) / bandwidth);
}

int64_t latency_of(const struct move_step *s)
{
  double longest = 0;
  for (int i = 0; i < s->n && is_collective(s->kind); i++) {
    double l = world.latency[s->dim[i]];
    if (world.mesh.size[s->dim[i]] > 1 && l > longest) longest = l;
  }
  return picoseconds(longest);
}

int64_t traffic_time(const struct move_step *s, const struct traffic *t)
{
  int64_t busy = 0, copied = 0;
  for (int tier = 0; tier < world.tiers; tier++) {
    int64_t n = 0;
    for (int k = 0, at = tier * world.sampled_ranks; k < world.sampled_ranks; k++, at++)
      n = greater(n, greater(t->sent[at], t->got[at]));
    busy = greater(busy, transfer_time(n, world.bandwidth[tier]));
  }
  for (int k = 0; k < world.sampled_ranks; k++) copied = greater(copied, t->copied[k]);
  return latency_of(s) + busy + picoseconds(memory_seconds((double)(2 * copied * world.bytes)));
}
