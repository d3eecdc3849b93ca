// SPDX-License-Identifier: MIT
#include "together.h"

#include "adapters.h"
#include "checksums.h"
#include "program.h"
#include "target.h"
#include "tensor_table.h"

// Collective. Whether the table of this rank has the tensors of rank 0's, in their order: their
// places in files follow from it.
static bool table_is_one(struct failure *why)
{
  struct members members = {0};
  const bool known = table_members(&members, why);
  const uint32_t own = known ? table_sum(&members) : 0;
  uint32_t first = own;
  target_share(&first, sizeof first);
  table_free(&members);
  if (known && first != own)
    return failed(why, "its table of tensors is not that of rank 0: write the programs of all "
                       "ranks again, with one tpgen");
  return known;
}

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
  if (!all_ok(table_is_one(&why), &why)) {
    watch_patience(1);
    return false;
  }
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
  bool ok = all_ok(table_is_one(&why), &why) && all_ok(tensors_fill(from, step, &why), &why);
  if (ok && checked) {
    target_combine(checks.shares, checks.count);
    ok = all_ok(checks_pass(&checks, &why), &why);
  }
  checks_free(&checks);
  return ok;
}
