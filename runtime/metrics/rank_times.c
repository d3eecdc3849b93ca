// SPDX-License-Identifier: MIT
#include "metrics/rank_times.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/program.h"
#include "base/target.h"

static struct {
  uint32_t *all; // microseconds of each rank; NULL: they do not ask
  double since;  // the work by the last report
  double paused;
} times;

bool rank_times_open(bool asks, struct failure *why)
{
  times.since = target_worked();
  if (!asks) return true;
  times.all = calloc((size_t)program->world, sizeof *times.all);
  return times.all || failed(why, "out of memory for the times of %d ranks", program->world);
}

// Each rank's number is combined with the others' zeros.
static void gather(double own)
{
  const double microseconds = fmin(own * 1e6, UINT32_MAX);
  for (int r = 0; r < program->world; r++) times.all[r] = 0;
  times.all[rank->id] = (uint32_t)microseconds;
  target_combine(times.all, (size_t)program->world);
}

struct rank_times rank_times_report(int steps)
{
  const double worked = target_worked();
  struct rank_times t = {.own = (worked - times.since) / steps};
  double sum = 0;
  uint32_t most = 0;
  if (times.all) {
    gather(t.own);
    for (int r = 0; r < program->world; r++) {
      sum += times.all[r];
      if (times.all[r] > most) most = times.all[t.slowest_rank = r];
    }
    t.mean = sum * 1e-6 / program->world;
    t.slowest = most * 1e-6;
  }
  times.since = target_worked();
  return t;
}

void rank_times_pause(void)
{
  times.paused = target_worked();
}

void rank_times_resume(void)
{
  times.since += target_worked() - times.paused;
}

void rank_times_close(void)
{
  free(times.all);
  times.all = NULL;
}
