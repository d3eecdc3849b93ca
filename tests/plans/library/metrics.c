/* metrics: a model with metrics (metrics.lua): the outputs of a forward are, in the header's order,
   the loss, `another`, which is four times that, and `half`. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
  struct model *model;
  struct model_tensor tensor;
  float out[MODEL_OUTPUTS] = {0}, loss = 0;
  static const char *const names[] = {"loss", "another", "half"};
  MPI_Init(&argc, &argv);
  int bad = model_open(MPI_COMM_WORLD, NULL, &model) != MODEL_OK;
  for (int i = 0; i < 2 && !bad; i++) {
    bad |= MODEL_OUTPUTS != 3;
    bad |= model_forward(model, NULL, (void *const[]){&out[0], &out[1], &out[2]}) != MODEL_OK;
    bad |=
        fabsf(out[1] - 4 * out[0]) > 1e-6f * out[1] || fabsf(out[2] - out[0] / 2) > 1e-6f * out[0];
    for (int k = 0; k < 3; k++) {
      bad |= model_tensor_at(model, MODEL_INPUTS + k, &tensor) != MODEL_OK;
      bad |= strcmp(tensor.name, names[k]) != 0;
    }
    bad |= model_step(model, NULL, &loss) != MODEL_OK || fabsf(loss - out[0]) > 1e-6f * loss;
  }
  if (bad)
    fprintf(stderr, "loss %g: %g %g %g: %s\n", (double)loss, (double)out[0], (double)out[1],
            (double)out[2], model_error(model));
  model_close(model);
  MPI_Finalize();
  return bad;
}
