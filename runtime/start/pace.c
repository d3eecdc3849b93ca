// SPDX-License-Identifier: MIT
#include "start/pace.h"

#include "base/clock.h"
#include "base/target.h"

static struct {
  bool open;
  int next;    // the step after which they ask
  int last;    // after which they did, 0: not yet,
  double when; // and when
} pace;

void pace_open(void)
{
  pace.open = true;
  pace.when = seconds_now();
}

// The step after which to ask again, about a second later: at most twice as many steps as since the
// last time.
static int next_after(int t)
{
  const double now = seconds_now(), passed = now - pace.when;
  const int steps = t - pace.last;
  const double each = steps > 0 && passed > 0 ? passed / steps : 1;
  const double in_a_second = 1 / each < 2.0 * steps ? 1 / each : 2.0 * steps;
  pace.when = now;
  pace.last = t;
  return t + (in_a_second > 1 ? (int)in_a_second : 1);
}

bool pace_is_due(int t)
{
  if (!pace.open || t < pace.next) return false;
  if (pace.last == 0) pace.last = t - 1;
  pace.next = next_after(t); // rank 0's counts
  target_share(&pace.next, sizeof pace.next);
  return true;
}
