// SPDX-License-Identifier: MIT
#include "checkpoint/across_ranks.h"

#include "base/program.h"
#include "base/target.h"
#include "data/batches.h"
#include "metrics/validation_results.h"
#include "tensors/adapters.h"
#include "tensors/checksums.h"
#include "tensors/tensor_table.h"

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

bool table_is_of_all_ranks(void)
{
  struct failure why = {""};
  return all_ranks_ok(table_is_one(&why), &why);
}

struct save *save_begin_together(const struct saving *what)
{
  struct failure why = {""};
  if (!table_is_of_all_ranks()) return NULL;
  struct save *s = save_plan(what, &why);
  if (all_ranks_ok(s && (rank->id != 0 || save_create(s, &why)) && save_merge(s, &why), &why) &&
      combine_adapters())
    return s;
  if (s && rank->id == 0) save_abandon(s);
  save_end(s);
  return NULL;
}

bool save_end_together(struct save *s, bool ok)
{
  struct failure why = {""};
  const bool first = rank->id == 0;
  ok = ok && combine_shares(s) && all_ranks_ok(!first || save_commit(s, &why), &why);
  if (!ok && first) save_abandon(s);
  save_end(s);
  return ok;
}

bool save_together(const struct saving *what)
{
  struct failure why = {""};
  set_deadline_factor(FILES);
  struct save *s = save_begin_together(what);
  const bool saved = s && save_end_together(s, all_ranks_ok(save_write(s, &why), &why));
  set_deadline_factor(1);
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

// Data continues after the samples that the checkpoint has read, with any batch size; so do
// validations.
static void go_on(const struct progress *at)
{
  if (at->has_data)
    batches_go_on((long)at->step * program->batches,
                  &(struct position){.of_samples = at->of_samples,
                                     .tokens = at->tokens,
                                     .epoch = at->epoch,
                                     .sample = at->sample});
  if (at->has_validations) {
    validations.best = at->best;
    validations.best_step = at->best_step;
    validations.without = at->without;
  }
}

bool fill_together(struct origins *from, bool checked, int *step)
{
  struct failure why = {""};
  struct progress at = {0};
  struct checks checks = {0};
  from->checks = checked ? &checks : NULL;
  from->best_name = validations_best_name();
  bool ok =
      all_ranks_ok(table_is_one(&why), &why) && all_ranks_ok(tensors_fill(from, &at, &why), &why);
  if (ok && checked) {
    target_combine(checks.shares, checks.count);
    ok = all_ranks_ok(checks_pass(&checks, &why), &why);
  }
  checks_free(&checks);
  if (ok) go_on(&at);
  *step = at.step;
  return ok;
}
