/* parallel_plan.c: train's parallel = auto{...}: the plan leaves the mesh, and what is cut over it,
   to a search.

   Takes   the settings that the prelude says may vary, after the plan was read.
   Leaves  the graph of the plan with the values that the search found; or ends tpgen where nothing
           fits or no program is asked for. */
#include "driver/driver.h"

#include <stdio.h>
#include <stdlib.h>

static const struct found *found;
static void (*run)(void (*finish)(void)); /* all passes */

static void evaluate(struct evaluated *to)
{
  evaluate_program(to, run);
}

const struct found *found_plan(void)
{
  return found;
}

/* Prints what was found. Ends tpgen where nothing fits, or if nothing else is asked for. */
static void take_found(const struct found *f, bool goes_on)
{
  enum { NOTHING_FITS = 4 };
  found = f;
  if (!options.dump && !options.explain && !options.explain_cost) print_found(f);
  if (f->best == NONE) {
    if (options.out && output_holds_program())
      say("tpgen: %s still holds the program of before", options.out);
    else if (options.out) {
      add_search_json(f);
      add_report_page();
      write_files(options.plan, "");
    }
    if (fflush(stdout) || ferror(stdout)) usage_error(3, "cannot write to standard output");
    exit(NOTHING_FITS);
  }
  if (!goes_on) end_printing();
  options.search = false;
  struct definition *list;
  const int n = definitions_of(f->space, &f->tried[f->best], &list);
  take_definitions(f->space, n, list);
  graph_open();
}

void search_settings(void (*passes)(void (*finish)(void)))
{
  run = passes;
  struct search_space *space = options.search ? read_space() : NULL;
  if (space) take_found(search_plan(space, evaluate), options.out);
}

void search_parallel_plan(void (*passes)(void (*finish)(void)))
{
  run = passes;
  if (!plan_options->parallel.is_asked) {
    if (options.search)
      usage_error(2,
                  "%s declares no setting that a search may vary: write search = beside it, as in "
                  "{\"tp\", 1, \"ranks that share each layer\", search = \"tensor\"}, or let train "
                  "say parallel = auto{}",
                  options.plan);
    if (options.search_time > 0 && !options.is_candidate && !found)
      usage_error(2,
                  "--search-time: there is no search without --search, as train of %s does not say "
                  "parallel = auto{}",
                  options.plan);
    return;
  }
  if (options.is_candidate)
    plan_error(plan_options->parallel.line,
               "train's parallel = auto{...} is a search of its own, and --search varies settings "
               "of this plan: leave out search = beside them, or auto");
  const bool goes_on = options.out || options.dump || options.explain || options.explain_cost;
  take_found(search_plan(space_of_parallel(), evaluate), goes_on);
  lua();
}
