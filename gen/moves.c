/* moves.c: the steps from one layout to another, and what they cost. */
#include "tpgen.h"

#include <string.h>

/* Whether both layouts cut dimension `dim` by the same mesh dimensions before `end`. */
static bool nests_alike(struct layout a, struct layout b, int dim, int end)
{
  for (int i = 0; i < end; i++) {
    bool in_a = a.on[i].kind == SHARD && a.on[i].dim == dim;
    bool in_b = b.on[i].kind == SHARD && b.on[i].dim == dim;
    if (in_a != in_b) return false;
  }
  return true;
}

static enum op_kind kind_of(struct placement from, struct placement to)
{
  if (from.kind == REPLICATE) return to.kind == SHARD ? OP_slice : OP_to_partial;
  if (to.kind == REPLICATE) return from.kind == SHARD ? OP_all_gather : OP_all_reduce;
  if (to.kind == PARTIAL) return OP_to_partial;
  return from.kind == PARTIAL ? OP_reduce_scatter : OP_all_to_all;
}

static void step(struct move *move, int *n, struct layout *now, int mesh_dim, struct placement to)
{
  if (same_placement(now->on[mesh_dim], to)) return;
  struct move *m = &move[(*n)++];
  *m = (struct move){
      .kind = kind_of(now->on[mesh_dim], to), .n = 1, .dim = {mesh_dim}, .from = *now};
  now->on[mesh_dim] = to;
  m->to = *now;
}

int greedy_moves(struct layout from, struct layout to, struct move *move)
{
  int n = 0, shards = 0, ndim = graph->mesh.ndim;
  for (int i = 0; i < ndim; i++) shards += from.on[i].kind == SHARD;
  for (int i = ndim - 1; i >= 0 && shards > 0; i--) {
    bool nested = to.on[i].kind == SHARD && !nests_alike(from, to, to.on[i].dim, i);
    step(move, &n, &from, i, nested ? (struct placement){0} : to.on[i]);
  }
  for (int i = 0; i < ndim; i++) step(move, &n, &from, i, to.on[i]);
  return n;
}

const struct moves *plan_moves(struct shape whole, enum type type, struct layout from,
                               struct layout to)
{
  struct moves *moves = alloc(sizeof *moves);
  (void)whole, (void)type;
  moves->n = greedy_moves(from, to, moves->move);
  return moves;
}

double link_bandwidth(int mesh_dim)
{
  return graph->mesh.bandwidth[mesh_dim] > 0 ? graph->mesh.bandwidth[mesh_dim] : 100e9;
}

double link_latency(int mesh_dim)
{
  return graph->mesh.latency[mesh_dim] > 0 ? graph->mesh.latency[mesh_dim] : 10e-6;
}
