/* replace_each.c: a part of passes that put several operations in the place of one: `ring`,
   `float8`. */
#include "graph_passes/graph_passes.h"

bool replace_each(bool (*is_one)(const struct op *op),
                  void (*replace)(void *of, const struct op *op, int *stands_for), void *of)
{
  int norder = graph->norder, *order = graph->order, known = graph->nvalue;
  bool any = false;
  for (int at = 0; at < norder; at++) any |= is_one(&graph->op[order[at]]);
  if (!any) return false;
  int *stands_for = alloc((size_t)known * sizeof *stands_for);
  for (int i = 0; i < known; i++) stands_for[i] = i;
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int at = 0; at < norder; at++) {
    struct op op = graph->op[order[at]]; /* a copy: adding operations moves the array */
    for (int i = 0; i < op.nin; i++)
      if (op.in[i] < known) op.in[i] = stands_for[op.in[i]];
    graph->op[order[at]] = op;
    int first = graph->nop;
    if (is_one(&op))
      replace(of, &op, stands_for);
    else
      append_to_order(order[at]);
    for (int step = first; step < graph->nop; step++) set_stage_of(step, order[at]);
  }
  return true;
}
