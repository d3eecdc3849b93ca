/* contiguous_gradients.c: part of the pass `bucket`: gradients that are reduced over ranks in
   place.

   Takes   a function whose gradients are reduced one by one, each in its place.
   Leaves  gradients of one kind that are adjacent in memory reduced together, without copies; and
           small ones elsewhere, packed into a buffer with others.

   The backward makes the gradients of the last parameters first, so the first bucket of a kind has
   the last parameters, and can travel while the rest is computed. If the plan gives no caps, the
   cost model chooses them: large buckets have few latencies; small ones start early, and leave
   little to wait for at the end. */
#include "function_passes/function_passes.h"

#include <stdlib.h>

/* Reductions of gradients that are adjacent in memory, in the order of the parameters. */
struct run {
  const int *member;
  int n;
  int64_t bytes;
};
struct runs {
  int n;
  struct run *at; /* the last parameters' first */
};

static int contiguous_gradients_parameter_of(const struct run *r)
{
  return graph->value[graph->op[r->member[0]].out].of;
}

/* By parameter, the all-reduce of its gradient in this function, or NONE; NULL if the function has
   none. */
static int *sums_in(const struct function *f)
{
  int *sum = NULL;
  for (int i = f->nop; i-- > 0;) {
    const struct op *op = &graph->op[f->op[i]];
    if (!is_gradient_sum(op)) continue;
    if (!sum) {
      sum = alloc((size_t)graph->nvalue * sizeof *sum);
      for (int v = 0; v < graph->nvalue; v++) sum[v] = NONE;
    }
    sum[graph->value[op->out].of] = f->op[i];
  }
  return sum;
}

static bool joins(const struct runs *runs, int op, const struct caps *caps)
{
  const struct run *last = &runs->at[runs->n - 1];
  if (!same_kind(last->member[0], op) || !may_share(last->member[0], op)) return false;
  int64_t bytes = last->bytes + largest_bytes(graph->op[op].out);
  /* The number of runs of the kind. */
  int n = 0;
  for (int i = 0; i < runs->n; i++) n += same_kind(runs->at[i].member[0], op);
  return bytes <= cap_of(caps, n - 1);
}

static struct runs contiguous_gradients_find_runs(const struct function *f, const int *sum,
                                                  const struct caps *caps)
{
  int *member = alloc((size_t)(f->nop + 1) * sizeof *member), first = f->nop;
  struct runs runs = {.at = alloc((size_t)(f->nop + 1) * sizeof *runs.at)};
  bool open = false; /* others may join the last one */
  for (int p = graph->nvalue; p-- > 0;) {
    if (graph->value[p].role != PARAMETER) continue;
    bool goes_on = open && sum[p] != NONE && joins(&runs, sum[p], caps);
    open = sum[p] != NONE;
    if (!open) continue;
    member[--first] = sum[p];
    if (!goes_on) runs.at[runs.n++] = (struct run){0};
    struct run *run = &runs.at[runs.n - 1];
    run->member = member + first;
    run->n++;
    run->bytes += largest_bytes(graph->op[sum[p]].out);
  }
  return runs;
}

/* ------------------------------------------------------------------------------------- the caps */

static int64_t contiguous_gradients_time_of(const struct op *op)
{
  if (is_collective(op->kind)) return 0;
  if (op->kind != OP_loop) return time_taken(op);
  const struct function *body = &graph->function[op->function];
  int64_t iteration = 0;
  for (int i = 0; i < body->nop; i++)
    iteration = plus_times(iteration, 1, contiguous_gradients_time_of(&graph->op[body->op[i]]));
  return iteration > LONGEST_TIME / body->count ? LONGEST_TIME : iteration * body->count;
}

int64_t *times_in(const struct function *f)
{
  static const struct graph *of;
  static int64_t *done;
  static int room;
  int64_t now = 0;
  if (is_other_graph(&of)) room = 0;
  while (room <= graph->nop) done = grow(done, 0, &room, sizeof *done);
  for (int i = 0; i < f->nop; i++) {
    now = plus_times(now, 1, contiguous_gradients_time_of(&graph->op[f->op[i]]));
    done[f->op[i]] = now;
  }
  return done;
}

static int by_begin(const void *a, const void *b)
{
  const int64_t *x = a, *y = b;
  return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* The time at which the last run is reduced, if they travel one after the other, each as soon as
   its last member is made. */
static int64_t end_of(const struct runs *runs, const int64_t *done)
{
  int64_t(*run)[2] = alloc((size_t)(runs->n + 1) * sizeof *run), end = 0; /* begin, time */
  for (int i = 0; i < runs->n; i++) {
    const struct run *r = &runs->at[i];
    const struct op *first = &graph->op[r->member[0]];
    int64_t latency = (int64_t)(link_of(first->group).latency * 1e12);
    run[i][1] = -latency * (r->n - 1);
    for (int k = 0; k < r->n; k++) {
      if (done[r->member[k]] > run[i][0]) run[i][0] = done[r->member[k]];
      run[i][1] = plus_times(run[i][1], 1, time_taken(&graph->op[r->member[k]]));
    }
  }
  qsort(run, (size_t)runs->n, sizeof *run, by_begin);
  for (int i = 0; i < runs->n; i++)
    end = plus_times(run[i][0] > end ? run[i][0] : end, 1, run[i][1]);
  return end;
}

/* The plan's caps; else those that end the reductions first; of equals, the largest. */
static struct runs best_runs(const struct function *f, const int *sum)
{
  if (plan_options->ncap)
    return contiguous_gradients_find_runs(f, sum,
                                          &(struct caps){plan_options->ncap, plan_options->cap});
  const int64_t *done = times_in(f);
  struct runs best = {0};
  int64_t least = INT64_MAX;
  for (int shift = 30; shift >= 20; shift--) {
    int64_t cap = INT64_C(1) << shift;
    struct runs runs = contiguous_gradients_find_runs(f, sum, &(struct caps){1, &cap});
    int64_t end = end_of(&runs, done);
    if (end >= least) continue;
    least = end;
    best = runs;
  }
  return best;
}

/* ------------------------------------------------------------------------------------- the sums */

/* The gradients of a list's modules, which can be copied together, are adjacent. */
static int by_stack(const void *a, const void *b)
{
  int p = contiguous_gradients_parameter_of(a), q = contiguous_gradients_parameter_of(b),
      x = alias_root(p), y = alias_root(q);
  if (x != y) return x < y ? -1 : 1;
  return p < q ? -1 : p > q;
}

/* The small ones of one kind, packed into as few buckets as their bytes allow. */
static void pack_runs(struct merging *m, struct function *f, struct run *run, int n)
{
  qsort(run, (size_t)n, sizeof *run, by_stack);
  for (int first = 0, next; first < n; first = next) {
    struct list member = {0};
    int64_t bytes = 0;
    for (next = first; next < n; next++) {
      if (next > first && bytes + run[next].bytes > most_of_small()) break;
      bytes += run[next].bytes;
      for (int k = 0; k < run[next].n; k++) add(&member, run[next].member[k]);
    }
    merge_explained(m, f, member.at, member.n, next - first > 1);
  }
}

void bucket_gradients(struct merging *m, struct function *f)
{
  const int *sum = sums_in(f);
  if (!sum) return;
  struct runs runs = best_runs(f, sum);
  struct run *small = alloc((size_t)(runs.n + 1) * sizeof *small);
  for (int n = runs.n; n > 0;) {
    int left = 0, nsmall = 0;
    struct run first = runs.at[0];
    for (int i = 0; i < n; i++) {
      struct run run = runs.at[i];
      if (i && !same_kind(first.member[0], run.member[0]))
        runs.at[left++] = run;
      else if (is_small(graph->op[run.member[0]].group, run.bytes))
        small[nsmall++] = run;
      else
        merge_explained(m, f, run.member, run.n, false);
    }
    pack_runs(m, f, small, nsmall);
    n = left;
  }
}
