/* early_end.c: searches that their bound ends: plan.txt and plan.json list them. */
#include "ir/ir.h"

#include <string.h>

void ended_early(const char *where, const char *what, int64_t most, const char *unit)
{
  for (int i = 0; i < graph->nended; i++)
    if (!strcmp(graph->ended[i].where, where) && !strcmp(graph->ended[i].what, what)) return;
  GROW(graph->ended, graph->nended, graph->ended_room);
  graph->ended[graph->nended++] =
      (struct early_end){.where = where, .what = what, .unit = unit, .most = most};
}
