/* steps.c: where the operations of a scan's steps belong: a part of scans.c, for append.c. */
#include "lua/lua.h"

#include <string.h>

struct recorded_scan scan = {.module = NONE, .step = NONE};

int module_of_call(int call)
{
  if (scan.step != NONE && call == scan.call) return scan.step;
  return call == NONE ? 0 : graph->call[call].within;
}

bool in_step(int *call_around)
{
  *call_around = scan.call;
  return scan.step != NONE;
}

int child_named(const char *name, int parent)
{
  for (int m = parent + 1; m < graph->nmodule; m++)
    if (graph->module[m].parent == parent && !strcmp(graph->module[m].name, name)) return m;
  return NONE;
}

/* "cells_0" of the module lstm.cells.0, in a scan of the module lstm. */
static char *name_in_scan_step(int module)
{
  const char *around = scan.call == NONE ? "" : graph->module[graph->call[scan.call].module].path;
  const char *path = graph->module[module].path;
  size_t n = strlen(around);
  if (n && !strncmp(path, around, n) && path[n] == '.') path += n + 1;
  char *name = text("%s%s", *path >= '0' && *path <= '9' ? "module_" : "", path);
  for (char *c = name; *c; c++)
    if (*c == '.') *c = '_';
  return name;
}

int module_within(int module, int call)
{
  if (scan.step == NONE) return module;
  int parent = module_of_call(call);
  const char *name = name_in_scan_step(module);
  int known = child_named(name, parent);
  if (known != NONE) return known;
  known = add_module(name, graph->module[module].class_name, parent, graph->module[module].line);
  graph->module[known].unit = graph->module[module].unit;
  return known;
}

void put_before_scan(void)
{
  int op = graph->order[graph->norder - 1];
  memmove(&graph->order[scan.first + 1], &graph->order[scan.first],
          (size_t)(graph->norder - 1 - scan.first) * sizeof *graph->order);
  graph->order[scan.first++] = op;
  graph->op[op].module = scan.call == NONE ? 0 : graph->call[scan.call].within;
  for (int i = scan.call + 1; i < graph->ncall; i++) {
    graph->call[i].first += graph->call[i].first >= scan.first - 1;
    graph->call[i].last += graph->call[i].last >= scan.first - 1;
  }
}
