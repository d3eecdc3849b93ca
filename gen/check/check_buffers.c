/* check_buffers.c: a part of check_memory.c and check_order.c: whether a packed bucket is copied
   into its buffer, and out of it.

   Takes   the program with storage for every value, between begin_run and end_run.
   Holds   the program copies members that are elsewhere, and no others.

   A sum is made in place if the bytes of all members, before and after, are in the buffer. Shards
   need no copy where they are parameters, or gradients of these, of the buffer's type, which follow
   each other in memory and have equal parts on all ranks: the call takes them for the buffer. */
#include "check/check.h"

static bool is_left_out(int value, int module)
{
  return one_of(value, module).index == NONE;
}

static bool is_in(int value, int module, struct place buffer)
{
  return lies_within(place_of(value, module), buffer);
}

/* The call takes as many elements from the beginning of the buffer as the members have. So each
   member must begin where the one before ends: in every size of a micro-batch, on the rank with the
   largest parts and on that with the smallest ones. */
static bool are_adjacent(const struct op *op, int module)
{
  const struct list *sizes = sizes_in_run();
  const int64_t buffer = place_of(op->buffer, module).from;
  bool adjacent = true;
  for (int size = NONE; next_size(sizes, &size);) {
    int64_t largest = 0, smallest = 0;
    for (int k = 0; k < op->nbody; k++) {
      const int out = graph->op[op->body[k]].out, bytes = type_bytes(graph->value[out].type);
      const int64_t at = place_of(out, module).from - buffer;
      adjacent &= at == largest && at == smallest;
      largest += elements(local_shape(out, 0)) * bytes;
      smallest += elements(local_shape(out, world_size() - 1)) * bytes;
    }
  }
  return adjacent;
}

/* Members of modules that are left out count by their storage. */
static bool is_summed_in_place(const struct op *op, int module)
{
  bool is_run = !is_left_out(op->buffer, module);
  if (moves_shards(op->kind)) return false;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *m = &graph->op[op->body[k]];
    if (is_left_out(m->in[0], module) || is_left_out(m->out, module) ||
        is_left_out(op->buffer, module)) {
      if (storage_of(m->in[0]) != op->buffer || storage_of(m->out) != op->buffer) return false;
      is_run = false;
      continue;
    }
    struct place buffer = place_of(op->buffer, module);
    if (!is_in(m->in[0], module, buffer) || !is_in(m->out, module, buffer)) return false;
    if (place_of(m->in[0], module).from != place_of(m->out, module).from) return false;
  }
  require(!is_run || are_adjacent(op, module), (int)(op - graph->op),
          "a member of a bucket is not where the call expects it, in a micro-batch of some size");
  return true;
}

/* By the order of the parameters in a rank's memory. */
static bool are_side_by_side(const struct op *op, enum role role)
{
  int before = NONE, last = world_size() - 1;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *m = &graph->op[op->body[k]];
    int shard = role == PARAMETER ? m->in[0] : m->out;
    const struct value *v = &graph->value[shard];
    if (v->role != role || v->type != graph->value[op->buffer].type) return false;
    if (elements(local_shape(shard, 0)) != elements(local_shape(shard, last))) return false;
    int parameter = role == PARAMETER ? shard : v->of;
    if (before != NONE && !is_next_parameter(before, parameter)) return false;
    before = parameter;
  }
  return true;
}

bool needs_copy_in(const struct op *op, int module)
{
  if (!op->packed || is_summed_in_place(op, module)) return false;
  bool gathers = collective_row[op->kind].from == SHARD;
  return !gathers || !are_side_by_side(op, PARAMETER);
}

bool needs_copy_out(const struct op *op, int module)
{
  if (!op->packed || is_summed_in_place(op, module)) return false;
  bool scatters = collective_row[op->kind].to == SHARD;
  return !scatters || !are_side_by_side(op, GRADIENT);
}

bool is_in_buffer(const struct op *op, int module)
{
  return op->packed && is_summed_in_place(op, module);
}

void check_bucket_copies(int id, int module)
{
  const struct op *op = &graph->op[id];
  require(is_copied_in(op) == needs_copy_in(op, module), id,
          "it copies a value into its buffer that is in it already, or leaves out one that is not");
  require(is_copied_out(op) == needs_copy_out(op, module), id,
          "it copies a value out of its buffer that stays in it, or leaves out one that does not");
}
