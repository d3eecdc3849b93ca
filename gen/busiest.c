/* busiest.c: what ranks send and receive in collectives, counted for each rank, and the most of it.

   Takes   collectives of the finished graph.
   Leaves  them as they are, and remembers of each what it moves: as one pair of numbers where that
           is the same on all ranks, else by rank. */
#include "tpgen.h"

#include <string.h>

/* What the ranks move in one operation. */
struct moved {
  const struct graph *of;
  bool alike;               /* all ranks as much as rank 0 */
  int64_t *sent, *received; /* by rank; of rank 0 alone where all are alike */
};

/* Of a bucket: one run of elements to its ranks, so their parts of it are not those of each
   gradient. No part is larger on a later rank: where the last has as much, all have. */
static void add_bucket(const struct op *op, int64_t *sent, int64_t *received)
{
  int n = group_size(op->group), world = world_size();
  int64_t each = type_bytes(moved_type(op)), all = collective_bytes(op, 0) / each;
  bool even = all == collective_bytes(op, world - 1) / each;
  for (int r = 0; r < world; r++) {
    if (!even) all = collective_bytes(op, r) / each;
    int64_t part = chunk_size(all, n, place_in_group(op->group, r));
    int64_t moved = (all - part + part * (n - 1)) * each;
    if (op->kind != OP_all_reduce) moved = (n - 1) * bucket_chunk(op, op->nbody) * each;
    sent[r] += moved;
    received[r] += moved;
  }
}

static void add_bytes(const struct op *op, int64_t *sent, int64_t *received)
{
  if (op->kind == OP_exchange) {
    const struct exchange *x = &graph->exchange[op->exchange];
    add_traffic(&x->move, x->whole, x->type, sent, received);
    return;
  }
  if (op->nbody) {
    add_bucket(op, sent, received);
    return;
  }
  const struct group *g = &graph->group[op->group];
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  struct move m = {.kind = op->kind, .n = g->n, .from = in->layout, .to = out->layout};
  memcpy(m.dim, g->dim, sizeof m.dim);
  add_traffic(&m, in->shape, in->type, sent, received);
  for (int r = 0; r < world_size() && op->pieces; r++) {
    sent[r] /= op->pieces;
    received[r] /= op->pieces;
  }
}

static int64_t *by_rank(void)
{
  return alloc((size_t)world_size() * sizeof(int64_t));
}

static void count_moved(struct moved *m, const struct op *op)
{
  static int64_t *sent, *received;
  static int room;
  if (room < world_size()) {
    room = world_size();
    sent = by_rank(), received = by_rank();
  }
  size_t bytes = (size_t)world_size() * sizeof *sent;
  memset(sent, 0, bytes), memset(received, 0, bytes);
  add_bytes(op, sent, received);
  *m = (struct moved){.of = graph, .alike = true};
  for (int r = 1; r < world_size() && m->alike; r++)
    m->alike = sent[r] == sent[0] && received[r] == received[0];
  size_t kept = m->alike ? sizeof *sent : bytes;
  m->sent = memcpy(alloc(kept), sent, kept);
  m->received = memcpy(alloc(kept), received, kept);
}

/* Counted once for each operation of the graph. */
static const struct moved *moved_by(int id)
{
  static struct moved **known;
  static int room;
  while (room < graph->nop) known = grow(known, room, &room, sizeof *known);
  if (!known[id]) known[id] = alloc(sizeof **known);
  if (known[id]->of != graph) count_moved(known[id], &graph->op[id]);
  return known[id];
}

struct busiest busiest_in(int n, const int *op, const int *times)
{
  struct busiest most = {0}, all = {0};
  int64_t *sent = NULL, *received = NULL;
  for (int i = 0; i < n; i++) {
    if (!is_collective(graph->op[op[i]].kind)) continue;
    const struct moved *m = moved_by(op[i]);
    int64_t each = times ? times[i] : 1;
    if (m->alike) {
      all.sent = plus_times(all.sent, each, m->sent[0]);
      all.received = plus_times(all.received, each, m->received[0]);
      continue;
    }
    if (!sent) sent = by_rank(), received = by_rank();
    for (int r = 0; r < world_size(); r++) {
      sent[r] = plus_times(sent[r], each, m->sent[r]);
      received[r] = plus_times(received[r], each, m->received[r]);
    }
  }
  for (int r = 0; r < world_size() && sent; r++) {
    if (sent[r] > most.sent) most.sent = sent[r];
    if (received[r] > most.received) most.received = received[r];
  }
  return (struct busiest){plus_times(all.sent, 1, most.sent),
                          plus_times(all.received, 1, most.received)};
}

struct busiest busiest_of(const struct op *op)
{
  int id = (int)(op - graph->op);
  return busiest_in(1, &id, NULL);
}
