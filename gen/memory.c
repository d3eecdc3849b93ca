/* memory.c: the pass `memory`: where every value lies.

   Takes   functions in their final order, each value marked if it is stored.
   Leaves  for each stored activation a range of bytes in the arena, such that no two which live at
           the same time overlap; the same on every rank (sizes are those of the largest shard, on
           rank 0). A value that is only changed in place shares the bytes of what it was made from.
           Parameters, gradients, states, batch, loss and outputs have places of their own.

   Placing is first fit, from the largest to the smallest; of a few such orders the best is kept. */
#include "tpgen.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* ---------------------------------------------------------------------------------- lifetimes */

static void live(int value, int at)
{
  struct value *v = &graph->value[value];
  if (v->first == NONE) v->first = at;
  if (v->last < at) v->last = at;
}

static void find_lifetimes(void)
{
  int *list = NULL, room = 0, at = 0;
  for (int i = 0; i < graph->nvalue; i++) graph->value[i].first = graph->value[i].last = NONE;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++, at++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
      for (int n = op_reads(op, list); n--;) live(list[n], at);
      for (int n = op_writes(op, list); n--;) live(list[n], at);
    }
}

/* ----------------------------------------------------------------------------------- in place */

static bool in_arena(int value)
{
  const struct value *v = &graph->value[value];
  return v->stored && v->role == ACTIVATION && !v->is_output;
}

static int root(int value)
{
  while (graph->value[value].storage != value) value = graph->value[value].storage;
  return value;
}

/* Lets `out`, made at `at`, take the bytes of `in`, which nobody reads later. */
static bool share(int in, int out, int at)
{
  const struct value *a = &graph->value[in], *b = &graph->value[out];
  if (!a->stored || !b->stored || a->last != at || b->first != at) return false;
  if (a->type != b->type || !same_shape(a->shape, b->shape)) return false;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = a->layout.on[d], q = b->layout.on[d];
    if ((p.kind == SHARD || q.kind == SHARD) && !same_placement(p, q)) return false;
  }
  int ra = root(in), rb = root(out);
  if (ra == rb) return true;
  /* What has a place of its own keeps it; only what is in the arena can give way. */
  if (in_arena(ra) && graph->value[ra].op != NONE) {
    if (in_arena(rb)) {
      graph->value[rb].storage = ra;
      if (graph->value[ra].last < b->last) graph->value[ra].last = b->last;
    } else {
      graph->value[ra].storage = rb;
    }
    return true;
  }
  return false;
}

/* The elements of `value` are read by `op` one by one, each where it is written. */
static bool read_in_step(const struct op *op, int value)
{
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    struct letters l;
    op_letters(inner, &l);
    for (int i = 0; i < inner->nin; i++)
      if (inner->in[i] == value && !same_shape(graph->value[value].shape, l.space)) return false;
  }
  return true;
}

static void share_in(const struct op *op, int at)
{
  if (op->kind == OP_all_reduce && !op->nbody) share(op->in[0], op->out, at);
  if (op->kind == OP_all_reduce && op->nbody)
    for (int k = 0; k < op->nbody; k++)
      share(graph->op[op->body[k]].in[0], graph->op[op->body[k]].out, at);
  if (op->kind == OP_to_partial) share(op->in[0], op->out, at);
  if (op->kind != OP_fused) return;
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  int n = op_reads(op, list);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (is_reduce(inner->kind) || !graph->value[inner->out].stored) continue;
    for (int i = 0; i < n; i++)
      if (list[i] != NONE && read_in_step(op, list[i]) && share(list[i], inner->out, at)) {
        list[i] = NONE;
        break;
      }
  }
}

static void share_all(void)
{
  int at = 0;
  for (int i = 0; i < graph->nvalue; i++) graph->value[i].storage = i;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++, at++)
      share_in(&graph->op[graph->function[i].op[k]], at);
}

/* ------------------------------------------------------------------------------------ placing */

static int64_t size_of(int value)
{
  int64_t bytes = largest_bytes(value);
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool meet(const struct value *a, const struct value *b)
{
  return a->first <= b->last && b->first <= a->last;
}

static int by_size(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  if (size_of(x) != size_of(y)) return size_of(x) > size_of(y) ? -1 : 1;
  return x < y ? -1 : 1;
}

static int by_length(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  const struct value *v = &graph->value[x], *w = &graph->value[y];
  if (v->last - v->first != w->last - w->first)
    return v->last - v->first > w->last - w->first ? -1 : 1;
  return by_size(a, b);
}

static int by_start(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  if (graph->value[x].first != graph->value[y].first)
    return graph->value[x].first < graph->value[y].first ? -1 : 1;
  return by_size(a, b);
}

/* The lowest place at which value[k] fits beside those of value[0 .. k-1] that live when it does. */
static int64_t lowest(const int *value, const int64_t *offset, int k)
{
  const struct value *v = &graph->value[value[k]];
  int64_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < k; i++) {
      int64_t end = offset[i] + size_of(value[i]);
      if (!meet(v, &graph->value[value[i]]) || end <= at || offset[i] >= at + size_of(value[k]))
        continue;
      at = end;
      moved = true;
    }
  }
  return at;
}

static int64_t try_order(int *value, int n, int (*order)(const void *, const void *),
                         int64_t *offset)
{
  int64_t peak = 0;
  qsort(value, (size_t)n, sizeof *value, order);
  for (int k = 0; k < n; k++) {
    offset[k] = lowest(value, offset, k);
    if (offset[k] + size_of(value[k]) > peak) peak = offset[k] + size_of(value[k]);
  }
  return peak;
}

static int64_t most_live(const int *value, int n)
{
  int64_t most = 0;
  for (int i = 0; i < n; i++) {
    int64_t sum = 0;
    for (int k = 0; k < n; k++) {
      const struct value *v = &graph->value[value[k]];
      if (v->first <= graph->value[value[i]].first && graph->value[value[i]].first <= v->last)
        sum += size_of(value[k]);
    }
    if (sum > most) most = sum;
  }
  return most;
}

void memory(void)
{
  static int (*const orders[])(const void *, const void *) = {by_size, by_length, by_start};
  find_lifetimes();
  share_all();
  int n = 0, *value = alloc((size_t)(graph->nvalue + 1) * sizeof *value);
  int64_t *offset = alloc((size_t)(graph->nvalue + 1) * sizeof *offset), best = INT64_MAX;
  for (int i = 0; i < graph->nvalue; i++)
    if (in_arena(i) && root(i) == i && graph->value[i].op != NONE && graph->value[i].first != NONE)
      value[n++] = i;
  for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
    int64_t peak = try_order(value, n, orders[k], offset);
    if (peak >= best) continue;
    best = peak;
    for (int i = 0; i < n; i++) graph->value[value[i]].offset = offset[i];
  }
  graph->arena_bytes = n ? best : 0;
  graph->live_bytes = most_live(value, n);
  for (int i = 0; i < graph->nvalue; i++) {
    graph->value[i].storage = root(i);
    graph->value[i].offset = graph->value[root(i)].offset;
  }
}
