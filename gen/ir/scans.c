/* scans.c: questions about scans: lists of steps in the tree of modules. */
#include "ir/ir.h"

int scan_around(int module)
{
  while (module != NONE) {
    int parent = graph->module[module].parent;
    if (parent != NONE && graph->module[parent].steps) return parent;
    module = parent;
  }
  return NONE;
}

int outside_scans(int module)
{
  int scan = scan_around(module);
  return scan == NONE ? module : graph->module[scan].parent;
}

struct entering entering_scans(void)
{
  bool *enters = alloc((size_t)graph->nvalue + 1);
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->kind == OP_scan_hold) enters[op->in[1]] = true;
  }
  return (struct entering){graph->nvalue, enters};
}

bool enters_scan(const struct entering *e, int value)
{
  return value < e->n && e->at[value];
}

int *count_modules_of_lists(void)
{
  int *count = alloc((size_t)(graph->nmodule + 1) * sizeof *count);
  for (int m = 0; m < graph->nmodule; m++)
    if (graph->module[m].parent != NONE) count[graph->module[m].parent]++;
  for (int m = 0; m < graph->nmodule; m++)
    if (graph->module[m].steps) count[m] = graph->module[m].steps;
  return count;
}
