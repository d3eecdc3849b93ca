/* volume.c: the bytes that ranks send and receive in collectives: for each rank, and the maximum.

   Takes   collectives of the finished graph.
   Leaves  them unchanged. The volume of each is computed once: one pair of numbers if it is the
   same on all ranks, else a list by rank. */
#include "sharding/sharding.h"

#include <string.h>

/* The volume that the ranks move in one operation. */
struct rank_volumes {
  bool equal;               /* all ranks move as much as rank 0 */
  int64_t *sent, *received; /* by rank; only of rank 0 if all are equal */
};

/* Computed once for each operation of the graph. */
static const struct rank_volumes *volumes_of(int id)
{
  struct cost_model *m = cost_model_of_graph();
  const struct op *op = &graph->op[id];
  const int ranks = world_size();
  const size_t bytes = (size_t)ranks * sizeof(int64_t);
  bool is_new;
  begin_query(&m->volume);
  ask_number(&m->volume, id);
  struct rank_volumes *v = answer_to(&m->volumes, &m->volume, sizeof *v, &is_new);
  if (!is_new) return v;
  int64_t *sent = scratch_alloc(&m->by_rank, 2 * bytes), *received = sent + ranks;
  if (op->kind == OP_exchange) {
    const struct exchange *x = exchange_of(op);
    add_traffic(&x->move, x->whole, x->type, sent, received);
  } else if (op->nbody) {
    /* The ranks of a bucket share one run of elements, so their parts are not those of each
       gradient. No later rank has a larger part: if the last has as much as the first, all have. */
    const int n = group_size(op->group);
    const int64_t each = type_bytes(moved_type(op));
    int64_t all = collective_bytes(op, 0) / each;
    const bool even = all == collective_bytes(op, ranks - 1) / each;
    for (int r = 0; r < ranks; r++) {
      if (!even) all = collective_bytes(op, r) / each;
      int64_t moved = has_chunks(op) ? (n - 1) * bucket_chunk(op, op->nbody)
                                     : received_in_all_reduce(all, n, place_in_group(op->group, r));
      sent[r] = received[r] = moved * each;
    }
  } else {
    const struct group *g = &graph->group[op->group];
    const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
    struct move move = {.kind = op->kind, .n = g->n, .from = in->layout, .to = out->layout};
    memcpy(move.dim, g->dim, sizeof move.dim);
    add_traffic(&move, in->shape, in->type, sent, received);
    int64_t parts = op->pieces ? op->pieces : 1;
    if (in->counts != NONE) parts *= in->shape.size[0]; /* each place has a row of one expert */
    for (int r = 0; r < ranks && parts > 1; r++) {
      sent[r] /= parts;
      received[r] /= parts;
    }
  }
  v->equal = true;
  for (int r = 1; r < ranks && v->equal; r++)
    v->equal = sent[r] == sent[0] && received[r] == received[0];
  const size_t kept = v->equal ? sizeof *sent : bytes;
  v->sent = memcpy(alloc(kept), sent, kept);
  v->received = memcpy(alloc(kept), received, kept);
  return v;
}

struct max_rank_volume max_volume_of_ops(int n, const int *op, const int *times)
{
  struct cost_model *m = cost_model_of_graph();
  struct max_rank_volume most = {0}, all = {0};
  const int ranks = world_size();
  const size_t bytes = (size_t)ranks * sizeof(int64_t);
  int64_t *sent = NULL, *received = NULL; /* by rank, in operations whose ranks differ */
  for (int i = 0; i < n; i++) {
    if (!is_collective(graph->op[op[i]].kind)) continue;
    const struct rank_volumes *v = volumes_of(op[i]);
    int64_t each = times ? times[i] : 1;
    if (v->equal) {
      all.sent = plus_times(all.sent, each, v->sent[0]);
      all.received = plus_times(all.received, each, v->received[0]);
      continue;
    }
    if (!sent) sent = scratch_alloc(&m->sums, 2 * bytes), received = sent + ranks;
    for (int r = 0; r < ranks; r++) {
      sent[r] = plus_times(sent[r], each, v->sent[r]);
      received[r] = plus_times(received[r], each, v->received[r]);
    }
  }
  for (int r = 0; r < ranks && sent; r++) {
    if (sent[r] > most.sent) most.sent = sent[r];
    if (received[r] > most.received) most.received = received[r];
  }
  return (struct max_rank_volume){plus_times(all.sent, 1, most.sent),
                                  plus_times(all.received, 1, most.received)};
}

struct max_rank_volume max_volume_of(const struct op *op)
{
  int id = (int)(op - graph->op);
  return max_volume_of_ops(1, &id, NULL);
}
