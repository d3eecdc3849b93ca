/* wide_parts.c: the values that are parts of wide ones, for the pass `merge_products` and later
   ones. */
#include "ir/ir.h"

const struct wide_part no_wide_part = {.wide = NONE};

const struct wide_part *wide_part(int value)
{
  const struct wide_parts *w = graph->wide_parts;
  return w && value < w->nvalue ? &w->of[value] : &no_wide_part;
}

void make_wide_part(int value, struct wide_part part)
{
  if (!graph->wide_parts) graph->wide_parts = alloc(sizeof *graph->wide_parts);
  struct wide_parts *w = graph->wide_parts;
  while (w->nvalue <= value) {
    GROW(w->of, w->nvalue, w->room);
    w->of[w->nvalue++] = no_wide_part;
  }
  w->of[value] = part;
}
