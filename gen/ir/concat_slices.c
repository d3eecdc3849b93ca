/* concat_slices.c: the values that are parts of concat buffers, for the pass `merge_products` and
   later ones. */
#include "ir/ir.h"

const struct concat_slice no_concat_slice = {.buffer = NONE};

const struct concat_slice *concat_slice(int value)
{
  const struct concat_slices *w = graph->concat_slices;
  return w && value < w->nvalue ? &w->of[value] : &no_concat_slice;
}

void make_concat_slice(int value, struct concat_slice part)
{
  if (!graph->concat_slices) graph->concat_slices = alloc(sizeof *graph->concat_slices);
  struct concat_slices *w = graph->concat_slices;
  while (w->nvalue <= value) {
    GROW(w->of, w->nvalue, w->room);
    w->of[w->nvalue++] = no_concat_slice;
  }
  w->of[value] = part;
}
