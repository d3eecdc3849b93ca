/* buckets.c: packed buckets: several collectives as one call, by way of a buffer.

   Takes   collectives of the finished graph. */
#include "sharding/sharding.h"

int64_t elements_of_rank(int value, int rank)
{
  return elements(local_shape(value, rank));
}

int unit_of(const struct op *op)
{
  return op->of_unit ? op->unit : NONE;
}

enum type moved_type(const struct op *op)
{
  if (op->packed) return graph->value[op->buffer].type;
  return graph->value[op->nbody ? graph->op[op->body[0]].out : op->in[0]].type;
}

const struct op *bucket_member(const struct op *op, int k)
{
  return &graph->op[op->body[k]];
}

/* Computed once for a bucket, whose members are asked in turn, in one size of micro-batches. */
int64_t bucket_chunk(const struct op *op, int k)
{
  struct cost_model *m = cost_model_of_graph();
  struct query *q = &m->chunk;
  bool is_new;
  begin_query(q);
  ask_number(q, (int64_t)(intptr_t)op->body);
  ask_number(q, (int64_t)op->nbody << 32 | graph->mesh.now);
  ask_number(q, (int64_t)op->body[0] << 32 | op->body[op->nbody - 1]);
  int64_t *begin = answer_to(&m->chunks, q, (size_t)(op->nbody + 1) * sizeof *begin, &is_new);
  for (int i = 0; i < op->nbody && is_new; i++) {
    int part = sharded_value(bucket_member(op, i));
    begin[i + 1] = begin[i] + elements(local_shape(part, 0)); /* no rank has more than the first */
  }
  return begin[k];
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

/* Whether one call moves each member to its place: on a CPU, where copies cost as much as
   the network. Small members are better in one message. */
bool goes_by_segments(const struct op *op)
{
  const int64_t large = 1 << 18;
  if (!target->moves_segments || !lies_as_chunk(op) || op->pieces || runs_beside(op)) return false;
  for (int k = 0; k < op->nbody; k++) {
    int whole = whole_value(bucket_member(op, k));
    if (graph->value[whole].type != graph->value[op->buffer].type) return false;
  }
  return elements_of_rank(op->buffer, 0) * type_bytes(graph->value[op->buffer].type) >= large;
}
