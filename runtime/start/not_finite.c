// SPDX-License-Identifier: MIT
#include "start/not_finite.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/program.h"
#include "base/target.h"
#include "checkpoint/across_ranks.h"
#include "data/batches.h"
#include "metrics/metrics.h"
#include "start/resume.h"
#include "start/saves.h"
#include "tensors/tensor_table.h"

enum { MOST = 10 }; // times that a job goes back, and steps in a row that it skips

static float number_at(ptrdiff_t offset)
{
  float x;
  target_get(&x, (const char *)rank_memory + offset, sizeof x);
  return x;
}

static bool is_finite_here(void)
{
  return isfinite(number_at(program->loss)) &&
         (program->grad_norm < 0 || isfinite(number_at(program->grad_norm)));
}

bool step_is_not_finite(const struct options *o)
{
  return o->on_nan != NAN_GOES_ON && target_first_failure(is_finite_here()) >= 0;
}

static bool ends(int t, const char *why)
{
  struct failure failure;
  failed(&failure, "step %d: the loss or the norm of the gradients is not finite: %s", t, why);
  return all_ranks_ok(false, &failure);
}

// ---- undoing an update -------------------------------------------------------------------------

static char *before; // the step: parameters and states of this rank

// Calls use(memory, copy, bytes) for each of them, with its place in the copy. Returns all bytes.
static size_t each_updated(void (*use)(void *memory, char *copy, size_t bytes))
{
  size_t at = 0;
  for (int row = 0; row < program->ntensors; row++) {
    const struct tensor *t = &program->tensors[row];
    const struct slice here = table_slice(row);
    const size_t bytes = slice_elements(&here) * table_type(t->type).bytes;
    if (t->role != PARAMETER && t->role != STATE) continue;
    for (int k = 0; k < t->count; k++, at += bytes)
      if (use) use((char *)rank_memory + t->offset + (size_t)k * t->stride, before + at, bytes);
  }
  return at;
}

static void keep(void *memory, char *copy, size_t bytes)
{
  target_get(copy, memory, bytes);
}

static void put_back(void *memory, char *copy, size_t bytes)
{
  target_put(memory, copy, bytes);
}

bool step_note(const struct options *o, struct failure *why)
{
  if (o->on_nan != NAN_SKIP) return true;
  if (!before) before = malloc(each_updated(NULL) + 1);
  if (!before)
    return failed(why, "out of memory for --on-nan skip: a copy of parameters and states");
  each_updated(keep);
  return true;
}

static bool undo(int t)
{
  static int last, in_row;
  in_row = t == last + 1 ? in_row + 1 : 1;
  last = t;
  if (in_row > MOST) return ends(t, "ten steps before it were skipped");
  each_updated(put_back);
  if (rank->id == 0)
    printf("step: %d  is skipped: the loss or the norm of the gradients is not finite\n", t);
  return true;
}

bool step_is_left(const struct options *o, int *t)
{
  static int times;
  if (o->on_nan == NAN_SKIP) return undo(*t);
  struct failure why = {""}, note = {""};
  char then[PATH_MAX + 100];
  int saved, at = *t;
  saves_wait();
  saved = rank->id == 0 && o->save ? resume_step(o->save) : -1;
  target_share(&saved, sizeof saved);
  if (o->on_nan == NAN_STOP) {
    if (saved < 0) return ends(at, "nothing of it is saved");
    snprintf(then, sizeof then, "nothing of it is saved; %s has the checkpoint of step %d", o->save,
             saved);
    return ends(at, then);
  }
  if (saved < 0) return ends(at, "there is no checkpoint to go back to: --save-every N");
  if (times++ == MOST) return ends(at, "it has gone back to checkpoints ten times");
  const struct position position = batches_position((long)at * program->batches);
  struct origins from = {.load = o->save, .note = &note, .without_inputs = batches_give_all()};
  if (!fill_together(&from, !o->no_verify, t)) return false;
  batches_go_on((long)*t * program->batches, &position);
  if (rank->id == 0)
    printf("step: %d  goes back: the loss or the norm of the gradients is not finite; on from step "
           "%d, without "
           "the batches since then\n",
           at, *t);
  metrics_go_back(*t);
  return all_ranks_ok(
      batches_check(TRAINING, *t * program->batches, o->steps * program->batches, &why), &why);
}
