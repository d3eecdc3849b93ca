// SPDX-License-Identifier: MIT
// The functions that a library needs from the CPU target.
#include <stdlib.h>
#include <string.h>
#include "cpu/cpu.h"
#include "cpu/kernels/math.h"
#ifdef TPGEN_STAGES
#include "cpu/stages.h"
#endif
#include "base/library_target.h"

bool target_join(MPI_Comm everyone, struct failure *why)
{
  (void)why;
  cpu_join(everyone);
  return true;
}

struct ranks *target_ranks(void)
{
  struct ranks *its = malloc(sizeof *its);
  if (its) *its = ranks;
  return its;
}

void target_use(const struct ranks *its)
{
  cpu_use(its);
#ifdef TPGEN_STAGES
  forget_transfers(); // of a call of another model that failed
#endif
  if (rank_memory) program->set_memory(rank_memory);
  if (program->ngroups > 0) program->set_communicators(rank_communicators);
}

void target_leave(void)
{
  cpu_leave();
#ifdef TPGEN_ONEDNN
  forget_onednn();
#endif
}

const char *target_error(char text[MPI_MAX_ERROR_STRING])
{
  return cpu_last_error(text);
}
