/* counts.c: the elements that a rank sends to each member of a collective's group, and receives
   from it.

   Takes   collectives of the finished graph. */
#include "sharding/sharding.h"

#include <string.h>

void *count_buffer(int what, int n, size_t size)
{
  return scratch_alloc(&cost_model_of_graph()->counts[what], (size_t)n * size);
}

const int *members_of(int group, int rank)
{
  int *member = count_buffer(MEMBERS, group_size(group), sizeof *member);
  group_members(group, rank, member);
  return member;
}

/* The elements of a value's part by rank, or its size along a dimension, in the micro-batches of
   now. */
static const int64_t *sizes_by_rank(int value, int dim)
{
  struct cost_model *m = cost_model_of_graph();
  struct query *q = &m->size;
  bool is_new;
  begin_query(q);
  ask_number(q, value);
  ask_number(q, dim);
  ask_number(q, graph->mesh.now);
  int64_t *size = answer_to(&m->sizes, q, (size_t)world_size() * sizeof *size, &is_new);
  for (int r = 0; r < world_size() && is_new; r++) {
    struct shape here = local_shape(value, r);
    size[r] = dim == NONE ? elements(here) : here.size[dim];
  }
  return size;
}

const struct transfer_traits *transfer_traits(const struct exchange *x)
{
  struct cost_model *m = cost_model_of_graph();
  bool is_new;
  begin_query(&m->trait);
  ask_number(&m->trait, x - graph->exchange);
  struct transfer_traits *t = answer_to(&m->traits, &m->trait, sizeof *t, &is_new);
  if (is_new) *t = find_traits(&x->move, x->whole);
  return t;
}

void count_pieces(const struct exchange *x, int rank, bool sends, int64_t *count, int64_t *starts)
{
  int n = group_size(x->group), coordinate[MAX_MESH];
  struct piece *list = count_buffer(PIECES, n, sizeof *list);
  int npiece = (sends ? pieces_sent : pieces_got)(&x->move, x->whole, rank, list);
  const struct transfer_traits *traits = transfer_traits(x);
  bool in_place = sends ? traits->sends_runs : traits->gets_runs;
  coordinate_of(rank, coordinate);
  struct layout layout = sends ? x->move.from : x->move.to;
  struct shape here = local_part(&graph->mesh, x->whole, layout, coordinate).shape;
  int64_t at = 0;
  memset(count, 0, (size_t)n * sizeof *count);
  memset(starts, 0, (size_t)n * sizeof *starts);
  for (int i = 0; i < npiece; i++) {
    int64_t offset = 0; /* of the piece in the rank's part */
    for (int d = 0; d < here.ndim; d++) offset = offset * here.size[d] + list[i].part.first[d];
    count[list[i].member] = elements(list[i].part.shape);
    starts[list[i].member] = in_place ? offset : at;
    at += elements(list[i].part.shape);
  }
}

const struct exchange *exchange_of(const struct op *op)
{
  return &graph->exchange[op->exchange];
}

void collective_counts(const struct op *op, int rank, int64_t *give, int64_t *get)
{
  const int n = group_size(op->group);
  if (op->kind == OP_exchange) {
    int64_t *starts = count_buffer(STARTS, n, sizeof *starts);
    count_pieces(exchange_of(op), rank, true, give, starts);
    count_pieces(exchange_of(op), rank, false, get, starts);
    return;
  }
  const int *member = members_of(op->group, rank);
  if (collective_row[op->kind].pairwise) {
    /* A part, cut along dimension dim_to as the other rank will hold it, or holds it. */
    const int64_t *part = sizes_by_rank(op->in[0], NONE);
    const int64_t *size = sizes_by_rank(op->in[0], op->dim_to);
    const int64_t *cut = sizes_by_rank(op->out, op->dim_to);
    for (int r = 0; r < n; r++) {
      give[r] = size[rank] ? part[rank] / size[rank] * cut[member[r]] : 0;
      get[r] = size[member[r]] ? part[member[r]] / size[member[r]] * cut[rank] : 0;
    }
    return;
  }
  int64_t sum = 0;
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
  if (op->kind == OP_exchange) return transfer_traits(exchange_of(op))->permutes;
  if (has_chunks(op)) return true;
  int ranks = group_size(op->group);
  const int *member = members_of(op->group, rank);
  int first = member[0], last = member[ranks - 1];
  return elements_of_rank(op->in[0], first) == elements_of_rank(op->in[0], last) &&
         elements_of_rank(op->out, first) == elements_of_rank(op->out, last);
}
