/* A program that trains a model of a library: plans/toy.lua as the library `model`, on two ranks.

     tpgen plans/toy.lua -D tp=2 --emit library -o toy
     cmake -S toy -B toy/build && cmake --build toy/build && cmake --install toy/build --prefix
   /opt/toy mpicc example.c -I/opt/toy/include ...        or by CMake: find_package(model) mpirun -n
   2 ./example

   It prints the loss of each step, as the program `toy/run.sh` computes it, to the last bit. */
#include "model.h"

#include <stdio.h>

/* Ends the job where a call was refused: a caller of the library may do so. */
static void check(int status, const struct model *model, const char *what)
{
  if (status == MODEL_OK) return;
  fprintf(stderr, "%s: %s\n", what, model_error(model));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
  struct model *model;
  struct model_tensor input;
  const struct model_options options = {.threads = 1};
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  check(model_open(MPI_COMM_WORLD, &options, &model), model, "model_open");

  /* This rank's part of an input lies in the model's memory: write it there, and copy nothing. */
  check(model_tensor(model, "input", &input), model, "model_tensor");
  if (rank == 0)
    fprintf(stderr, "input: %ld x %ld of %ld x %ld\n", input.part[0], input.part[1], input.shape[0],
            input.shape[1]);

  for (int i = 0; i < 10; i++) {
    float loss;
    check(model_step(model, NULL, &loss), model, "model_step");
    if (rank == 0) printf("%.9g\n", (double)loss);
  }
  if (argc > 1) check(model_save(model, argv[1]), model, "model_save");

  model_close(model);
  MPI_Finalize();
  return 0;
}
