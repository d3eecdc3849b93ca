// SPDX-License-Identifier: MIT
#include "start/early_end.h"

#include <stdio.h>
#include "base/clock.h"
#include "base/program.h"
#include "base/target.h"
#include "base/watchdog.h"

static struct {
  double until;          // --max-time, on the monotonic clock; 0: none
  const char *by_signal; // its name; NULL: none has come
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
  if (o->max_time > 0) end.until = began + o->max_time;
  watch_saves(on_request);
}

static bool is_asked(void)
{
  if (__atomic_load_n(&end.by_signal, __ATOMIC_ACQUIRE)) return true;
  return rank->id == 0 && end.until > 0 && seconds_now() >= end.until;
}

bool early_end_is_due(void)
{
  return target_first_failure(!is_asked()) >= 0;
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
