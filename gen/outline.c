/* outline.c: the pass `outline`: from one flat program to functions.

   Takes   the flat local program in graph->order, and the phase of each operation.
   Leaves  a function for each phase that has work, in which every operation of graph->order stands
           once, in its order; passes after this one walk functions and leave graph->order alone. */
#include "tpgen.h"

void outline(void)
{
  static const char *const name[PHASES] = {"forward", "backward", "update"};
  for (enum phase phase = FORWARD; phase < PHASES; phase++) {
    struct function f = {.name = name[phase], .phase = phase};
    f.op = alloc((size_t)(graph->norder + 1) * sizeof *f.op);
    for (int i = 0; i < graph->norder; i++)
      if (graph->op[graph->order[i]].phase == phase) f.op[f.nop++] = graph->order[i];
    if (f.nop) graph->function[graph->nfunction++] = f;
  }
}
