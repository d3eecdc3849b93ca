// SPDX-License-Identifier: MIT
// The functions that a library needs from a target beside target.h: cpu/library.c, cuda/library.cu.
#ifndef LIBRARY_TARGET_H
#define LIBRARY_TARGET_H

#include <mpi.h>
#include "base/failure.h"

#ifdef __cplusplus
extern "C" {
#endif

// Collective. Begins with these ranks, as target_start does for a program. False on all ranks, and
// why, if a model cannot be opened.
bool target_join(MPI_Comm everyone, struct failure *why);

// The state of the target for the model that runs, to be freed; and back.
struct ranks *target_ranks(void);
void target_use(const struct ranks *ranks);

// Collective. Releases all that target_join and target_groups made.
void target_leave(void);

// MPI's message about the last call that failed on the ranks' communicators; or NULL.
const char *target_error(char text[MPI_MAX_ERROR_STRING]);

#ifdef __cplusplus
}
#endif

#endif
