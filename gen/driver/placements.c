/* placements.c: the placements that the plan leaves to auto().

   Takes   the graph of the pass `lua`, with what auto() asks for.
   Leaves  the styles and units that a plan without auto() would have. */
#include "driver/driver.h"
#include <stdlib.h>
#include <stdio.h>

void decide_placements(void)
{
  if (!graph->automatic) return;
  const struct automatic *a = graph->automatic;
  graph->automatic = NULL;
  const struct solution s = choose_placements(a);
  if (!s.is_exact)
    ended_early("auto", "the cheapest placements", 1, "table of costs");
  add_styles_of(&s, a);
  if (getenv("AUTO_DEBUG")) {
    fprintf(stderr, "cost %g, parameters %g\n", s.cost, s.parameters);
    for (int i = 0; i < graph->nstyle; i++)
      for (int k = 0; k < graph->style[i].nrequest; k++) {
        const struct layout_request *r = &graph->style[i].request[k];
        fprintf(stderr, "%s %s %s %d %s/%d\n", graph->module[graph->style[i].module].path,
                graph->mesh.name[graph->style[i].mesh_dim],
                r->what == REQUEST_PARAMETER ? graph->value[r->value].name
                : r->what == REQUEST_INPUT   ? "in"
                                             : "out",
                r->index, placement_text(r->to), r->to.cut_order);
      }
    for (int i = 0; i < graph->nunit; i++)
      fprintf(stderr, "unit %s %x\n", graph->unit[i].name, graph->unit[i].shards);
  }
}
