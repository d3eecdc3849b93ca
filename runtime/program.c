// SPDX-License-Identifier: MIT
// The state of the model that runs.
#include "program.h"

OF_MODEL const struct rank *rank;
OF_MODEL const struct program *program;
OF_MODEL void *rank_memory;
OF_MODEL communicator *rank_communicators;

OF_MODEL const struct place *pending;
OF_MODEL int pending_microbatch;
OF_MODEL unsigned long collectives;
