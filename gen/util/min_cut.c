/* min_cut.c: the cheapest way to divide a set of nodes in two: a minimum cut, by Dinic's algorithm.

   Takes   nodes, and prices that are paid where one node is on the near side and another is not.
   Leaves  the nodes of the near side. Of equally cheap ways, the one with the fewest.

   NEAR and FAR are the source and the sink. */
#include "util/util.h"

enum { NEAR, FAR, OWN };

struct edge {
  int to, next; /* the next edge out of the same node, or NONE */
  int64_t left; /* remaining capacity */
};

struct cut {
  int nnode, node_room, nedge, edge_room;
  int *first;        /* by node: its first edge, or NONE */
  struct edge *edge; /* edge 2k and edge 2k + 1 are the two directions of one */
  int *level, *at;   /* by node: its distance from NEAR, and the edge to try next */
};

struct cut *new_cut(void)
{
  struct cut *c = alloc(sizeof *c);
  for (int i = 0; i < OWN; i++) add_node(c);
  return c;
}

int add_node(struct cut *c)
{
  GROW(c->first, c->nnode, c->node_room);
  c->first[c->nnode] = NONE;
  return c->nnode++ - OWN;
}

static void min_cut_add_edge(struct cut *c, int from, int to, int64_t room)
{
  GROW(c->edge, c->nedge, c->edge_room);
  c->edge[c->nedge] = (struct edge){.to = to, .next = c->first[from], .left = room};
  c->first[from] = c->nedge++;
}

static void add_pair(struct cut *c, int from, int to, int64_t price)
{
  min_cut_add_edge(c, from, to, price);
  min_cut_add_edge(c, to, from, 0);
}

void add_price(struct cut *c, int near, int far, int64_t price)
{
  if (near != far && price > 0) add_pair(c, near + OWN, far + OWN, price);
}

void add_own_price(struct cut *c, int node, int64_t price)
{
  if (price > 0) add_pair(c, node + OWN, FAR, price);
  if (price < 0) add_pair(c, NEAR, node + OWN, -price);
}

/* Whether there is an augmenting path to FAR; computes the levels. */
static bool find_levels(struct cut *c)
{
  struct list queue = {0};
  for (int i = 0; i < c->nnode; i++) c->level[i] = NONE;
  c->level[NEAR] = 0;
  add(&queue, NEAR);
  for (int k = 0; k < queue.n; k++)
    for (int e = c->first[queue.at[k]]; e != NONE; e = c->edge[e].next) {
      int to = c->edge[e].to;
      if (!c->edge[e].left || c->level[to] != NONE) continue;
      c->level[to] = c->level[queue.at[k]] + 1;
      add(&queue, to);
    }
  return c->level[FAR] != NONE;
}

/* Sends up to `most` from the node to FAR, along rising levels; returns how much arrives. */
static int64_t send(struct cut *c, int node, int64_t most)
{
  int64_t sent = 0;
  if (node == FAR) return most;
  for (; c->at[node] != NONE && sent < most; c->at[node] = c->edge[c->at[node]].next) {
    struct edge *e = &c->edge[c->at[node]];
    if (!e->left || c->level[e->to] != c->level[node] + 1) continue;
    int64_t rest = most - sent, through = send(c, e->to, rest < e->left ? rest : e->left);
    e->left -= through;
    c->edge[c->at[node] ^ 1].left += through;
    sent += through;
    if (sent == most) break;
  }
  return sent;
}

bool *near_side(struct cut *c)
{
  c->level = alloc((size_t)c->nnode * sizeof *c->level);
  c->at = alloc((size_t)c->nnode * sizeof *c->at);
  while (find_levels(c)) {
    for (int i = 0; i < c->nnode; i++) c->at[i] = c->first[i];
    send(c, NEAR, INT64_MAX);
  }
  bool *near = alloc((size_t)c->nnode);
  for (int i = OWN; i < c->nnode; i++) near[i - OWN] = c->level[i] != NONE;
  return near;
}
