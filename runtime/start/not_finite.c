// SPDX-License-Identifier: MIT
#include "start/not_finite.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/program.h"
#include "base/target.h"
#include "checkpoint/across_ranks.h"
#include "data/batches.h"
#include "metrics/metrics.h"
#include "start/resume.h"
#include "start/saves.h"

enum { MOST = 10 }; // times that a job goes back

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

bool step_is_left(const struct options *o, int *t)
{
  static int times;
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
