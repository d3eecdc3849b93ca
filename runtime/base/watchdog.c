// SPDX-License-Identifier: MIT
#include "base/watchdog.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/program.h"
#include "base/target.h"

static int deadline, step, deadline_factor = 1;
static bool watching, stopping, parting;
static volatile sig_atomic_t ended, interrupted; // how often by SIGTERM, by SIGINT or SIGUSR1
static void (*stop_serving)(void);               // of a server, else NULL
static void (*stop_training)(const char *);      // of a training that can save, else NULL
static sem_t wake;
static pthread_t thread;

struct waiting waiting_in_call(void)
{
  return (struct waiting){.at = __atomic_load_n(&pending, __ATOMIC_ACQUIRE),
                          .microbatch = __atomic_load_n(&pending_microbatch, __ATOMIC_RELAXED),
                          .moved = __atomic_load_n(&collectives, __ATOMIC_RELAXED)};
}

// ---- what has become of the others -------------------------------------------------------------

// "rank 1 is gone", "ranks 1, 3 are stopped"; nothing if there is none.
static void put_those(FILE *to, const struct neighbour *list, int n, enum state state,
                      const char *what)
{
  int some = 0;
  for (int i = 0; i < n; i++) some += neighbour_state(&list[i]) == state;
  if (!some) return;
  fprintf(to, some > 1 ? "; ranks" : "; rank");
  for (int i = 0, k = 0; i < n && k < some; i++)
    if (neighbour_state(&list[i]) == state) fprintf(to, "%s %d", k++ ? "," : "", list[i].rank);
  fprintf(to, " %s %s", some > 1 ? "are" : "is", what);
}

static bool any_neighbour_is(enum state state)
{
  struct neighbour *list = NULL;
  const int n = neighbours_list(&list);
  bool any = false;
  for (int i = 0; i < n; i++) any |= neighbour_state(&list[i]) == state;
  free(list);
  return any;
}

// The number of lower ranks of this machine that run.
static int lower_ranks(void)
{
  struct neighbour *list = NULL;
  int n = neighbours_list(&list), lower = 0;
  for (int i = 0; i < n; i++) lower += list[i].rank < rank->id && neighbour_state(&list[i]) == RUNS;
  free(list);
  return lower;
}

// ---- the message -------------------------------------------------------------------------------

// " in MPI_Allreduce (step.c:120), which plans/toy.lua:25 asks for"; of an action of a pipeline
// " in 1RECV_F3 (step_stage1.c:80), ..."
static void put_place(FILE *to, const struct place *at, int microbatch)
{
  const char *base = strrchr(at->file, '/');
  if (at->action)
    fprintf(to, " in %s%d", at->action, microbatch);
  else
    fprintf(to, " in %.*s", (int)strcspn(at->call, "("), at->call);
  fprintf(to, " (%s:%d)", base ? base + 1 : at->file, at->line);
  if (at->plan_line > 0)
    fprintf(to, ", which %s:%d asks for", plan_file(program->plan, at->plan_line),
            plan_line(at->plan_line));
}

// One write, so that the lines of several ranks do not mix.
static void tell(const char *what, const struct waiting *w)
{
  char *text = NULL;
  size_t size = 0;
  struct neighbour *list = NULL;
  FILE *to = open_memstream(&text, &size);
  if (!to) return;
  int n = neighbours_list(&list);
  fprintf(to, "rank %d: error: %s", rank->id, what);
  if (w->at) put_place(to, w->at, w->microbatch);
  int t = w->step ? w->step : __atomic_load_n(&step, __ATOMIC_RELAXED);
  if (t > 0) fprintf(to, ", step %d", t);
  put_those(to, list, n, GONE, "gone");
  put_those(to, list, n, STOPPED, "stopped");
  fputc('\n', to);
  if (fclose(to) == 0) (void)!write(STDERR_FILENO, text, size);
  free(text);
  free(list);
  silence_local_ranks();
}

static bool serves(void)
{
  return __atomic_load_n(&stop_serving, __ATOMIC_ACQUIRE) != NULL;
}

static bool saves(void)
{
  return __atomic_load_n(&stop_training, __ATOMIC_ACQUIRE) != NULL;
}

static void nap(long milliseconds)
{
  nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

// Lets the others leave first, so that they do not report this rank as the lost one.
static void leave_last(void)
{
  nap(200);
}

// A rank that is leaving has no target any more.
static struct waiting waits(void)
{
  return parting ? waiting_in_call() : target_waiting();
}

// The action that this rank waits for. A rank of a server that rests will wait in a moment.
static struct waiting waits_soon(void)
{
  enum { TICK = 20, TICKS = 10 };
  struct waiting w = waits();
  for (int ticks = 0; serves() && !w.at && ticks < TICKS; ticks++) {
    nap(TICK);
    w = waits();
  }
  return w;
}

static void end_by_signal(void)
{
  enum { TICK = 20, TICKS = 10 };
  const struct waiting w = waits_soon();
  // A lower rank reports, unless it was too early for that, or got no SIGTERM.
  int ticks = 0;
  nap(TICK); // a rank that was stopped now receives the others' signals
  while (ticks < TICKS && !neighbours_hushed() && lower_ranks() > 0) {
    nap(TICK);
    ticks++;
  }
  if (ticks < TICKS && !neighbours_hushed())
    tell(w.at ? "the job was ended while it waited" : "the job was ended", &w);
  leave_last();
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
}

// A library's exit handlers may wait for the others, too: limits that wait.
static void leave(void)
{
  enum { SECONDS = 3 };
  leave_last();
  signal(SIGALRM, SIG_DFL);
  alarm(SECONDS);
  target_abandon();
  _exit(EXIT_FAILURE);
}

static void end_by_deadline(const struct waiting *w, double waited)
{
  enum { NAP = 500 };
  char what[64];
  // A lower rank that also waits reports first.
  for (int lower = lower_ranks(); lower > 0 && !neighbours_hushed(); lower--) nap(NAP);
  if (waited < 1)
    snprintf(what, sizeof what, w->at ? "nothing moves" : "the server cannot go on");
  else
    snprintf(what, sizeof what, "nothing has moved for %.0f s", floor(waited));
  if (!neighbours_hushed()) tell(what, w);
  leave();
}

static void end_by_trouble(const struct failure *trouble, const struct waiting *w)
{
  char what[sizeof trouble->text + 32];
  snprintf(what, sizeof what, "%s, while it waited", trouble->text);
  if (!lower_ranks() && !neighbours_hushed()) tell(what, w);
  leave();
}

// ---- the thread --------------------------------------------------------------------------------

// A program that ends all processes of a job sends a rank two signals, one of them through the
// launcher: those that come together count once.
static void on_signal(int number)
{
  static double last[2];
  const int is_interrupt = number != SIGTERM;
  if (last[is_interrupt] == 0 || seconds_now() - last[is_interrupt] > 0.3) {
    if (is_interrupt)
      interrupted++;
    else
      ended++;
  }
  last[is_interrupt] = seconds_now();
  sem_post(&wake);
}

// An older glibc, and other libraries, wait only by the wall clock.
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 30)
#define HAS_SEM_CLOCKWAIT
#endif
#endif

// Until the end of the tick, or until there is something to do. The wall clock may be set
// meanwhile.
static void doze(void)
{
  enum { TICK = 250 };
#ifdef HAS_SEM_CLOCKWAIT
  enum { MILLION = 1000000, SECOND = 1000000000 };
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += TICK * MILLION;
  until.tv_sec += until.tv_nsec / SECOND;
  until.tv_nsec %= SECOND;
  while (sem_clockwait(&wake, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR) continue;
#else
  enum { PART = 10 };
  for (int passed = 0; passed < TICK && sem_trywait(&wake) != 0; passed += PART) nap(PART);
#endif
}

// Whether a signal ends this rank now. A server first ends its answers in progress, and a training
// its step, and saves, unless a rank is lost, or nothing moves; a second signal ends it at once.
static bool ends_by_signal(double waited)
{
  enum { SERVER = 2, TRAINING = 20 }; // seconds
  static bool asked;
  const bool first = ended + interrupted > 0 && !asked;
  if (!serves() && !saves()) return ended > 0;
  if (ended > 1 || (serves() && interrupted > 1)) return true;
  if (ended > 0 && !parting && any_neighbour_is(GONE)) return true;
  if (first && serves()) stop_serving();
  if (first && saves()) stop_training(ended > 0 ? "SIGTERM" : "SIGUSR1");
  asked |= first;
  const int factor = __atomic_load_n(&deadline_factor, __ATOMIC_RELAXED);
  return asked && waited > (serves() ? SERVER : TRAINING * factor);
}

// Whether a rank of this machine is gone or stopped: the lowest looks at all, the others at that
// one.
static bool one_is_missed(void)
{
  struct neighbour *list = NULL;
  const int n = neighbours_list(&list);
  bool missed = false;
  for (int i = 0; i < n && (i == 0 || list[0].rank == rank->id); i++)
    missed |= neighbour_state(&list[i]) != RUNS;
  free(list);
  return missed;
}

// The time for which a rank of a server has been missed, even if no other rank waits for it.
static double missed_for(void)
{
  static double since;
  if (!serves() || parting || deadline == 0 || !one_is_missed())
    since = 0;
  else if (since == 0)
    since = seconds_now();
  return since == 0 ? 0 : seconds_now() - since;
}

static void *watch(void *unused)
{
  static const double MISSED = 0.45; // two ticks
  unsigned long seen = 0;
  double since = seconds_now();
  (void)unused;
  while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
    doze();
    const struct waiting w = waits();
    struct failure trouble;
    if (!w.at || w.moved != seen) {
      seen = w.moved;
      since = seconds_now();
    }
    const double waited = seconds_now() - since;
    if (ends_by_signal(waited)) end_by_signal();
    if (w.at && !parting && target_trouble(&trouble)) end_by_trouble(&trouble, &w);
    if ((deadline &&
         waited > (double)deadline * __atomic_load_n(&deadline_factor, __ATOMIC_RELAXED)) ||
        missed_for() > MISSED)
      end_by_deadline(&w, waited);
  }
  return NULL;
}

void watch_start(int seconds)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  deadline = seconds;
  if (sem_init(&wake, 0, 0) != 0) return;
  watching = pthread_create(&thread, NULL, watch, NULL) == 0;
  if (watching) sigaction(SIGTERM, &action, NULL);
}

int watch_limit(void)
{
  enum { FOR_EVER = 100000000 };
  return deadline < FOR_EVER ? deadline * __atomic_load_n(&deadline_factor, __ATOMIC_RELAXED) : 0;
}

void set_deadline_factor(int deadlines)
{
  __atomic_store_n(&deadline_factor, deadlines, __ATOMIC_RELAXED);
}

void watch_serves(void (*stop)(void))
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  if (!watching) return;
  if (rank->id != 0) action.sa_handler = SIG_IGN; // rank 0 informs the others
  __atomic_store_n(&stop_serving, stop, __ATOMIC_RELEASE);
  sigaction(SIGINT, &action, NULL);
}

void watch_saves(void (*stop)(const char *signal))
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  if (!watching) return;
  __atomic_store_n(&stop_training, stop, __ATOMIC_RELEASE);
  sigaction(SIGUSR1, &action, NULL);
}

void watch_step(int t)
{
  __atomic_store_n(&step, t, __ATOMIC_RELAXED);
}

static void end_thread(void)
{
  __atomic_store_n(&stopping, true, __ATOMIC_RELEASE);
  sem_post(&wake);
  pthread_join(thread, NULL);
  stopping = watching = false;
}

void watch_parting(void)
{
  if (!watching) return;
  end_thread();
  parting = true;
  step = 0;
  watching = pthread_create(&thread, NULL, watch, NULL) == 0;
  if (!watching) signal(SIGTERM, SIG_DFL);
}

void watch_stop(void)
{
  if (!watching) return;
  signal(SIGTERM, SIG_DFL);
  end_thread();
}
