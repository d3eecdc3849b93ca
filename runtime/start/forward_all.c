// SPDX-License-Identifier: MIT
#include "start/forward_all.h"

#include <stdio.h>
#include "base/clock.h"
#include "base/program.h"
#include "base/target.h"
#include "base/watchdog.h"
#include "checkpoint/across_ranks.h"
#include "data/batches.h"
#include "data/tokens.h"
#include "formats/safetensors.h"
#include "tensors/integer_inputs.h"
#include "tensors/row_bounds.h"

// Outputs of all samples of a batch together have no meaning for several batches.
static bool outputs_have_rows(const char *file, struct failure *why)
{
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].role == OUTPUT && program->tensors[i].init.how == OF_BATCH)
      return failed(
          why,
          "%s: it has more than one batch, or less, and the output '%s' is of all samples "
          "of a batch together: give %llu samples, or leave it out of the plan's outputs",
          file, program->tensors[i].name.name, (unsigned long long)batches_samples(FORWARD));
  return true;
}

static bool is_due;

bool forward_all_is_due(void)
{
  return is_due;
}

bool forward_all_open(const struct options *o, struct failure *why)
{
  const char *const *files = o->evaluate ? o->validate : o->data;
  struct failure unfit;
  if (!files[0] || (!o->evaluate && tokens_of_batch() > 0)) return true;
  is_due = o->evaluate || o->data[1] || !safetensors_is_named(o->data[0]);
  if (!batches_open(FORWARD, files, o->tokens, is_due ? why : &unfit)) {
    batches_close_one(FORWARD);
    return !is_due;
  }
  is_due = is_due || batches_all_samples(FORWARD) != batches_samples(FORWARD);
  if (!is_due) batches_close_one(FORWARD); // one batch: its file may have more, and has one reader
  const bool is_one = batches_all_samples(FORWARD) == batches_samples(FORWARD);
  return !is_due || is_one || outputs_have_rows(files[0], why);
}

// Collective.
static bool run_batch(long i, struct save *save)
{
  struct failure why = {""};
  uint64_t samples;
  const uint64_t first = (uint64_t)i * batches_samples(FORWARD);
  if (!all_ranks_ok(batches_fill(FORWARD, i, &samples, &why), &why)) return false;
  watch_step((int)i + 1);
  target_step(1);
  target_wait();
  if (program->noted >= 0 && !all_ranks_ok(numbers_computed((int)i + 1, &why), &why)) return false;
  if (program->row_bounds && !all_ranks_ok(rows_have_room("in a batch", "", &why), &why))
    return false;
  if (!save) return true;
  save_batch(save, first, samples);
  return all_ranks_ok(save_write(save, &why), &why);
}

bool forward_all(const struct saving *what)
{
  struct failure why = {""};
  const long batches = batches_of_epoch(FORWARD);
  struct saving of_all;
  struct save *save = NULL;
  if (!all_ranks_ok(batches_check(FORWARD, 0, batches, &why), &why)) return false;
  if (what) {
    of_all = *what;
    of_all.samples = batches_all_samples(FORWARD);
    if (!(save = save_begin_together(&of_all))) return false;
  }
  const double begun = seconds_now();
  bool ok = true;
  for (long i = 0; ok && i < batches; i++) ok = run_batch(i, save);
  const double seconds = seconds_now() - begun;
  if (save) ok = save_end_together(save, ok);
  if (ok && rank->id == 0)
    printf("%llu samples in %ld batches: %.2f s, %.0f samples/s\n",
           (unsigned long long)batches_all_samples(FORWARD), batches, seconds,
           (double)batches_all_samples(FORWARD) / (seconds > 0 ? seconds : 1e-9));
  return ok;
}
