/* placements.c: the placements that the plan leaves to auto().

   Takes   the graph of the pass `lua`, with what auto() asks for.
   Leaves  the styles and units that a plan without auto() would have. */
#include "driver/driver.h"

void decide_placements(void)
{
  if (!graph->automatic) return;
  const struct automatic *a = graph->automatic;
  graph->automatic = NULL;
  const struct solution s = solve_placements(a, a->parameters ? 1e9 : 0);
  if (!s.is_exact)
    ended_early("auto", "the cheapest placements", 1, "table of costs");
  add_styles_of(&s, a);
}
