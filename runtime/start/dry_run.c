// SPDX-License-Identifier: MIT
#include "start/dry_run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include "base/clock.h"
#include "base/program.h"
#include "base/target.h"
#include "data/batches.h"
#include "start/saves.h"
#include "tensors/tensor_table.h"

enum { MEASURED = 4 }; // steps; the first is a warm-up

// "78.3 GiB", "0.21 MiB", "400 bytes"
static const char *size_text(double bytes, char to[32])
{
  if (bytes >= 1 << 30)
    snprintf(to, 32, "%.1f GiB", bytes / (1 << 30));
  else if (bytes >= 10 << 10)
    snprintf(to, 32, "%.2f MiB", bytes / (1 << 20));
  else
    snprintf(to, 32, "%.0f bytes", bytes);
  return to;
}

// "2 days 03:04:05", "3:04:05", "4.2 s", "5.00 us"
static const char *time_text(double seconds, char to[48])
{
  const long s = seconds < 1e9 ? (long)seconds : 1000000000;
  if (s >= 86400)
    snprintf(to, 48, "%ld days %02ld:%02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60, s % 60);
  else if (s >= 600)
    snprintf(to, 48, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  else if (seconds >= 0.1)
    snprintf(to, 48, "%.1f s", seconds);
  else if (seconds >= 1e-3)
    snprintf(to, 48, "%.1f ms", seconds * 1e3);
  else
    snprintf(to, 48, "%.2f us", seconds * 1e6);
  return to;
}

static double bytes_of(bool with_state)
{
  return table_bytes_of(PARAMETER) + (with_state ? table_bytes_of(STATE) : 0);
}

// The free space at the folder, which may not exist yet.
static double free_at(const char *folder)
{
  char path[PATH_MAX];
  struct statvfs about;
  snprintf(path, sizeof path, "%s", folder);
  while (statvfs(path, &about) != 0) {
    char *slash = strrchr(path, '/');
    if (!slash)
      return statvfs(".", &about) == 0 ? (double)about.f_bavail * (double)about.f_frsize : 0;
    slash[slash == path] = 0;
    if (slash == path && statvfs(path, &about) != 0) return 0;
  }
  return (double)about.f_bavail * (double)about.f_frsize;
}

static void tell_written(const char *what, const char *folder, double bytes)
{
  char size[32], left[32];
  if (!folder) return;
  printf("writes: %s: %s%s; %s are free there\n", folder, size_text(bytes, size), what,
         size_text(free_at(folder), left));
}

static void tell_files(const struct options *o)
{
  const double checkpoint = program->loss < 0 ? 0 : bytes_of(true);
  char kept[60] = "";
  if (o->weights) printf("reads: %s\n", o->weights);
  if (o->adapter) printf("reads: %s\n", o->adapter);
  if (o->load) printf("reads: %s\n", o->load);
  if (batches_are_open(TRAINING)) printf("reads: %s\n", batches_summary(TRAINING));
  if (batches_are_open(VALIDATION))
    printf("reads: %s, for %ld batches a validation\n", batches_summary(VALIDATION),
           batches_of_epoch(VALIDATION));
  const int copies = 2 + o->keep_best + (o->keep > 1 ? o->keep - 1 : 0);
  snprintf(kept, sizeof kept, " a checkpoint, at most %d at once", copies);
  if (program->loss >= 0) tell_written(kept, o->save, checkpoint);
  tell_written(" of parameters", o->export_to, bytes_of(false));
  if (o->metrics) printf("writes: %s\n", o->metrics);
  if (o->tensorboard) printf("writes: %s\n", o->tensorboard);
}

static void tell_time(const struct options *o, int step, int measured, double seconds)
{
  char each[48], all[48];
  const int steps = o->steps - step;
  if (steps < 1)
    printf("time: no step is left: training stands at step %d\n", step);
  else if (measured < 1)
    printf("time: one step, which was not measured\n");
  else
    printf("time: %s a step (%d measured), %s for %d steps\n", time_text(seconds / measured, each),
           measured, time_text(seconds / measured * steps, all), steps);
}

void dry_run(const struct options *o, int step)
{
  const int steps = o->steps - step < MEASURED ? o->steps - step : MEASURED;
  double begun = 0;
  char planned[32], most[32], copied[32];
  const size_t copy = saves_copy_bytes(o);
  for (int t = step + 1; t <= step + steps; t++) {
    target_step(t);
    target_wait();
    if (t == step + 1) begun = seconds_now();
  }
  target_first_failure(true); // waits for the others
  const double seconds = seconds_now() - begun;
  if (rank->id != 0) return;
  printf("%s: %d rank%s; nothing is trained or saved\n", program->plan, program->world,
         program->world == 1 ? "" : "s");
  printf("memory: %s of this rank's are the program's, %s all that it has had",
         size_text((double)program->bytes, planned), size_text((double)target_peak(), most));
  if (copy > 0) printf("; a save takes %s more, for a copy", size_text((double)copy, copied));
  printf("\n");
  tell_time(o, step, steps - 1, seconds);
  tell_files(o);
  fflush(stdout);
}
