// SPDX-License-Identifier: MIT
// The state of the model that runs.
#include "base/program.h"

OF_MODEL const struct rank *rank;
OF_MODEL const struct program *program;
OF_MODEL void *rank_memory;
OF_MODEL double learning_rate_factor = 1;
OF_MODEL communicator *rank_communicators;

bool is_average(const char *name)
{
  return strncmp(name, AVERAGE_PREFIX, strlen(AVERAGE_PREFIX)) == 0;
}

bool keeps_average(void)
{
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].role == STATE && is_average(program->tensors[i].name.name)) return true;
  return false;
}

OF_MODEL const struct place *pending;
#ifndef TPGEN_CUDA
OF_MODEL struct waits rank_waits;
#endif
OF_MODEL int pending_microbatch;
OF_MODEL unsigned long collectives;
