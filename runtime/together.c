#include "together.h"

#include "adapters.h"
#include "checksums.h"
#include "program.h"
#include "target.h"

// ---- saving ------------------------------------------------------------------------------------

// Collective. True.
static bool combine_shares(struct save *s)
{
  size_t count;
  uint32_t *shares = save_shares(s, &count);
  if (count > 0) target_combine(shares, count);
  return true;
}

// Collective. True.
static bool combine_adapters(void)
{
  size_t count;
  uint32_t *numbers = adapters_numbers(&count);
  if (count > 0) target_combine(numbers, count);
  return true;
}

bool save_together(const struct saving *what)
{
  struct failure why = {""};
  bool first = rank->id == 0;
  watch_patience(FILES);
  struct save *s = save_plan(what, &why);
  bool saved = all_ok(s && (!first || save_create(s, &why)) && save_merge(s, &why), &why) &&
               combine_adapters() && all_ok(save_write(s, &why), &why) && combine_shares(s) &&
               all_ok(!first || save_commit(s, &why), &why);
  if (!saved && first && s) save_abandon(s);
  save_end(s);
  watch_patience(1);
  return saved;
}

// ---- filling -----------------------------------------------------------------------------------

// Whether the files are unchanged; all ranks have read their parts.
static bool checks_pass(const struct checks *checks, struct failure *why)
{
  struct failure changed;
  for (size_t i = 0; i < checks->count; i++)
    if (!checks_hold(checks, i, &changed)) return verify_refuse(&changed, why);
  return true;
}

bool fill_together(struct origins *from, bool checked, int *step)
{
  struct failure why = {""};
  struct checks checks = {0};
  from->checks = checked ? &checks : NULL;
  bool ok = all_ok(tensors_fill(from, step, &why), &why);
  if (ok && checked) {
    target_combine(checks.shares, checks.count);
    ok = all_ok(checks_pass(&checks, &why), &why);
  }
  checks_free(&checks);
  return ok;
}
