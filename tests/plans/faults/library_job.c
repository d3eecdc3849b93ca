/* A job that trains a model of a library (plan.lua, tensor parallel), for fault_pairs.sh,
   with the options of run.sh that a library has functions for: --steps N, --save DIR, --save-every
   N, --load DIR, --export DIR, --deadline N. */
#include "model.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank;

static void check(int status, const struct model *model)
{
  if (status == MODEL_OK) return;
  if (rank == 0) fprintf(stderr, "rank %d: error: %s\n", rank, model_error(model));
  MPI_Barrier(MPI_COMM_WORLD); /* all have the same status */
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(struct model *model, const char *name, int step)
{
  struct model_tensor t;
  check(model_tensor(model, name, &t), model);
  unsigned x = (unsigned)step * 2654435761u + (unsigned)*name;
  for (long i = 0; i < t.bytes / 4; i++)
    ((int32_t *)t.data)[i] = (int32_t)((x = x * 1103515245u + 12345u) >> 16) % 256;
}

int main(int argc, char **argv)
{
  const char *save = NULL, *load = NULL, *out = NULL;
  int steps = 0, every = 0;
  struct model *model;
  struct model_options options = {.threads = 1};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--steps")) steps = atoi(argv[i + 1]);
    if (!strcmp(argv[i], "--save-every")) every = atoi(argv[i + 1]);
    if (!strcmp(argv[i], "--deadline")) options.deadline = atoi(argv[i + 1]);
    if (!strcmp(argv[i], "--save")) save = argv[i + 1];
    if (!strcmp(argv[i], "--load")) load = argv[i + 1];
    if (!strcmp(argv[i], "--export")) out = argv[i + 1];
  }
  check(model_open(MPI_COMM_WORLD, &options, &model), model);
  if (load) check(model_load(model, load), model);
  if (rank == 0) fprintf(stderr, "opened\n");
  while (model_steps(model) < steps) {
    float loss;
    usleep(5000);
    const int step = model_steps(model) + 1;
    fill(model, "input", step);
    fill(model, "target", step);
    check(model_step(model, NULL, &loss), model);
    if (save && (step == steps || (every && step % every == 0)))
      check(model_save(model, save), model);
  }
  if (out) check(model_export(model, out), model);
  model_close(model);
  MPI_Finalize();
  return 0;
}
