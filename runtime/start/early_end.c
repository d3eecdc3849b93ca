// SPDX-License-Identifier: MIT
#include "start/early_end.h"

#include <stdio.h>
#include "base/clock.h"
#include "base/program.h"
#include "base/target.h"
#include "base/watchdog.h"

static struct {
  bool open;
  double until;          // --max-time, on the monotonic clock; 0: none
  const char *by_signal; // its name; NULL: none has come
  int next;              // the step after which the ranks ask each other again
  int asked_at;          // the last such step
  double asked;          // and when it was
} end;

static double began;

// The time counts from the start of the process.
__attribute__((constructor)) static void begin(void)
{
  began = seconds_now();
}

static void on_request(const char *signal)
{
  __atomic_store_n(&end.by_signal, signal, __ATOMIC_RELEASE);
}

void early_end_open(const struct options *o)
{
  if (!o->save || program->loss < 0) return;
  end.open = true;
  if (o->max_time > 0) end.until = began + o->max_time;
  end.asked = seconds_now();
  watch_saves(on_request);
}

static bool is_asked(void)
{
  if (__atomic_load_n(&end.by_signal, __ATOMIC_ACQUIRE)) return true;
  return rank->id == 0 && end.until > 0 && seconds_now() >= end.until;
}

// The step after which to ask again, about a second later: at most twice as many steps as since the
// last time.
static int next_after(int t)
{
  const double now = seconds_now(), passed = now - end.asked;
  const int steps = t - end.asked_at;
  const double each = steps > 0 && passed > 0 ? passed / steps : 1;
  const double in_a_second = 1 / each < 2.0 * steps ? 1 / each : 2.0 * steps;
  end.asked = now;
  end.asked_at = t;
  return t + (in_a_second > 1 ? (int)in_a_second : 1);
}

bool early_end_is_due(int t)
{
  if (!end.open || t < end.next) return false;
  if (end.asked_at == 0) end.asked_at = t - 1;
  if (target_first_failure(!is_asked()) >= 0) return true;
  end.next = next_after(t); // rank 0's counts
  target_share(&end.next, sizeof end.next);
  return false;
}

void early_end_tell(const struct options *o, int t)
{
  if (rank->id != 0) return;
  const char *signal = __atomic_load_n(&end.by_signal, __ATOMIC_ACQUIRE);
  const bool by_time = end.until > 0 && seconds_now() >= end.until;
  printf("step: %d  stops: %s; %s has its checkpoint, and --resume %s goes on\n", t,
         signal    ? signal
         : by_time ? "--max-time is over"
                   : "a signal to another rank",
         o->save, o->save);
  fflush(stdout);
  silence_local_ranks();
}
