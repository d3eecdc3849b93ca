/* test_links.c: the links of groups, by where their ranks run. */
#include "unit.h"

#include <math.h>

/* Nodes of 8 with 8 cards: 100 GB/s within a node, 10 GB/s for a card. */
static void new_cluster(int nodes, int cards, int ndim, const int *size)
{
  new_graph(ndim, size);
  graph->mesh.cluster = (struct cluster){.name = "ours",
                                         .nodes = nodes,
                                         .devices = 8,
                                         .cards = cards,
                                         .intra = {100e9, 2e-6},
                                         .inter = {10e9, 5e-6}};
}

static double ratio(double a, double b)
{
  return round(a / b * 1000) / 1000;
}

static double gather(unsigned dims)
{
  return collective_link(OP_all_gather, dims).bandwidth;
}

static void groups_over_nodes(const void *with)
{
  (void)with;
  /* a: over nodes, one rank in each; b: a node. */
  new_cluster(4, 8, 2, (int[]){4, 8});
  const double card = gather(1), node = gather(2);
  must(card > 8e9 && card < 10e9, "a card: %g", card);
  must(node > 70e9 && node < 100e9, "a node: %g", node);
  /* All ranks: eight cards of a node, which is as much as a node's own links, or less. */
  must(gather(3) == fmin(node, 8 * card), "all ranks: %g, cards %g", gather(3), 8 * card);
  /* Two ranks of each node leave it by two cards. */
  new_cluster(4, 8, 2, (int[]){4, 2 * 4});
  graph->mesh.ndim = 3;
  graph->mesh.size[1] = 2, graph->mesh.size[2] = 4, graph->mesh.name[2] = "c";
  must(ratio(gather(3), card) == 2, "two of a node: %g", gather(3));
  must(gather(1) == card, "one of a node: %g", gather(1));
  /* Half as many cards as devices. */
  new_cluster(4, 4, 2, (int[]){4, 8});
  must(ratio(gather(1), card) == 0.5, "half a card: %g", gather(1));
  must(gather(2) == node, "cards count within a node");
  /* Four cards for each device, as nodes of 32 cards have. */
  new_cluster(4, 32, 2, (int[]){4, 8});
  must(ratio(gather(1), card) == 4, "four cards: %g", gather(1));
}

/* Groups that do not divide the nodes: the one with the fewest ranks in a node counts. */
static void uneven_groups(const void *with)
{
  (void)with;
  new_cluster(2, 8, 2, (int[]){2, 8});
  const double card = gather(1);
  new_cluster(3, 8, 2, (int[]){4, 6});
  must(ratio(gather(2), card) <= 2, "ranks 6 to 11, two of them in the first node: %g", gather(2));
}

static void pairs_and_sums(const void *with)
{
  (void)with;
  new_cluster(4, 8, 2, (int[]){4, 8});
  /* Of 32 ranks 24 are in other nodes, and each sends to them by its own card. */
  const double card = gather(1);
  must(ratio(collective_link(OP_all_to_all, 3).bandwidth, card) == ratio(31, 24), "all_to_all: %g",
       collective_link(OP_all_to_all, 3).bandwidth);
  must(collective_link(OP_all_to_all, 2).bandwidth == gather(2), "within a node");
  /* Latencies grow with the ranks and with the nodes; a sum's tree less than a ring. */
  const double four = collective_link(OP_all_gather, 1).latency;
  new_cluster(64, 8, 2, (int[]){64, 8});
  must(collective_link(OP_all_gather, 1).latency > 4 * four, "a ring of 64 nodes");
  must(collective_link(OP_all_reduce, 1).latency < collective_link(OP_all_gather, 1).latency,
       "a tree of 64 nodes");
  /* Switches that add. */
  const double plain = collective_link(OP_all_reduce, 2).bandwidth;
  graph->mesh.cluster.adds_in_switch = true;
  must(collective_link(OP_all_reduce, 2).bandwidth > plain, "they do not add");
}

/* A plan's own links override those of its cluster. */
static void given_links(const void *with)
{
  (void)with;
  new_cluster(4, 8, 2, (int[]){4, 8});
  const double card = gather(1);
  graph->mesh.bandwidth[1] = 7e9;
  must(gather(2) == 7e9 && gather(3) == 7e9 && gather(1) == card, "b is given: %g, %g, %g",
       gather(2), gather(3), gather(1));
}

/* What libraries take of a device's memory belongs to the device; on a CPU they take nothing. */
static void reserve(const void *with)
{
  static const char *const names[] = {"A100", "A100-40GB", "H100", "H200", "B200"};
  (void)with;
  new_cluster(1, 8, 1, (int[]){8});
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    graph->mesh.device = *device_named(names[i]);
    set_target("cuda");
    must(reserve_of_device() == INT64_C(1) << 30, "%s", names[i]);
    set_target("cpu");
    must(!reserve_of_device(), "a CPU");
  }
}

static void test_links(void **state)
{
  (void)state;
  passes(groups_over_nodes, NULL);
  passes(uneven_groups, NULL);
  passes(pairs_and_sums, NULL);
  passes(given_links, NULL);
  passes(reserve, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_links)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
