/* loops.c: questions about the loops of values, for the pass `outline` and later ones. */
#include "ir/ir.h"

const struct in_loop in_no_loop = {.stack = NONE, .sibling = NONE};

const struct in_loop *in_loop(int value)
{
  const struct values_in_loops *l = graph->in_loops;
  return l && value < l->nvalue ? &l->of[value] : &in_no_loop;
}

struct in_loop *row_in_loop(int value)
{
  if (!graph->in_loops) graph->in_loops = alloc(sizeof *graph->in_loops);
  struct values_in_loops *l = graph->in_loops;
  while (l->nvalue <= value) {
    GROW(l->of, l->nvalue, l->room);
    l->of[l->nvalue++] = in_no_loop;
  }
  return &l->of[value];
}
