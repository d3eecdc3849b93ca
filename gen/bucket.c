/* bucket.c: the pass `bucket`: few large collectives in the place of many small ones.

   Takes   functions with single collectives.
   Leaves  every gradient that is summed over ranks summed in its own place; and all-reduces of the
           same kind over the same group as one: an all_reduce whose body is the operations it
           stands for, at the place of the last of them. Values keep their layouts; what is computed
           is unchanged.

   The gradients of a rank lie in one block in the order of the parameters (memory.c), so that a run
   of them is reduced in place, with no copy in or out. What is small, so that to start a collective
   takes longer than to send it, travels with others that lie elsewhere: packed one after the other
   in a buffer before, and unpacked after, but where memory.c lets them lie in it anyway. Small
   gradients of a list's modules leave their loop for it. A bucket is kept to BUCKET_BYTES, so that
   the first can travel while the rest of the backward is still computed. */
#include "bucket.h"

#include <stdlib.h>

static const int64_t BUCKET_BYTES = 25 << 20;

bool is_gradient_sum(const struct op *op)
{
  return op->kind == OP_all_reduce && graph->value[op->out].role == GRADIENT;
}

bool same_kind(int a, int b)
{
  const struct op *x = &graph->op[a], *y = &graph->op[b];
  return x->kind == y->kind && x->group == y->group && x->reduction == y->reduction &&
         moved_type(x) == moved_type(y);
}

/* Whether to start a collective over the group takes longer than to send so many bytes. */
bool is_small(int group, int64_t bytes)
{
  const struct group *g = &graph->group[group];
  double latency = 0, bandwidth = link_bandwidth(g->dim[0]);
  for (int i = 0; i < g->n; i++) {
    if (link_latency(g->dim[i]) > latency) latency = link_latency(g->dim[i]);
    if (link_bandwidth(g->dim[i]) < bandwidth) bandwidth = link_bandwidth(g->dim[i]);
  }
  return (double)bytes < latency * bandwidth;
}

/* ------------------------------------------------------------------------------------ gradients */

/* Sums of gradients that follow one another in memory. */
struct run {
  const int *member;
  int n;
  int64_t bytes;
};

static int parameter_of(const struct run *r)
{
  return graph->value[graph->op[r->member[0]].out].of;
}

static bool joins(const struct run *r, int op, int64_t bytes)
{
  return same_kind(r->member[0], op) && r->bytes + bytes <= BUCKET_BYTES;
}

/* By parameter the all-reduce of its gradient in this function, or NONE. */
static int *sums_in(const struct function *f)
{
  int *sum = alloc((size_t)graph->nvalue * sizeof *sum);
  for (int i = 0; i < graph->nvalue; i++) sum[i] = NONE;
  for (int i = f->nop; i-- > 0;) {
    const struct op *op = &graph->op[f->op[i]];
    if (is_gradient_sum(op)) sum[graph->value[op->out].of] = f->op[i];
  }
  return sum;
}

/* In the order of the parameters; gives how many. */
static int find_runs(const struct function *f, struct run *run)
{
  int *sum = sums_in(f), *member = alloc((size_t)(f->nop + 1) * sizeof *member), n = 0, nrun = 0;
  bool open = false; /* the last may go on */
  for (int p = 0; p < graph->nvalue; p++) {
    if (graph->value[p].role != PARAMETER) continue;
    if (sum[p] == NONE) {
      open = false;
      continue;
    }
    int64_t bytes = largest_bytes(graph->op[sum[p]].out);
    member[n] = sum[p];
    if (!open || !joins(&run[nrun - 1], sum[p], bytes))
      run[nrun++] = (struct run){.member = member + n};
    run[nrun - 1].n++;
    run[nrun - 1].bytes += bytes;
    n++;
    open = true;
  }
  return nrun;
}

/* Those of the modules of a list, which can be copied at once, after one another. */
static int by_family(const void *a, const void *b)
{
  int p = parameter_of(a), q = parameter_of(b), x = speaker(p), y = speaker(q);
  if (x != y) return x < y ? -1 : 1;
  return p < q ? -1 : p > q;
}

/* The small ones of one kind, packed into as few as their bytes allow. */
static void pack_runs(struct function *f, struct run *run, int n)
{
  qsort(run, (size_t)n, sizeof *run, by_family);
  for (int first = 0, next; first < n; first = next) {
    struct list member = {0};
    int64_t bytes = 0;
    for (next = first; next < n; next++) {
      if (next > first && bytes + run[next].bytes > BUCKET_BYTES) break;
      bytes += run[next].bytes;
      for (int k = 0; k < run[next].n; k++) add(&member, run[next].member[k]);
    }
    merge(f, member.at, member.n, next - first > 1);
  }
}

static void bucket_gradients(struct function *f)
{
  struct run *run = alloc((size_t)(f->nop + 1) * sizeof *run);
  struct run *small = alloc((size_t)(f->nop + 1) * sizeof *small);
  for (int n = find_runs(f, run); n > 0;) {
    int left = 0, nsmall = 0, group = graph->op[run[0].member[0]].group;
    struct run first = run[0];
    for (int i = 0; i < n; i++) {
      bool joined = i == 0 || same_kind(first.member[0], run[i].member[0]);
      if (!joined)
        run[left++] = run[i];
      else if (is_small(group, run[i].bytes))
        small[nsmall++] = run[i];
      else
        merge(f, run[i].member, run[i].n, false);
    }
    pack_runs(f, small, nsmall);
    n = left;
  }
}

/* ---------------------------------------------------------------------------------------- units */

/* What a gather makes of the value, and others take of it; on the rank that has most. */
static int64_t moved_bytes(const struct op *op)
{
  int value = op->kind == OP_all_gather ? op->out : op->in[0];
  return elements(local_shape(value, 0)) * type_bytes(moved_type(op));
}

static bool is_of_unit(const struct function *f, int id)
{
  const struct op *op = &graph->op[id];
  if (op->kind != OP_all_gather && op->kind != OP_reduce_scatter && op->kind != OP_all_reduce)
    return false;
  return unit_of(op) != NONE && !is_gradient_sum(op) && is_mergeable(f, id);
}

/* The collectives of a function that are such; in its order. */
static struct list find_singles(const struct function *f,
                                bool (*is_such)(const struct function *f, int id))
{
  struct list found = {0};
  for (int i = 0; i < f->nop; i++)
    if (is_such(f, f->op[i])) add(&found, f->op[i]);
  return found;
}

static struct single *as_singles(const struct function *f, const struct list *op)
{
  struct single *s = alloc((size_t)(op->n + 1) * sizeof *s);
  for (int i = 0; i < op->n; i++) {
    const struct op *o = &graph->op[op->at[i]];
    s[i] = (struct single){.kind = o->kind,
                           .group = o->group,
                           .reduction = o->reduction,
                           .type = moved_type(o),
                           .unit = unit_of(o),
                           .bytes = moved_bytes(o)};
  }
  find_needs(f, op->at, s, op->n);
  return s;
}

/* Makes one of them, but for those that the buckets made before have put in each other's way. */
static void merge_most(struct function *f, const struct list *numbers, const struct list *op)
{
  struct list all = {0}, member = {0};
  for (int k = 0; k < numbers->n; k++) add(&all, op->at[numbers->at[k]]);
  if (merge(f, all.at, all.n, true)) return;
  for (int k = 0; k < all.n; k++) {
    add(&member, all.at[k]);
    if (!can_merge(f, member.at, member.n)) member.n--;
  }
  merge(f, member.at, member.n, true);
}

static void bucket_units(struct function *f)
{
  struct list op = find_singles(f, is_of_unit);
  if (op.n < 2) return;
  struct buckets found = choose_alike(as_singles(f, &op), op.n, &(struct caps){0});
  for (int i = 0; i < found.n; i++) merge_most(f, &found.at[i], &op);
}

/* --------------------------------------------------------------------------------- other values */

static bool is_small_sum(int id)
{
  const struct op *op = &graph->op[id];
  return op->kind == OP_all_reduce && !op->nbody && !is_gradient_sum(op) && unit_of(op) == NONE &&
         is_small(op->group, largest_bytes(op->out));
}

/* The members that can run as one with the first, until one cannot. */
static void gather_small(const struct function *f, int first, struct list *member)
{
  int64_t bytes = largest_bytes(graph->op[f->op[first]].out);
  add(member, f->op[first]);
  for (int i = first + 1; i < f->nop; i++) {
    if (!is_small_sum(f->op[i]) || !same_kind(f->op[first], f->op[i])) continue;
    bytes += largest_bytes(graph->op[f->op[i]].out);
    if (bytes > BUCKET_BYTES) return;
    add(member, f->op[i]);
    if (can_merge(f, member->at, member->n)) continue;
    member->n--;
    return;
  }
}

static void bucket_small(struct function *f)
{
  for (int i = 0; i < f->nop; i++) {
    struct list member = {0};
    if (!is_small_sum(f->op[i])) continue;
    gather_small(f, i, &member);
    if (member.n < 2) continue;
    merge(f, member.at, member.n, true);
    i--;
  }
}

bool units_travel = false;

void bucket(void)
{
  prepare_gradients();
  for (int i = 0; i < graph->nfunction; i++) {
    if (units_travel) bucket_units(&graph->function[i]);
    bucket_gradients(&graph->function[i]);
    bucket_small(&graph->function[i]);
  }
}
