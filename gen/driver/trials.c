/* trials.c: the memory of a rank and the time of a step if the passes went on from here. They run
   in a process of its own, which hands on these figures and ends: nothing else of it remains. */
#include "driver/driver.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct outcome figures;
static bool is_trial, counts_received;

bool in_trial(void)
{
  return is_trial;
}

void count_received(void)
{
  counts_received = true;
}

struct received {
  double bytes;    /* that the rank with the most receives */
  double weighted; /* each divided by the bandwidth of the slowest dimension that it goes over, in
                      parts of the fastest */
};

static void add_received(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct received *sum = to;
  double most = 0, least = 0;
  if (!is_collective(op->kind)) return;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    const double bandwidth = graph->mesh.bandwidth[d];
    if (bandwidth > most) most = bandwidth;
    if (graph->group[op->group].dims >> d & 1 && bandwidth > 0 && (least == 0 || bandwidth < least))
      least = bandwidth;
  }
  const double bytes = (double)max_volume_of(op).received * times;
  sum->bytes += bytes;
  sum->weighted += bytes * (least > 0 ? most / least : 1);
}

void note_trial(void)
{
  const int64_t needed = memory_of_rank() + library_reserve();
  if (figures.memory < needed) figures.memory = needed;
  figures.ended = true;
  struct received received = {.weighted = figures.received};
  if (counts_received) each_op(add_received, &received);
  if (figures.bytes < received.bytes) figures.bytes = received.bytes;
  figures.received = received.weighted;
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

static _Noreturn void run_child(struct outcome *to, void (*passes)(void))
{
  close(STDERR_FILENO); /* an error here only says that it cannot be so */
  child_mode();
  if (!arena_is_private()) _exit(3);
  options.dump = options.explain = NULL;
  note_decisions_in(NULL); /* these are no decisions of the program */
  figures = (struct outcome){0};
  is_trial = true;
  counts_received = false;
  passes();
  *to = figures;
  _exit(0);
}

struct started_trial begin_trial_of(void (*passes)(void))
{
  struct started_trial run = {.process = NONE};
  struct outcome *shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return run;
  run.figures = shared;
  fflush(NULL);
  run.process = fork();
  if (run.process == 0) run_child(shared, passes);
  return run;
}

/* A process that ends before its passes do leaves none. */
struct outcome end_trial(struct started_trial run)
{
  if (!run.figures) return (struct outcome){0};
  while (run.process > 0 && waitpid(run.process, NULL, 0) < 0 && errno == EINTR) continue;
  const struct outcome t = *run.figures;
  munmap(run.figures, sizeof *run.figures);
  return t;
}
