// SPDX-License-Identifier: MIT
// The CPU target: ranks communicate by MPI, or by cpu/shared_memory/mpi.h, which has MPI's
// functions for ranks of one machine. cpu/job.c has the start and the end of a program,
// cpu/memory.c its memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/elements.h"
#include "cpu/cpu.h"
#include "cpu/kernels/past_cache.h"

OF_MODEL struct ranks ranks;

static OF_MODEL int last_error = MPI_SUCCESS;

// MPI calls this when a call fails, and then returns from that call.
static void remember_error(MPI_Comm *comm, int *error, ...)
{
  (void)comm;
  last_error = *error;
}

const char *cpu_last_error(char text[MPI_MAX_ERROR_STRING])
{
  int length;
  return last_error != MPI_SUCCESS && MPI_Error_string(last_error, text, &length) == 0 ? text
                                                                                       : NULL;
}

// ---- reductions of bfloat16 ---------------------------------------------------------------------

OF_MODEL MPI_Op bf16_sum, bf16_max, bf16_min;

// A step of a reduction in MPI's form: combines `from` into `to`.
static void sum_bf16(void *from, void *to, int *n, MPI_Datatype *type)
{
  const bf16 *a = from;
  bf16 *b = to;
  (void)type;
  for (int i = 0; i < *n; i++) b[i] = float_to_bf16(bf16_to_float(a[i]) + bf16_to_float(b[i]));
}

static void max_bf16(void *from, void *to, int *n, MPI_Datatype *type)
{
  const bf16 *a = from;
  bf16 *b = to;
  (void)type;
  for (int i = 0; i < *n; i++)
    b[i] = float_to_bf16(larger(bf16_to_float(a[i]), bf16_to_float(b[i])));
}

static void min_bf16(void *from, void *to, int *n, MPI_Datatype *type)
{
  const bf16 *a = from;
  bf16 *b = to;
  (void)type;
  for (int i = 0; i < *n; i++)
    b[i] = float_to_bf16(smaller(bf16_to_float(a[i]), bf16_to_float(b[i])));
}

// ---- the ranks ----------------------------------------------------------------------------------

void cpu_join(MPI_Comm everyone)
{
  ranks = (struct ranks){.everyone = everyone};
  CHECK_MPI(MPI_Comm_create_errhandler(remember_error, &ranks.handler));
  CHECK_MPI(MPI_Comm_set_errhandler(everyone, ranks.handler));
  CHECK_MPI(MPI_Comm_rank(everyone, &ranks.here));
  CHECK_MPI(MPI_Comm_size(everyone, &ranks.size));
  CHECK_MPI(MPI_Op_create(sum_bf16, 1, &ranks.sum));
  CHECK_MPI(MPI_Op_create(max_bf16, 1, &ranks.max));
  CHECK_MPI(MPI_Op_create(min_bf16, 1, &ranks.min));
  cpu_use(&ranks);
}

void cpu_use(const struct ranks *its)
{
  ranks = *its;
  rank_communicators = ranks.communicators;
  bf16_sum = ranks.sum;
  bf16_max = ranks.max;
  bf16_min = ranks.min;
}

void cpu_leave(void)
{
  WAITING("MPI_Comm_free",
          while (ranks.groups > 0) MPI_Comm_free(&ranks.communicators[--ranks.groups]));
  free(ranks.communicators);
  MPI_Op_free(&ranks.sum);
  MPI_Op_free(&ranks.max);
  MPI_Op_free(&ranks.min);
  MPI_Errhandler_free(&ranks.handler);
}

// ---- what the runtime asks ----------------------------------------------------------------------

int target_first_failure(bool ok)
{
  int mine = ok ? ranks.size : ranks.here, lowest;
  COLLECTIVE(.plan_line = 0, MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, ranks.everyone));
  return lowest < ranks.size ? lowest : -1;
}

bool target_same_program(struct failure *why)
{
  enum { BYTES = 32 };
  char mine[BYTES] = "", first[BYTES];
  snprintf(mine, sizeof mine, "%s", program->hash);
  memcpy(first, mine, BYTES);
  COLLECTIVE(.plan_line = 0, MPI_Bcast(first, BYTES, MPI_CHAR, 0, ranks.everyone));
  if (memcmp(mine, first, BYTES) == 0) return true;
  return failed(why, "rank %d carries the program %.31s, but rank 0 carries %.31s: build it anew",
                ranks.here, mine, first);
}

void target_share(void *bytes, size_t count)
{
  COLLECTIVE(.plan_line = 0, MPI_Bcast(bytes, (int)count, MPI_BYTE, 0, ranks.everyone));
}

void target_combine(uint32_t *numbers, size_t count)
{
  enum { AT_ONCE = 1 << 20 };
  for (size_t done = 0; done < count; done += AT_ONCE) {
    int some = (int)(count - done < AT_ONCE ? count - done : AT_ONCE);
    COLLECTIVE(.plan_line = 0, MPI_Allreduce(MPI_IN_PLACE, numbers + done, some, MPI_UINT32_T,
                                             MPI_BXOR, ranks.everyone));
  }
}

void target_groups(void)
{
  const int n = program->ngroups;
  ranks.communicators = calloc((size_t)n + 1, sizeof *ranks.communicators);
  if (!ranks.communicators) fail_call(__FILE__, __LINE__, "calloc", "out of memory");
  for (; ranks.groups < n; ranks.groups++) {
    const int *members = rank->members[ranks.groups];
    communicator *comm = &ranks.communicators[ranks.groups];
    COLLECTIVE(.plan_line = 0, MPI_Comm_split(ranks.everyone, members[0], place_in(members), comm));
    CHECK_MPI(MPI_Comm_set_errhandler(*comm, ranks.handler));
  }
  cpu_use(&ranks);
  if (n > 0) program->set_communicators(rank_communicators);
}

void target_begin(void)
{
  if (program->begin) program->begin();
}

void target_step(int t)
{
  program->step(t);
}

void target_run(void (*entry)(void))
{
  entry();
}

void target_put(void *memory, const void *from, size_t bytes)
{
  memcpy(memory, from, bytes);
}

// All threads copy: the step waits for a save's copy of the state.
void target_get(void *to, const void *memory, size_t bytes)
{
  copy_by_all(to, memory, bytes);
}

void target_wait(void)
{
}
