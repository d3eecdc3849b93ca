/* links.c: the links of the mesh's groups: how fast their collectives run.

   A plan gives the links of a dimension of the mesh (device_mesh{{"dp", 2, bandwidth =, latency
   =}}), or a cluster, or a device, whose usual nodes count then. Without any of them each rank has
   100 GB/s and 10 us along each dimension.

   In a cluster the ranks fill the nodes one after the other, and a group's links follow from where
   its ranks are. A group with r ranks in each node leaves the node by its share of the cards, r /
   devices * cards. A ring over nodes is as fast as the slower of its links within a node and of
   these cards together; pairwise traffic (all_to_all, exchange, sends) takes the card of its own
   rank. A ring has a hop for each rank: its latency grows with the ranks. An all_reduce is a tree
   over nodes where that is quicker. No link reaches its rate: of NVLink three quarters, of a card
   nine tenths, by nccl-tests' tables (bus bandwidths of 230 to 240 of 300 GB/s on an A100, of 345
   to 360 of 450 GB/s on an H100 at 8 ranks, of 45 of 50 GB/s for a card of 400 Gb/s). Switches that
   add (NVLink SHARP, from the H100 on) make an all_reduce within a node 4/3 as fast.

   Where tpgen --calibrate has measured GPUs, a group has the link that two sizes of a collective
   give, in the same group or in the nearest one: then as much slower as it would be by the above.
 */
#include "ir/ir.h"

#include <math.h>

static const double INSIDE_REACH = 0.77, CARD_REACH = 0.9, SWITCH_GAIN = 1.33;
/* The start of a collective, and of a send to one more peer. */
static const double COLLECTIVE_SECONDS = 12e-6, PEER_SECONDS = 1e-6;
static const double FLAT_BANDWIDTH = 100e9, FLAT_LATENCY = 10e-6;

bool has_cluster(void)
{
  return graph->mesh.cluster.nodes > 0;
}

static struct group_spread spread_of_members(const int *rank, int n)
{
  struct group_spread s = {.members = n, .in_node = n};
  int node = rank[0] / graph->mesh.cluster.devices, here = 0;
  for (int k = 0; k < n; k++) {
    int other = rank[k] / graph->mesh.cluster.devices;
    if (other != node) {
      if (here < s.in_node) s.in_node = here;
      s.nodes++;
      node = other;
      here = 0;
    }
    here++;
  }
  if (here < s.in_node) s.in_node = here;
  s.nodes++;
  return s;
}

/* Of groups that are not spread over nodes alike, the one that leaves nodes by the fewest cards:
   goes through all of them. The ranks of a group are in order, so those of a node follow one
   another. */
static struct group_spread find_least_spread(unsigned dims, int members)
{
  struct group_spread s = {.members = members, .nodes = 1, .in_node = members};
  int *rank = alloc((size_t)members * sizeof *rank);
  for (int first = 0; first < world_size(); first++) {
    int at[MAX_MESH], n = 0;
    bool leads = true;
    coordinate_of(first, at);
    for (int d = 0; d < graph->mesh.ndim; d++)
      leads &= !(dims >> d & 1) || graph->mesh.microbatch_axis[d] || !at[d];
    if (!leads) continue;
    for (int k = 0; k < members; k++) {
      int rest = k;
      for (int d = graph->mesh.ndim; d-- > 0;) {
        if (!(dims >> d & 1) || graph->mesh.microbatch_axis[d]) continue;
        at[d] = rest % ranks_along(d);
        rest /= ranks_along(d);
      }
      rank[n++] = rank_at_coordinate(at);
    }
    struct group_spread other = spread_of_members(rank, n);
    if (other.nodes > 1 && (s.nodes == 1 || other.in_node < s.in_node)) s = other;
  }
  return s;
}

/* Of the groups along these dimensions, the one that leaves nodes by the fewest cards. */
struct group_spread spread_of_dimensions(unsigned dims)
{
  static struct memo known;
  static struct query q;
  const int ndim = graph->mesh.ndim, devices = graph->mesh.cluster.devices;
  struct group_spread s = {1, 1, 1};
  bool regular = true; /* all groups are spread over nodes alike */
  int stride = 1;
  for (int d = ndim; d-- > 0; stride *= ranks_along(d)) {
    const int size = ranks_along(d), far = stride * size;
    if (!(dims >> d & 1) || size == 1) continue;
    s.members *= size;
    bool inside = devices % far == 0, outside = stride % devices == 0;
    bool across = devices % stride == 0 && far % devices == 0;
    regular &= inside || outside || across;
    s.in_node *= inside ? size : outside ? 1 : devices / stride;
  }
  s.nodes = s.members / (s.in_node ? s.in_node : 1);
  if (regular) return s;
  bool is_new;
  begin_query(&q);
  ask_number(&q, dims);
  ask_number(&q, devices);
  for (int d = 0; d < ndim; d++) ask_number(&q, ranks_along(d));
  struct group_spread *answer = answer_to(&known, &q, sizeof *answer, &is_new);
  if (is_new) *answer = find_least_spread(dims, s.members);
  return *answer;
}

bool gives_links(unsigned dims)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (dims >> d & 1 && (graph->mesh.bandwidth[d] > 0 || graph->mesh.latency[d] > 0)) return true;
  return false;
}

/* By the plan's own links: the slowest. */
static struct link given_link(unsigned dims)
{
  struct link link = {0};
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (!(dims >> d & 1)) continue;
    double bandwidth = graph->mesh.bandwidth[d] > 0 ? graph->mesh.bandwidth[d] : FLAT_BANDWIDTH;
    double latency = graph->mesh.latency[d] > 0 ? graph->mesh.latency[d] : FLAT_LATENCY;
    link.latency = fmax(link.latency, latency);
    link.bandwidth = link.bandwidth > 0 ? fmin(link.bandwidth, bandwidth) : bandwidth;
  }
  return link;
}

/* The rank's share of its node's cards: a part of one, or several. */
static double card_of_rank(void)
{
  const struct cluster *c = &graph->mesh.cluster;
  return c->inter.bandwidth * c->cards / c->devices * CARD_REACH;
}

struct link modeled_link(enum op_kind kind, const struct group_spread *s)
{
  const struct cluster *c = &graph->mesh.cluster;
  struct link link = {c->intra.bandwidth * INSIDE_REACH, COLLECTIVE_SECONDS};
  bool sums_all = kind == OP_all_reduce;
  int within = s->in_node - 1, rounds = sums_all ? 2 : 1;
  double across = (double)(s->nodes - 1);
  if (sums_all) across = fmin(across, 2 * ceil(log2((double)s->nodes)));
  if (collective_row[kind].pairwise || kind == OP_exchange) {
    link.latency += (s->members - 1) * PEER_SECONDS + (s->nodes > 1 ? c->inter : c->intra).latency;
    if (s->nodes > 1) { /* what stays in the node does not need the card */
      double leaves = (double)(s->members - s->in_node) / (s->members - 1);
      link.bandwidth = fmin(link.bandwidth, card_of_rank() / leaves);
    }
    return link;
  }
  if (sums_all && s->in_node > 2 && c->adds_in_switch) link.bandwidth *= SWITCH_GAIN;
  if (s->nodes > 1) {
    double cards = card_of_rank() * s->in_node;
    link.bandwidth = s->in_node > 1 ? fmin(link.bandwidth, cards) : cards;
  }
  /* The hops within nodes: a ring passes each member of each node. */
  double hops = sums_all ? within : (double)within * s->nodes;
  link.latency +=
      rounds * hops * c->intra.latency + (sums_all ? 1 : rounds) * across * c->inter.latency;
  return link;
}

/* Of GPUs that were measured. */
static bool has_measured_links(void)
{
  return is_measured() && target->streams;
}

/* The link by two sizes that were measured. False: no such group was. */
static bool measured_link(enum op_kind kind, const struct group_spread *s, struct link *link)
{
  static const double SMALL = 4096, LARGE = 256 << 20;
  const enum op_kind like = kind == OP_exchange || kind == OP_exchange_rows ? OP_all_to_all : kind;
  struct group_spread near;
  if (!has_measured_links() || !measured_group(like, s, &near)) return false;
  const double n = near.members, small = measured_collective(like, &near, SMALL, false);
  const double rest = measured_collective(like, &near, LARGE, false) - small;
  const double sent = collective_row[like].passes * (n - 1) / n * (LARGE - SMALL);
  const struct link by_model = modeled_link(kind, s), of_near = modeled_link(kind, &near);
  link->latency = small * by_model.latency / of_near.latency;
  link->bandwidth = sent / fmax(rest, 1e-9) * by_model.bandwidth / of_near.bandwidth;
  return true;
}

struct link collective_link(enum op_kind kind, unsigned dims)
{
  if (!has_cluster() || gives_links(dims)) return given_link(dims);
  const struct group_spread s = spread_of_dimensions(dims);
  struct link link;
  return measured_link(kind, &s, &link) ? link : modeled_link(kind, &s);
}

struct link link_of_dimension(int mesh_dim)
{
  const struct cluster *c = &graph->mesh.cluster;
  unsigned dims = 1u << mesh_dim;
  if (!has_cluster() || gives_links(dims)) return given_link(dims);
  struct group_spread s = spread_of_dimensions(dims);
  struct link link = {c->intra.bandwidth * INSIDE_REACH, COLLECTIVE_SECONDS + c->intra.latency};
  if (s.nodes > 1) {
    link.bandwidth = fmin(link.bandwidth, card_of_rank());
    link.latency = COLLECTIVE_SECONDS + c->inter.latency;
  }
  if (has_measured_links()) link.latency = fmin(link.latency, measured_shortest());
  return link;
}

double fastest_ring(void)
{
  const double by_model = graph->mesh.cluster.intra.bandwidth * INSIDE_REACH * SWITCH_GAIN;
  return has_measured_links() ? fmax(by_model, measured_fastest()) : by_model;
}

struct link link_of(int group)
{
  return collective_link(OP_all_gather, graph->group[group].dims);
}

void set_measured_links(struct cluster *c, const struct measured *m)
{
  c->intra.bandwidth = measured_bus(m, false) / INSIDE_REACH;
  c->inter.bandwidth = measured_bus(m, true) / CARD_REACH;
}
