/* schedule_query.c: --schedule: prints the schedule of a pipeline, or the lowered schedule of one
   in a file. */
#include "driver/driver.h"

#include <string.h>

static struct pipeline *of_file(const char *name)
{
  const size_t most = (size_t)1 << 28;
  size_t length;
  const char *why;
  if (options.ranks_pp || options.stages || options.microbatches)
    usage_error(
        2, "--schedule %s: the file says how many ranks, stages and micro-batches there are", name);
  const char *csv = read_file(name, most, &length, &why);
  if (!csv) usage_error(3, "%s: %s", name, why);
  if (strlen(csv) != length) usage_error(1, "%s: it has a byte 0, and is not text", name);
  struct pipeline *p = read_csv(name, csv, &why);
  if (!p) usage_error(1, "%s", why);
  return p;
}

static struct pipeline *of_name(const char *name)
{
  const char *why;
  const int stages = options.stages ? options.stages : stages_implied(name);
  if (!is_schedule(name))
    usage_error(2, "--schedule %s: the schedules are %s, or a file: %s.csv", name, pipeline_names(),
                name);
  if (!options.ranks_pp || !options.microbatches)
    usage_error(2, "--schedule %s: say how large it is: --ranks-pp 4 --microbatches 8", name);
  if ((int64_t)options.ranks_pp * stages > MAX_STAGES)
    usage_error(2, "--schedule %s: more than %d stages", name, MAX_STAGES);
  if ((int64_t)options.ranks_pp * stages * options.microbatches > MAX_ACTIONS)
    usage_error(2, "--schedule %s: more than %d forwards", name, MAX_ACTIONS);
  struct pipeline *p = pipeline_order(name, options.ranks_pp, stages, options.microbatches, &why);
  if (!p) usage_error(2, "--schedule %s: %s", name, why);
  return p;
}

void run_schedule_query(void)
{
  const char *name = options.schedule, *why = NULL;
  if (!name) return;
  const bool from_file = is_csv(name);
  struct pipeline *p = from_file ? of_file(name) : of_name(name);
  if (is_lowered(p)) {
    const char *hangs = what_hangs(p);
    why = hangs ? text("it hangs: %s", hangs) : NULL;
  } else {
    why = wrong_order(p);
    if (!why && options.lowered) p = lowered(p, &why);
  }
  if (why) usage_error(from_file ? 1 : 3, "%s: %s", name, why);
  fputs(pipeline_csv(p), stdout);
  end_printing();
}
