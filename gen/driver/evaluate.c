/* evaluate.c: the figures of a program for which no files are written: a candidate of --search.

   Where gradients of several batches may be reduced each or as one sum (reductions.c), a process of
   its own evaluates the program that reduces each, and this one goes on with the other. The better
   one's figures remain: the passes run twice, and once where whole sums cannot fit. */
#include "driver/driver.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static struct {
  struct evaluated *to; /* shared with the search */
  bool compares;        /* what is there already is the other way's */
  int64_t limit;        /* of the memory of a rank with whole sums */
} evaluation;

/* The least memory with whole sums: of the ranks of the last program. */
static int64_t least_with_whole_sums(void)
{
  const int64_t *held = memory_by_role();
  int64_t sums = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->on_other_stages || v->unit == NONE) continue;
    const unsigned shards = graph->unit[v->unit].shards;
    struct layout whole = v->layout;
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (shards >> d & 1) whole.on[d] = (struct placement){0};
    int64_t n = elements(v->shape);
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (whole.on[d].kind == SHARD) n /= ranks_along(d);
    if (shards) sums += n * type_bytes(v->reduced_as);
  }
  return held[PARAMETER] + held[STATE] + sums;
}

static void note_figures(void)
{
  check_expectations();
  if (!options.estimates) prove();
  if (graph->stages) note_stage();
}

static struct evaluated evaluated_now(void)
{
  const struct mesh *m = &graph->mesh;
  struct evaluated e = {.is_there = true,
                        .step = step_figures(),
                        .model = model_figures(),
                        .ranks = world_size(),
                        .has_stages = graph->stages != NULL,
                        .has_cluster = has_cluster(),
                        .node = m->cluster.devices,
                        .devices = m->cluster.nodes * m->cluster.devices,
                        .cards = m->cluster.cards,
                        .intra = m->cluster.intra,
                        .inter = m->cluster.inter,
                        .memory = memory_limit(),
                        .reserve = library_reserve(),
                        .least_with_whole_sums = least_with_whole_sums()};
  e.is_usual = m->device.name && m->cluster.name && !strcmp(m->device.name, m->cluster.name);
  if (m->device.name) strncpy(e.device, m->device.name, sizeof e.device - 1);
  return e;
}

bool goes_on_with_whole_sums(int64_t limit)
{
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return false;
  }
  if (pid < 0) return false;
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  const struct evaluated *each = evaluation.to;
  if (each->is_there && each->least_with_whole_sums + each->reserve > limit) _exit(0);
  evaluation.compares = true;
  evaluation.limit = limit;
  return true;
}

void evaluate_program(struct evaluated *to)
{
  evaluation.to = to;
  evaluation.compares = false;
  run_all(note_figures);
  const struct evaluated e = evaluated_now();
  if (evaluation.compares) {
    if (e.step.bytes + e.reserve > evaluation.limit) _exit(!to->is_there);
    if (to->is_there && to->step.seconds <= e.step.seconds) return;
  }
  *to = e;
}
