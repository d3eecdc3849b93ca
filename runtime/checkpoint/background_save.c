// SPDX-License-Identifier: MIT
#include "checkpoint/background_save.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/local_ranks.h"
#include "base/program.h"
#include "base/target.h"
#include "checkpoint/across_ranks.h"

// What the thread does; the ranks agree after each.
enum phase { NONE, CREATE, WRITE, COMMIT };

static struct {
  enum phase phase;
  struct background_save of;
  struct save *save;
  struct copy copy; // kept for the next save
  pthread_t thread;
  bool touches;  // it gets memory
  bool done, ok; // of the phase, on this rank
  struct failure why;
  double begun, paused; // when, and for how long the step waited
} now;

// ---- memory ------------------------------------------------------------------------------------

// A number of a file of the system, in bytes; 0 if it is not there. `name`: at the start of its
// line.
static double number_of(const char *path, const char *name, double unit)
{
  char line[256];
  double number = 0;
  FILE *file = fopen(path, "re");
  while (file && number <= 0 && fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0) number = unit * strtod(line + strlen(name), NULL);
  if (file) fclose(file);
  return number;
}

// What this machine can still give, also within the limit of a container.
static double available(void)
{
  const double machine = number_of("/proc/meminfo", "MemAvailable:", 1024);
  const double limit = number_of("/sys/fs/cgroup/memory.max", "", 1);
  const double used = number_of("/sys/fs/cgroup/memory.current", "", 1);
  return limit > 0 && limit - used < machine ? limit - used : machine;
}

// Whether all ranks of this machine can have a copy, and some room is left.
static bool has_room(size_t bytes)
{
  static const double ROOM = 1.25;
  struct neighbour *list = NULL;
  const int here = neighbours_list(&list);
  free(list);
  return ROOM * (double)bytes * (here > 0 ? here : 1) <= available();
}

// The system gives pages when they are first written.
static void *touch(void *unused)
{
  (void)unused;
  memset(now.copy.bytes, 0, now.copy.room);
  return NULL;
}

size_t background_save_bytes(const struct saving *what)
{
  struct failure unused;
  struct save *save = save_plan(what, &unused);
  const size_t bytes = save ? save_bytes_here(save) : 0;
  save_end(save);
  return bytes;
}

void background_save_prepare(const struct saving *what)
{
  struct failure unused;
  const size_t bytes = background_save_bytes(what);
  if (bytes == 0 || !has_room(bytes) || !save_copy_room(&now.copy, bytes, &unused)) return;
  now.touches = pthread_create(&now.thread, NULL, touch, NULL) == 0;
}

static bool has_copy(struct failure *why)
{
  if (now.touches) pthread_join(now.thread, NULL);
  now.touches = false;
  const size_t bytes = save_bytes_here(now.save);
  if (bytes > now.copy.room && !has_room(bytes)) return failed(why, "no memory for a copy");
  return save_copy(now.save, &now.copy, why);
}

// ---- the thread --------------------------------------------------------------------------------

static void *work(void *unused)
{
  const bool first = rank->id == 0;
  bool ok = true;
  (void)unused;
  if (now.phase == CREATE) ok = !first || save_create(now.save, &now.why);
  if (now.phase == WRITE) ok = save_write(now.save, &now.why);
  if (now.phase == COMMIT)
    ok = !first ||
         (save_commit(now.save, &now.why) && (!now.of.then || now.of.then(&now.of, &now.why)));
  now.ok = ok;
  __atomic_store_n(&now.done, true, __ATOMIC_RELEASE);
  return NULL;
}

static void start(enum phase phase)
{
  now.phase = phase;
  now.done = false;
  now.why = (struct failure){""};
  if (pthread_create(&now.thread, NULL, work, NULL) == 0) return;
  work(NULL); // without a thread the step waits
  now.thread = pthread_self();
}

static void join(void)
{
  if (!pthread_equal(now.thread, pthread_self())) pthread_join(now.thread, NULL);
}

// ---- the parts ---------------------------------------------------------------------------------

static void end(bool saved)
{
  if (!saved && rank->id == 0) save_abandon(now.save);
  save_end(now.save);
  now.save = NULL;
  now.phase = NONE;
}

static void tell_saved(void)
{
  printf("saved: step %d in %s: %.3f s of the step, %.1f s beside the next ones\n",
         now.of.what.step, now.of.what.directory, now.paused,
         seconds_now() - now.begun - now.paused);
  fflush(stdout);
}

static void tell_failed(void)
{
  fflush(stdout);
  fprintf(stderr, "rank %d: note: the checkpoint of step %d is not saved: %s; the job goes on\n",
          rank->id, now.of.what.step, now.why.text);
}

// Collective. All ranks have done the phase.
static bool go_on(void)
{
  join();
  const int failing = target_first_failure(now.ok);
  if (failing >= 0) {
    if (failing == rank->id) tell_failed();
    end(false);
  } else if (now.phase == CREATE) {
    start(WRITE);
  } else if (now.phase == WRITE) {
    size_t count;
    uint32_t *shares = save_shares(now.save, &count);
    if (count > 0) target_combine(shares, count);
    start(COMMIT);
  } else {
    if (rank->id == 0) tell_saved();
    end(true);
    return true;
  }
  return false;
}

bool background_save_begin(const struct background_save *what)
{
  static bool is_checked;
  struct failure why = {""};
  now.begun = seconds_now();
  now.of = *what;
  if (!is_checked && !table_is_of_all_ranks()) return false;
  is_checked = true;
  now.save = save_plan(&what->what, &why);
  target_wait();
  const bool ok = now.save && has_copy(&why);
  if (target_first_failure(ok) >= 0) {
    save_end(now.save);
    now.save = NULL;
    return false;
  }
  now.paused = seconds_now() - now.begun;
  start(CREATE);
  return true;
}

bool background_save_is_under_way(void)
{
  return now.phase != NONE;
}

void background_save_look(void)
{
  if (now.phase == NONE) return;
  if (target_first_failure(__atomic_load_n(&now.done, __ATOMIC_ACQUIRE)) < 0) go_on();
}

int background_save_finish(void)
{
  bool saved = false;
  if (now.phase == NONE) return -1;
  set_deadline_factor(FILES);
  while (now.phase != NONE) saved = go_on();
  set_deadline_factor(1);
  return saved ? now.of.what.step : -1;
}

void background_save_close(void)
{
  background_save_finish();
  if (now.touches) pthread_join(now.thread, NULL);
  save_copy_free(&now.copy);
}
