/* volume.c: what ranks send and receive in collectives: for each rank, and the maximum.

   Takes   collectives of the finished graph.
   Leaves  them unchanged. The volume of each is cached: one pair of numbers if it is the same on
           all ranks, else a list by rank. */
#include "sharding/sharding.h"

#include <string.h>

int unit_of(const struct op *op)
{
  return op->of_unit ? op->unit : NONE;
}

enum type moved_type(const struct op *op)
{
  if (op->packed) return graph->value[op->buffer].type;
  return graph->value[op->nbody ? graph->op[op->body[0]].out : op->in[0]].type;
}

/* Where each member begins: computed once for a bucket, whose members are asked in turn, in one
   size of micro-batches. */
static const int64_t *chunk_begins(const struct op *op)
{
  static const struct graph *of;
  static const int *body;
  static int64_t *begin;
  static int room, microbatch;
  bool other = is_other_graph(&of);
  if (!other && body == op->body && microbatch == graph->mesh.now) return begin;
  if (other) room = 0;
  while (room <= op->nbody) begin = grow(begin, 0, &room, sizeof *begin);
  body = op->body;
  microbatch = graph->mesh.now;
  begin[0] = 0;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *member = &graph->op[op->body[k]];
    int part = sharded_value(member);
    begin[k + 1] = begin[k] + elements(local_shape(part, 0)); /* no rank has more than the first */
  }
  return begin;
}

int64_t bucket_chunk(const struct op *op, int k)
{
  return chunk_begins(op)[k];
}

void *counts_room(int what, int n, size_t size)
{
  static struct {
    void *at;
    size_t size;
  } room[ROOMS];
  static const struct graph *of;
  if (is_other_graph(&of)) memset(room, 0, sizeof room);
  size_t needed = (size_t)n * size;
  if (room[what].size < needed) {
    room[what].at = alloc(needed);
    room[what].size = needed;
  }
  return room[what].at;
}

const int *members_of(int group, int rank)
{
  int *member = counts_room(MEMBERS, group_size(group), sizeof *member);
  group_members(group, rank, member);
  return member;
}

int64_t elements_of_rank(int value, int rank)
{
  return elements(local_shape(value, rank));
}

/* The elements of a value's part by rank, or its size along a dimension, in the micro-batches of
   now; cached. */
struct known_sizes {
  int value, dim, now;
  int64_t *size;
};

static const int64_t *sizes_by_rank(int value, int dim)
{
  static struct known_sizes *known;
  static int n, room;
  static const struct graph *of;
  if (is_other_graph(&of)) n = room = 0;
  for (int i = 0; i < n; i++)
    if (known[i].value == value && known[i].dim == dim && known[i].now == graph->mesh.now)
      return known[i].size;
  int64_t *size = alloc((size_t)world_size() * sizeof *size);
  for (int r = 0; r < world_size(); r++) {
    struct shape here = local_shape(value, r);
    size[r] = dim == NONE ? elements(here) : here.size[dim];
  }
  GROW(known, n, room);
  known[n++] = (struct known_sizes){value, dim, graph->mesh.now, size};
  return size;
}

/* What `rank` sends to each member in an all-to-all, and receives: a part, cut along dimension
   dim_to as the other rank will hold it, or holds it. */
static void count_all_to_all(const struct op *op, int rank, const int *member, int n, int64_t *give,
                             int64_t *get)
{
  const int64_t *part = sizes_by_rank(op->in[0], NONE),
                *size = sizes_by_rank(op->in[0], op->dim_to);
  const int64_t *cut = sizes_by_rank(op->out, op->dim_to);
  for (int r = 0; r < n; r++) {
    give[r] = size[rank] ? part[rank] / size[rank] * cut[member[r]] : 0;
    get[r] = size[member[r]] ? part[member[r]] / size[member[r]] * cut[rank] : 0;
  }
}

/* The offset of a box in an array of this shape, in elements. */
static int64_t offset_of(struct part box, struct shape of)
{
  int64_t at = 0;
  for (int d = 0; d < of.ndim; d++) at = at * of.size[d] + box.first[d];
  return at;
}

const struct traits *traits_of(const struct exchange *x)
{
  static struct traits *known;
  static int room;
  static const struct graph *of;
  if (is_other_graph(&of)) room = 0;
  while (room < graph->nexchange) known = grow(known, room, &room, sizeof *known);
  struct traits *t = &known[x - graph->exchange];
  if (t->of != x)
    *t = (struct traits){x, gives_runs(&x->move, x->whole), gets_runs(&x->move, x->whole),
                         is_permutation(&x->move, x->whole)};
  return t;
}

void count_pieces(const struct exchange *x, int rank, bool gives, int64_t *count, int64_t *starts)
{
  int n = group_size(x->group), coordinate[MAX_MESH];
  struct piece *list = counts_room(PIECES, n, sizeof *list);
  int npiece = (gives ? pieces_given : pieces_got)(&x->move, x->whole, rank, list);
  bool in_place = gives ? traits_of(x)->gives_runs : traits_of(x)->gets_runs;
  coordinate_of(rank, coordinate);
  struct layout layout = gives ? x->move.from : x->move.to;
  struct shape here = local_part(&graph->mesh, x->whole, layout, coordinate).shape;
  int64_t at = 0;
  memset(count, 0, (size_t)n * sizeof *count);
  memset(starts, 0, (size_t)n * sizeof *starts);
  for (int i = 0; i < npiece; i++) {
    int to = list[i].member;
    count[to] = elements(list[i].part.shape);
    starts[to] = in_place ? offset_of(list[i].part, here) : at;
    at += count[to];
  }
}

const struct exchange *exchange_of(const struct op *op)
{
  return &graph->exchange[op->exchange];
}

void collective_counts(const struct op *op, int rank, int64_t *give, int64_t *get)
{
  if (op->kind == OP_exchange) {
    int64_t *starts = counts_room(STARTS, group_size(op->group), sizeof *starts);
    count_pieces(exchange_of(op), rank, true, give, starts);
    count_pieces(exchange_of(op), rank, false, get, starts);
    return;
  }
  const int *member = members_of(op->group, rank);
  int n = group_size(op->group);
  int64_t sum = 0;
  if (collective_row[op->kind].pairwise) {
    count_all_to_all(op, rank, member, n, give, get);
    return;
  }
  bool in_chunks = has_chunks(op);
  if (in_chunks) sum = bucket_chunk(op, op->nbody);
  for (int k = 0; k < op->nbody && !in_chunks; k++)
    sum += elements_of_rank(graph->op[op->body[k]].out, rank);
  for (int r = 0; r < n; r++) {
    if (moves_shards(op->kind))
      give[r] = in_chunks ? sum : elements_of_rank(sharded_value(op), member[r]);
    else
      give[r] = op->nbody ? sum : elements_of_rank(op->out, rank);
    if (op->pieces) give[r] /= op->pieces;
    get[r] = give[r];
  }
}

int64_t collective_bytes(const struct op *op, int rank)
{
  int64_t sum = 0, each = type_bytes(moved_type(op));
  if (has_chunks(op))
    return (gathers_shards(op->kind) ? 1 : group_size(op->group)) * bucket_chunk(op, op->nbody) *
           each;
  if (op->nbody) {
    for (int k = 0; k < op->nbody; k++) sum += elements_of_rank(graph->op[op->body[k]].out, rank);
    return sum * each;
  }
  int64_t bytes = elements_of_rank(op->in[0], rank) * type_bytes(graph->value[op->in[0]].type);
  return op->pieces ? bytes / op->pieces : bytes;
}

/* Parts never grow from one member to the next, so the first and the last suffice. */
bool equal_parts(const struct op *op, int rank)
{
  if (op->kind == OP_exchange) return traits_of(exchange_of(op))->permutes;
  if (has_chunks(op)) return true;
  int ranks = group_size(op->group);
  const int *member = members_of(op->group, rank);
  int first = member[0], last = member[ranks - 1];
  return elements_of_rank(op->in[0], first) == elements_of_rank(op->in[0], last) &&
         elements_of_rank(op->out, first) == elements_of_rank(op->out, last);
}

const struct op *bucket_member(const struct op *op, int k)
{
  return &graph->op[op->body[k]];
}

bool has_chunks(const struct op *op)
{
  return op->packed && moves_shards(op->kind);
}

bool lies_in_buffer(const struct op *op)
{
  for (int k = 0; k < op->nbody; k++) {
    int in = bucket_member(op, k)->in[0], out = bucket_member(op, k)->out;
    if (has_chunks(op) || !same_place(in, out)) return false;
    if (storage_of(out) != op->buffer) return false;
  }
  return true;
}

/* The parameter whose bytes, or whose gradient's bytes, the k-th member's part uses; or NONE. */
static int parameter_at(const struct op *op, int k)
{
  int shard = sharded_value(bucket_member(op, k));
  const struct value *v = &graph->value[shard];
  if (gathers_shards(op->kind)) return v->role == PARAMETER ? shard : NONE;
  return v->role == GRADIENT ? v->of : NONE;
}

bool lies_as_chunk(const struct op *op)
{
  if (!has_chunks(op)) return false;
  for (int k = 0; k < op->nbody; k++) {
    int part = sharded_value(bucket_member(op, k));
    int here = parameter_at(op, k);
    if (here == NONE || graph->value[part].type != graph->value[op->buffer].type) return false;
    if (elements_of_rank(part, world_size() - 1) != elements_of_rank(part, 0))
      return false; /* no part grows */
    if (k && !is_next_parameter(parameter_at(op, k - 1), here)) return false;
  }
  return true;
}

bool is_copied_in(const struct op *op)
{
  return op->packed && !lies_in_buffer(op) && !(gathers_shards(op->kind) && lies_as_chunk(op));
}

bool is_copied_out(const struct op *op)
{
  return op->packed && !lies_in_buffer(op) && !(scatters_sum(op->kind) && lies_as_chunk(op));
}

/* Whether one call moves each bucket_member to its place: on a CPU, where copies cost as much as
   the network. Small members are better in one message. */
bool goes_by_segments(const struct op *op)
{
  const int64_t large = 1 << 18;
  if (!target->moves_segments || !lies_as_chunk(op) || op->pieces) return false;
  for (int k = 0; k < op->nbody; k++) {
    int whole = whole_value(bucket_member(op, k));
    if (graph->value[whole].type != graph->value[op->buffer].type) return false;
  }
  return elements_of_rank(op->buffer, 0) * type_bytes(graph->value[op->buffer].type) >= large;
}

/* What the ranks move in one operation. */
struct moved {
  bool equal;               /* all ranks move as much as rank 0 */
  int64_t *sent, *received; /* by rank; only of rank 0 if all are equal */
};

/* For a bucket: its ranks share one run of elements, so their parts are not those of each
   gradient. No later rank has a larger part: if the last has as much as the first, all have. */
static void add_bucket(const struct op *op, int64_t *sent, int64_t *received)
{
  int n = group_size(op->group), world = world_size();
  int64_t each = type_bytes(moved_type(op)), all = collective_bytes(op, 0) / each;
  bool even = all == collective_bytes(op, world - 1) / each;
  for (int r = 0; r < world; r++) {
    if (!even) all = collective_bytes(op, r) / each;
    int64_t part = chunk_size(all, n, place_in_group(op->group, r));
    int64_t moved = (all - part + part * (n - 1)) * each;
    if (has_chunks(op)) moved = (n - 1) * bucket_chunk(op, op->nbody) * each;
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
  int64_t parts = op->pieces ? op->pieces : 1;
  if (in->counts != NONE) parts *= in->shape.size[0]; /* each place has a row of one expert */
  for (int r = 0; r < world_size() && parts > 1; r++) {
    sent[r] /= parts;
    received[r] /= parts;
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
  static const struct graph *of;
  if (is_other_graph(&of)) room = 0;
  if (room < world_size()) {
    room = world_size();
    sent = by_rank(), received = by_rank();
  }
  size_t bytes = (size_t)world_size() * sizeof *sent;
  memset(sent, 0, bytes), memset(received, 0, bytes);
  add_bytes(op, sent, received);
  *m = (struct moved){.equal = true};
  for (int r = 1; r < world_size() && m->equal; r++)
    m->equal = sent[r] == sent[0] && received[r] == received[0];
  size_t kept = m->equal ? sizeof *sent : bytes;
  m->sent = memcpy(alloc(kept), sent, kept);
  m->received = memcpy(alloc(kept), received, kept);
}

/* Computed once for each operation of the graph. */
static const struct moved *moved_by(int id)
{
  static struct moved **known;
  static int room;
  static const struct graph *of;
  if (is_other_graph(&of)) room = 0;
  while (room < graph->nop) known = grow(known, room, &room, sizeof *known);
  if (!known[id]) count_moved(known[id] = alloc(sizeof **known), &graph->op[id]);
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
    if (m->equal) {
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
