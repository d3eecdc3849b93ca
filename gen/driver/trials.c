/* trials.c: the memory of a rank and the time of a step if the passes went on from here. They run
   in a process of its own, which hands on these figures and ends: nothing else of it remains. */
#include "driver/driver.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct outcome figures;
static bool is_trial;

bool in_trial(void)
{
  return is_trial;
}

void note_trial(void)
{
  const int64_t needed = memory_of_rank() + library_reserve();
  if (figures.memory < needed) figures.memory = needed;
  figures.ended = true;
  if (graph->stages) note_stage();
  figures.seconds = simulated()->step;
}

void note_level(int level, uint64_t hash)
{
  figures.hash[level] = hash;
  figures.ended = true;
}

/* The time of a step of all places of a pipeline. */
void note_trial_of_pipeline(void)
{
  if (figures.ended) figures.seconds = pipeline_seconds();
}

static void run_child(int to, void (*passes)(void))
{
  close(STDERR_FILENO); /* an error here only says that it cannot be so */
  child_mode();
  if (!arena_is_private()) _exit(3);
  options.dump = options.explain = NULL;
  figures = (struct outcome){0};
  is_trial = true;
  passes();
  const char *at = (const char *)&figures;
  for (size_t left = sizeof figures; left;) {
    const ssize_t n = write(to, at, left);
    if (n < 0 && errno != EINTR) _exit(3);
    if (n > 0) at += n, left -= (size_t)n;
  }
  _exit(0);
}

struct started_trial begin_trial_of(void (*passes)(void))
{
  int ends[2];
  struct started_trial run = {NONE, NONE};
  fflush(NULL);
  if (pipe(ends)) return run;
  run.process = fork();
  if (run.process == 0) {
    close(ends[0]);
    run_child(ends[1], passes);
  }
  close(ends[1]);
  run.from = ends[0];
  return run;
}

struct outcome end_trial(struct started_trial run)
{
  struct outcome t = {0};
  char *at = (char *)&t;
  size_t left = sizeof t;
  while (run.process > 0 && left) {
    const ssize_t n = read(run.from, at, left);
    if (n == 0 || (n < 0 && errno != EINTR)) break;
    if (n > 0) at += n, left -= (size_t)n;
  }
  if (run.from != NONE) close(run.from);
  while (run.process > 0 && waitpid(run.process, NULL, 0) < 0 && errno == EINTR) continue;
  return left ? (struct outcome){0} : t;
}
