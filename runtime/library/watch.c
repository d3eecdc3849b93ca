// SPDX-License-Identifier: MIT
// Tells the caller of a library where a collective takes longer than the deadline.
#include "library/library.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"

static void tell(const struct library *m, const struct place *at, double waited)
{
  const struct program *its = m->rank->program;
  const char *base = strrchr(at->file, '/');
  char text[1024];
  int n = snprintf(text, sizeof text, "rank %d: nothing has moved for %.0f s in %.*s (%s:%d)",
                   m->rank->id, floor(waited), (int)strcspn(at->call, "("), at->call,
                   base ? base + 1 : at->file, at->line);
  if (at->plan_line > 0)
    snprintf(text + n, sizeof text - (size_t)n, ", which %s:%d asks for",
             plan_file(its->plan, at->plan_line), plan_line(at->plan_line));
  if (m->options.late)
    m->options.late(m->options.context, text);
  else
    fprintf(stderr, "%s\n", text);
}

// The collective that the model's thread is in now, and how many it has begun; NULL: none.
static const struct place *look(const struct watch *w, unsigned long *begun)
{
  if (!w->pending) return NULL;
  *begun = __atomic_load_n(w->collectives, __ATOMIC_RELAXED);
  return __atomic_load_n(w->pending, __ATOMIC_ACQUIRE);
}

static void *watch(void *of)
{
  enum { TICK = 250000000, SECOND = 1000000000 };
  struct library *m = of;
  struct watch *w = &m->watch;
  unsigned long seen = 0, reported = 0, begun = 0;
  double since = seconds_now();
  pthread_mutex_lock(&w->lock);
  while (!w->stopping) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); // of `wake`: the wall clock may be set meanwhile
    until.tv_nsec += TICK;
    until.tv_sec += until.tv_nsec / SECOND;
    until.tv_nsec %= SECOND;
    pthread_cond_timedwait(&w->wake, &w->lock, &until);
    const struct place *at = look(w, &begun);
    if (!at || begun != seen) {
      seen = begun;
      since = seconds_now();
    } else if (reported != begun &&
               seconds_now() - since > (double)m->options.deadline * w->deadline_factor) {
      reported = begun; // once for each collective
      pthread_mutex_unlock(&w->lock);
      tell(m, at, seconds_now() - since);
      pthread_mutex_lock(&w->lock);
    }
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

static bool make_wake(pthread_cond_t *wake)
{
  pthread_condattr_t by;
  if (pthread_condattr_init(&by) != 0) return false;
  const bool made =
      pthread_condattr_setclock(&by, CLOCK_MONOTONIC) == 0 && pthread_cond_init(wake, &by) == 0;
  pthread_condattr_destroy(&by);
  return made;
}

bool library_watch_start(struct library *m)
{
  struct watch *w = &m->watch;
  if (m->options.deadline <= 0) return true;
  if (pthread_mutex_init(&w->lock, NULL) != 0 || !make_wake(&w->wake)) return false;
  w->deadline_factor = 1;
  w->runs = pthread_create(&w->thread, NULL, watch, m) == 0;
  return w->runs;
}

void library_watch_stop(struct library *m)
{
  struct watch *w = &m->watch;
  if (!w->runs) return;
  pthread_mutex_lock(&w->lock);
  w->stopping = true;
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->lock);
  w->runs = false;
}
