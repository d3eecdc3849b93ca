/* works.c: which operations do so much work that ranks are to divide it: products, attention and
   the like, but for the smallest of them, as the patches of an image and the classes of a few:
   together they are a small part of the work, and their results are no larger than what they take.
 */
#include "auto/auto.h"

#include <stdlib.h>

struct work {
  int op;
  double flops;
};

static int compare_work(const void *x, const void *y)
{
  const struct work *a = x, *b = y;
  if (a->flops != b->flops) return a->flops < b->flops ? -1 : 1;
  return a->op - b->op;
}

static bool makes_much(const struct op *op)
{
  int64_t most = 0;
  for (int i = 0; i < op->nin; i++) {
    const struct value *v = &graph->value[op->in[i]];
    if (v->role != PARAMETER && elements(v->shape) > most) most = elements(v->shape);
  }
  return elements(graph->value[op->out].shape) > 2 * most;
}

bool *operations_that_work(const int *times)
{
  static const double SMALL_PART = 1.0 / 16;
  bool *works = alloc((size_t)(graph->nop + 1) * sizeof *works);
  struct work *list = alloc((size_t)(graph->norder + 1) * sizeof *list);
  int n = 0;
  double all = 0, small = 0;
  for (int at = 0; at < graph->norder; at++) {
    const int id = graph->order[at];
    const struct op *op = &graph->op[id];
    if (!times[id] || !op->nout || !*op_row[op->kind].flops) continue;
    list[n] = (struct work){id, times[id] * flops_of(op)};
    all += list[n++].flops;
    works[id] = true;
  }
  qsort(list, (size_t)n, sizeof *list, compare_work);
  for (int i = 0; i < n && small + list[i].flops <= SMALL_PART * all; i++) {
    small += list[i].flops;
    works[list[i].op] = makes_much(&graph->op[list[i].op]);
  }
  return works;
}
