/* bucket.c: the pass `bucket`: few large collectives instead of many small ones.

   Takes   functions with single collectives.
   Leaves  every gradient that the ranks reduce in one collective reduced in its own place; and
           collectives of one kind over one group merged: an all_gather, reduce_scatter or
           all_reduce whose body is the operations that it replaces (bucket_merge.c). Layouts and
           results are unchanged. No member needs the result of another, and all ranks run the same
           buckets in the same order, since all run one graph.

   Merged by default:

     the gathers of a unit's parameters, and the reductions of their gradients (fully_shard), if a
     function has several of one kind; within the plan's caps, or all of them

     gradients that are summed over ranks and follow one another in memory: reduced in place
     (contiguous_gradients.c); a rank's gradients are one block, in the order of the parameters

     small values, for which latency exceeds transfer time: packed into a buffer before, and
     unpacked after, unless memory.c places them in the buffer anyway. Small gradients of a list's
     modules leave their loop for this (hoist_reductions.c)

   With bucketing = "greedy", consecutive collectives of one kind are merged in each function
   (bucket_select.c), whatever their units and sizes. */
#include "function_passes/function_passes.h"

/* -------------------------------------------------------------------------------- plain choices */

/* The bytes of the larger of input and output, on the rank that has most. */
static int64_t moved_bytes(const struct op *op)
{
  int value = whole_value(op);
  return elements(local_shape(value, 0)) * type_bytes(moved_type(op));
}

static bool is_bucketable(struct merging *m, const struct function *f, int id)
{
  return collective_row[graph->op[id].kind].buckets && is_mergeable(m, f, id) &&
         !joins_stages(&graph->op[id]);
}

/* Gathers and reductions of units. contiguous_gradients.c handles gradients that are reduced in
   place. */
static bool is_of_unit(struct merging *m, const struct function *f, int id)
{
  const struct op *op = &graph->op[id];
  return is_bucketable(m, f, id) && unit_of(op) != NONE && !is_gradient_sum(op);
}

/* The collectives of this kind in a function, in its order. */
static struct list find_singles(struct merging *m, const struct function *f,
                                bool (*is_such)(struct merging *m, const struct function *f,
                                                int id))
{
  struct list found = {0};
  for (int i = 0; i < f->nop; i++)
    if (is_such(m, f, f->op[i])) add(&found, f->op[i]);
  return found;
}

static struct single *as_singles(struct merging *m, const struct function *f, const struct list *op,
                                 bool in_units)
{
  struct single *s = alloc((size_t)(op->n + 1) * sizeof *s);
  for (int i = 0; i < op->n; i++) {
    const struct op *o = &graph->op[op->at[i]];
    s[i] = (struct single){.kind = o->kind,
                           .group = o->group,
                           .reduction = o->reduction,
                           .type = moved_type(o),
                           .last_batch = o->last_batch,
                           .unit = in_units ? unit_of(o) : NONE,
                           .bytes = moved_bytes(o)};
  }
  find_needs(m, f, op->at, s, op->n);
  return s;
}

/* Sorts them by their parameters; returns whether they are gradients that are adjacent in
   memory. */
static bool members_lie_side_by_side(int *op, int n)
{
  for (int k = 0; k < n; k++)
    if (!is_gradient_sum(&graph->op[op[k]])) return false;
  put_in_order(op, n);
  for (int k = 1; k < n; k++)
    if (!is_next_parameter(graph->value[graph->op[op[k - 1]].out].of,
                           graph->value[graph->op[op[k]].out].of))
      return false;
  return true;
}

/* Records that a bucket of the plan was divided. */
static void tell_split(int part, int n, int all)
{
  struct op *op = &graph->op[part];
  const char *these = n > 1 ? text("%d", n) : "one";
  op->why = text("%s; %s of the %d of a greedy bucket: the others conflict with earlier buckets",
                 op->why ? op->why : "", these, all);
}

static void merge_all(struct merging *m, struct function *f, const struct buckets *found,
                      const struct list *op)
{
  for (int i = 0; i < found->n; i++) {
    /* Merges them into one collective. If buckets made before conflict, into several, each with as
       many as can be merged. */
    const struct list *numbers = &found->at[i];
    struct list left = {0};
    for (int k = 0; k < numbers->n; k++) add(&left, op->at[numbers->at[k]]);
    if (!merge_explained(m, f, left.at, left.n, !members_lie_side_by_side(left.at, left.n))) {
      while (left.n) {
        struct list member = {0}, rest = {0};
        take_of_one_kind(m, f, &left, &member, &rest);
        bool merged = merge_explained(m, f, member.at, member.n,
                                      !members_lie_side_by_side(member.at, member.n));
        int part = merged ? graph->nop - 1 : member.at[0];
        if (plan_options->bucketing == BUCKETS_GREEDY) tell_split(part, member.n, numbers->n);
        left = rest;
      }
    }
  }
}

/* The bytes of a unit in collectives of this kind. */
static int64_t bytes_of_unit(const struct single *s, int n, const struct single *like, int unit)
{
  int64_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (s[i].unit == unit && travels_like(&s[i], like)) bytes += s[i].bytes;
  return bytes;
}

/* Buckets of one kind. They are chosen after other kinds were merged: a collective that needs a
   member of a bucket through another bucket cannot join it. */
static void bucket_kind_greedily(struct merging *m, struct function *f, enum op_kind kind,
                                 const struct caps *caps)
{
  struct list all = find_singles(m, f, is_bucketable), op = {0};
  for (int i = 0; i < all.n; i++)
    if (graph->op[all.at[i]].kind == kind) add(&op, all.at[i]);
  if (op.n < 2) return;
  struct buckets found = choose_in_order(as_singles(m, f, &op, false), op.n, caps);
  merge_all(m, f, &found, &op);
}

/* --------------------------------------------------------------------------------- small values */

/* The program of each stage is planned by itself, and all have the same calls of several stages. */
static bool is_small_sum(int id)
{
  const struct op *op = &graph->op[id];
  return op->kind == OP_all_reduce && !op->nbody && !is_gradient_sum(op) && unit_of(op) == NONE &&
         !joins_stages(op) && is_small(op->group, largest_bytes(op->out));
}

/* The members that can be merged with the first, up to the first that cannot; the place of the
   last. */
static void gather_small(struct merging *m, const struct function *f, int first,
                         struct list *member)
{
  int64_t bytes = 0;
  begin_noting(m);
  for (int i = first; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    bool joins = is_small_sum(f->op[i]) && same_kind(f->op[first], f->op[i]);
    if (joins) bytes += largest_bytes(op->out);
    if (joins && member->n && (bytes > most_of_small() || is_in_the_way(m, op, false))) return;
    if (joins) add(member, f->op[i]);
    if (joins || depends(m, op)) note_op(m, op);
  }
}

/* ------------------------------------------------------------------------------------- the pass */

static void bucket_function(struct merging *m, struct function *f)
{
  if (plan_options->bucketing == BUCKETS_NONE) return;
  if (plan_options->bucketing == BUCKETS_GREEDY) {
    /* Without caps as in PyTorch: 2,000 MiB. */
    static const int64_t most = INT64_C(2000) << 20;
    struct caps caps = plan_options->ncap ? (struct caps){plan_options->ncap, plan_options->cap}
                                          : (struct caps){1, &most};
    for (int kind = 0; kind < OP_COUNT; kind++)
      if (collective_row[kind].buckets) bucket_kind_greedily(m, f, (enum op_kind)kind, &caps);
    return;
  }
  struct list op = find_singles(m, f, is_of_unit);
  if (op.n >= 2) {
    struct single *s = as_singles(m, f, &op, true);
    /* A unit whose transfer takes less than the latency joins the one before it, if that one is
       small, too, and the work between them would not hide a latency: they then count as one unit.
     */
    const int64_t *done = times_in(f);
    for (int i = 1; i < op.n; i++) {
      int before = i - 1;
      while (before >= 0 && !travels_like(&s[before], &s[i])) before--;
      if (before < 0 || s[before].unit == s[i].unit) continue;
      int unit = s[i].unit, into = s[before].unit;
      int64_t between = done[op.at[i]] - done[op.at[before]];
      if ((double)between * 1e-12 >= link_of(s[i].group).latency ||
          !is_small(s[i].group, bytes_of_unit(s, op.n, &s[i], unit)) ||
          !is_small(s[i].group, bytes_of_unit(s, op.n, &s[i], into)))
        continue;
      for (int k = i; k < op.n; k++)
        if (s[k].unit == unit && travels_like(&s[k], &s[i])) s[k].unit = into;
    }
    struct buckets found =
        choose_of_one_kind(s, op.n, &(struct caps){plan_options->ncap, plan_options->cap});
    merge_all(m, f, &found, &op);
  }
  bucket_gradients(m, f);
  for (int i = 0; i < f->nop; i++) {
    struct list member = {0};
    if (!is_small_sum(f->op[i])) continue;
    gather_small(m, f, i, &member);
    if (member.n < 2) continue;
    if (merge_explained(m, f, member.at, member.n, true)) i--;
  }
}

void bucket(void)
{
  prepare_gradients(find_running(), plan_options->bucketing == BUCKETS_BY_UNIT);
  struct merging *m = find_running();
  for (int i = 0; i < graph->nfunction; i++) bucket_function(m, &graph->function[i]);
}
