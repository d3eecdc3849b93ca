/* traffic.c: the traffic of a step of a redistribution, and its time.

   The cost model is alpha-beta. A rank has a link along each dimension of the mesh (links.c); links
   of one bandwidth count as one link. A collective takes its link's latency, plus what its busiest
   rank sends or receives, whichever is more, over that link:
     all_gather      sends its part to each other member, receives theirs
     reduce_scatter  sends what it does not keep, receives its part from each other member
     all_reduce      both, with its torch.chunk of the elements as its part
     all_to_all, exchange
                     each piece over the slowest link between the two ranks, all links at once
   A copy within a rank reads and writes at the memory's bandwidth (device.c): a slice; a conversion
   to a pending sum; what a rank keeps of its part in a gather, an all_to_all or an exchange; and
   packing before or unpacking after a collective along a dimension whose parts are not contiguous.
   Dimensions of size 1 cost nothing. Packing costs nothing where the question is which steps would
   be the best ones if dimensions were in another order in memory.

   With more than 32 ranks a plan samples some of them, along each dimension of the mesh from the
   first to the last. In a group of more than 64 the pieces of an exchange are not computed for a
   plan: each rank is assumed to send as much as it receives, and to copy all of it. */
#include "sharding/sharding.h"

#include <string.h>

/* Elements sent and received in a collective, by its row. */
int64_t elements_sent(enum op_kind kind, const struct share *s)
{
  const int64_t n = s->n, has = s->has, gets = s->gets, kept = s->kept;
  const int member = s->member;
  switch (kind) {
#define COLLECTIVE(name, from, to, sent, received, ...)                                            \
  case OP_##name:                                                                                  \
    return sent;
#include "ir/collectives.h"
#undef COLLECTIVE
  default:
    return 0;
  }
}

int64_t elements_received(enum op_kind kind, const struct share *s)
{
  const int64_t n = s->n, has = s->has, gets = s->gets, kept = s->kept;
  const int member = s->member;
  switch (kind) {
#define COLLECTIVE(name, from, to, sent, received, ...)                                            \
  case OP_##name:                                                                                  \
    return received;
#include "ir/collectives.h"
#undef COLLECTIVE
  default:
    return 0;
  }
}

/* The tier of the slowest link of a step. */
static int slowest(const struct rank_sample *r, const struct move_step *s)
{
  int tier = r->tiers - 1;
  for (int i = 0; i < s->n; i++)
    if (r->mesh.size[s->dim[i]] > 1 && r->tier[s->dim[i]] < tier) tier = r->tier[s->dim[i]];
  return tier;
}

static int64_t sent_by(const struct rank_sample *r, const struct traffic *t, int sampled_rank)
{
  int64_t sum = 0;
  for (int tier = 0; tier < r->tiers; tier++) sum += t->sent[tier * r->n + sampled_rank];
  return sum;
}

/* The pieces of an exchange or an all_to_all: the elements sent and received, by tier; and the
   facts of all groups. Groups that share parts of one size have the same pieces: for a plan only
   one of them is looked at. Without all ranks in the sample, all members count as the group's
   first. */
static struct exchange_plan add_pieces(struct cost_model *m, const struct step_parts *g,
                                       bool planning, struct traffic *t)
{
  const struct rank_sample *r = m->ranks;
  struct exchange_plan all = {.sends_runs = true, .gets_runs = true, .one_to_one = true};
  struct shape last = {.ndim = NONE};
  for (int k = 0; k < r->n; k++) {
    const int *base = r->coordinate[k];
    if (member_at(m, g->step, base) != 0) continue;
    struct exchange_plan p = {.step = g->step, .n = members(m, g->step)};
    p.whole = shape_of_group(m, g->step, g->from, base);
    if (planning && same_shape(p.whole, last)) continue;
    last = p.whole;
    p.member = scratch_alloc(&m->members, (size_t)p.n * sizeof *p.member);
    p.owner = scratch_alloc(&m->owners, (size_t)p.n * sizeof *p.owner);
    plan_exchange(m, &p, g->from, g->to, &m->group);
    all.sends_runs = all.sends_runs && p.sends_runs;
    all.gets_runs = all.gets_runs && p.gets_runs;
    all.one_to_one = all.one_to_one && p.one_to_one;
    for (int i = 0; i < p.n; i++) {
      int sampled_rank = 0;
      for (int d = 0; d < r->mesh.ndim && r->n == r->all; d++)
        sampled_rank = sampled_rank * r->mesh.size[d] + base[d] + p.member[i].coordinate[d];
      for (int tier = 0; tier < r->tiers; tier++) {
        int at = tier * r->n + sampled_rank;
        t->sent[at] = greater(t->sent[at], p.member[i].sent[tier]);
        t->got[at] = greater(t->got[at], p.member[i].got[tier]);
      }
    }
  }
  return all;
}

/* Whether the parts along `dim` are contiguous on every rank. The first rank has the largest. */
static bool is_outermost(int ndim, const struct rank_parts *p, int dim)
{
  for (int d = 0; d < dim; d++)
    if (interval_size(&p->along[d][0]) > 1) return size_of_part(ndim, p, 0) == 0;
  return true;
}

struct traffic traffic_of(struct cost_model *m, const struct step_parts *g, bool planning)
{
  const struct rank_sample *r = m->ranks;
  const struct move_step *s = g->step;
  const int n = r->n, ndim = m->whole.ndim, size = members(m, s), tier = slowest(r, s);
  const bool moves = is_collective(s->kind), exchanges = s->kind == OP_exchange;
  const bool pairwise = collective_row[s->kind].pairwise;
  const bool by_pieces = exchanges || (pairwise && planning && r->tiers > 1);
  const bool guesses = by_pieces && planning && size > BIG_GROUP;
  const int dim = g->from->at[s->dim[0]], dim_to = g->to->at[s->dim[0]];
  const bool is_asked = !exchanges && !m->packs_nothing;
  bool packs = is_asked && dim_to >= 0 && !is_outermost(ndim, &g->has, dim_to);
  bool unpacks = is_asked && dim >= 0 && !is_outermost(ndim, &g->gets, dim);
  int64_t *at = scratch_alloc(&m->traffic, 2 * (size_t)(n * r->tiers + n) * sizeof *at);
  struct traffic t = {at,    at + n * r->tiers, at + 2 * n * r->tiers, at + 2 * n * r->tiers + n,
                      false, by_pieces};
  if (by_pieces && !guesses) {
    struct exchange_plan all = add_pieces(m, g, planning, &t);
    t.one_to_one = exchanges && all.one_to_one;
    if (exchanges) packs = !all.sends_runs, unpacks = !all.gets_runs;
  } else if (exchanges) {
    packs = unpacks = true;
  }
  for (int k = 0; k < n; k++) {
    int64_t has = size_of_part(ndim, &g->has, k), gets = size_of_part(ndim, &g->gets, k), kept = 0;
    if (!moves) { /* slice, to_partial */
      t.copied[k] = gets;
      continue;
    }
    if (pairwise) kept = part_overlap(ndim, &g->has, k, &g->gets, k);
    if (guesses) t.sent[tier * n + k] = t.got[tier * n + k] = gets - kept;
    const int member = member_at(m, s, r->coordinate[k]);
    if (exchanges && is_idle_member(m, s, member)) kept = gets;
    struct share of = {.n = size, .member = member, .has = has, .gets = gets, .kept = kept};
    t.received[k] = elements_received(s->kind, &of);
    if (!by_pieces) {
      t.sent[tier * n + k] = elements_sent(s->kind, &of);
      t.got[tier * n + k] = t.received[k];
    }
    t.copied[k] = gathers_shards(s->kind) ? has : kept;
    if (packs) t.copied[k] += exchanges ? sent_by(r, &t, k) + kept : has;
    if (unpacks) t.copied[k] += gets;
  }
  return t;
}

struct traffic traffic_of_step(struct cost_model *m, const struct path_step *s, bool planning)
{
  struct step_parts g = {&s->step, &s->from, &s->to, find_parts(m, &s->from),
                         find_parts(m, &s->to)};
  return traffic_of(m, &g, planning);
}

int64_t traffic_time(const struct cost_model *m, const struct move_step *s, const struct traffic *t)
{
  const struct rank_sample *r = m->ranks;
  const struct link link = link_of_step(m, s);
  int64_t busy = 0, copied = 0;
  for (int tier = 0; tier < r->tiers; tier++) {
    int64_t n = 0;
    for (int k = 0, at = tier * r->n; k < r->n; k++, at++)
      n = greater(n, greater(t->sent[at], t->got[at]));
    busy = greater(busy, transfer_time(m, n, t->by_pieces ? r->bandwidth[tier] : link.bandwidth));
  }
  for (int k = 0; k < r->n; k++) copied = greater(copied, t->copied[k]);
  return picoseconds(link.latency) + busy +
         picoseconds(memory_seconds((double)(2 * copied * m->bytes)));
}

/* With a fixed part there are several contexts; the ranks of one context differ only in the
   rest. */
void add_traffic(const struct move *move, struct shape whole, enum type type, int64_t *sent,
                 int64_t *received)
{
  struct cost_model *m = cost_model_of_graph();
  struct fixed_part u = fixed_part_of(move->from, move->to);
  struct path_step s = {step_of_move(move), compact_of(move->from, &u), compact_of(move->to, &u)};
  for (int first = 0, ranks = world_size(); first < ranks; first++) {
    int base[MAX_MESH] = {0};
    bool begins = true;
    coordinate_of(first, base);
    for (int i = 0; i < graph->mesh.ndim; i++) begins &= u.fixed >> i & 1 || base[i] == 0;
    if (!begins) continue;
    enter_context(m, whole, type, &u, base, true);
    struct traffic t = traffic_of_step(m, &s, false);
    for (int k = 0; k < m->ranks->n; k++) {
      int rank = 0;
      bool later = false; /* of a later micro-batch: a rank moves for one at a time */
      for (int i = 0; i < graph->mesh.ndim; i++) {
        later |= graph->mesh.microbatch_axis[i] && m->ranks->coordinate[k][i];
        rank = rank * ranks_along(i) + base[i] + m->ranks->coordinate[k][i];
      }
      if (later) continue;
      sent[rank] += sent_by(m->ranks, &t, k) * m->bytes;
      received[rank] += t.received[k] * m->bytes;
    }
  }
}
