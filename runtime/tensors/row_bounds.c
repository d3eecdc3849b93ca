// SPDX-License-Identifier: MIT
// The treatment of rows by expert that had too little room.
//
// Where the host knows the counts, on the CPU, all ranks agree after a step's backward, and none
// does the update: parameters, and what the optimizer keeps of them, stay those of the step before.
// On a GPU the host reads the notes when it reports, validates or saves; steps until then have
// updated with numbers of no meaning, and none of that is saved.
#include "tensors/row_bounds.h"

#include "base/program.h"
#include "base/target.h"

static OF_MODEL bool ended;

static unsigned long long note_here(void)
{
  unsigned long long its = 0;
  if (program->row_bounds && program->row_bounds->list)
    target_get(&its, (const char *)rank_memory + program->row_bounds->noted, sizeof its);
  return its;
}

bool all_rows_have_room(void)
{
  ended = target_first_failure(note_here() == 0) >= 0;
  return !ended;
}

bool step_has_ended_early(void)
{
  return ended;
}

bool rows_have_room(const char *when, const char *then, struct failure *why)
{
  const unsigned long long its = note_here();
  const long rows = (long)(its >> ROWS_AT);
  if (rows == 0) return true;
  const struct row_bound *of = &program->row_bounds->list[its & NOTED_BITS];
  const int module = (int)(its >> NOTED_MODULE_AT & NOTED_BITS);
  const char *star = strchr(of->name, '*');
  const int before = star ? (int)(star - of->name) : (int)strlen(of->name);
  char name[200];
  snprintf(name, sizeof name, "%.*s", before, of->name);
  if (star) snprintf(name, sizeof name, "%.*s%d%s", before, of->name, module, star + 1);
  const double needed = of->bound * (double)rows / (double)of->room;
  return failed(
      why,
      "%s:%d: %s: %s %ld rows %s, and bound = %g has room for %ld: say a bound of %.10g or "
      "more, or none%s",
      plan_file(program->plan, of->line), plan_line(of->line), name,
      of->for_one ? "this rank had for the experts of one rank" : "this rank's experts had", rows,
      when, of->bound, of->room, (double)((long)(100 * needed) + 1) / 100, then);
}

void forget_rows(void)
{
  const unsigned long long none = 0;
  if (program->row_bounds && program->row_bounds->list)
    target_put((char *)rank_memory + program->row_bounds->noted, &none, sizeof none);
  ended = false;
}
