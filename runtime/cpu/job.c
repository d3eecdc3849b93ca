// SPDX-License-Identifier: MIT
// The CPU target of a program: it starts MPI, ends the job where a call fails, and ends MPI.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include "base/clock.h"
#include "cpu/cpu.h"
#include "cpu/kernels/math.h"
#include "cpu/overlap.h"

void fail_call(const char *file, int line, const char *call, const char *why)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  const char *base = strrchr(file, '/');
  if (!why) why = cpu_last_error(text);
  if (neighbours_want_report(rank->id))
    fprintf(stderr, "rank %d: %s failed at %s:%d%s%s\n", rank->id, call, base ? base + 1 : file,
            line, why ? ": " : "", why ? why : "");
  fflush(NULL);
  silence_local_ranks();
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

bool target_capture(struct failure *why)
{
  return failed(why, "--graph: there are graphs in programs for GPUs only");
}

bool target_profile(struct failure *why)
{
  return failed(why, "--profile: only programs for GPUs measure it; use perf for others");
}

// MPI allocates a buffer in every call of a reduction: keeps freed memory for the next one.
// Otherwise the system would clear these pages again, which takes as long as the sum.
static void keep_room(void)
{
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20); // the most that is allowed
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

void target_prepare(char **argv)
{
  take_newer_blas_core(argv);
}

bool target_start(struct identity *me, struct failure *why)
{
  int level, error, length;
  char text[MPI_MAX_ERROR_STRING] = "";
  keep_room();
  const int wanted = program->overlaps ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  WAITING("MPI_Init", error = MPI_Init_thread(NULL, NULL, wanted, &level));
  if (error != MPI_SUCCESS) {
    MPI_Error_string(error, text, &length);
    return failed(why, "MPI_Init failed: %s", text);
  }
  if (program->overlaps) overlap_start();
  cpu_join(MPI_COMM_WORLD);
  if (me->launcher && (me->rank != ranks.here || me->size != ranks.size))
    return failed(why,
                  "%s says rank %d of %d (%s, %s), but MPI says rank %d of %d: "
                  "start it with run.sh, mpirun, or srun --mpi=pmix",
                  me->launcher, me->rank, me->size, me->rank_variable, me->size_variable,
                  ranks.here, ranks.size);
  me->rank = ranks.here;
  me->size = ranks.size;
  return true;
}

int target_neighbours(struct neighbour **list)
{
  MPI_Comm machine;
  int n;
  struct neighbour me = {ranks.here, (int)getpid()};
  COLLECTIVE(.plan_line = 0,
             MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  CHECK_MPI(MPI_Comm_size(machine, &n));
  *list = calloc((size_t)n, sizeof **list);
  if (!*list) fail_call(__FILE__, __LINE__, "calloc", "out of memory");
  COLLECTIVE(.plan_line = 0, MPI_Allgather(&me, 2, MPI_INT, *list, 2, MPI_INT, machine));
  COLLECTIVE(.plan_line = 0, MPI_Comm_free(&machine));
  return n;
}

struct waiting target_waiting(void)
{
  return waiting_in_call();
}

// MPI ends the job by itself.
bool target_trouble(struct failure *what)
{
  (void)what;
  return false;
}

void target_abandon(void)
{
}

// From /proc: getrusage would include the peak of the launcher before it started this program.
size_t target_peak(void)
{
  char line[128];
  size_t kilobytes = 0;
  FILE *status = fopen("/proc/self/status", "re");
  if (!status) return 0;
  while (kilobytes == 0 && fgets(line, sizeof line, status))
    sscanf(line, "VmHWM: %zu kB", &kilobytes);
  fclose(status);
  return kilobytes * 1024;
}

// All that is no collective.
double target_worked(void)
{
  return rank_waits.measured ? seconds_now() - rank_waits.seconds : 0;
}

void target_measure_work(bool takes_apart)
{
  (void)takes_apart;
  rank_waits.measured = true;
}

double target_peak_tflops(void)
{
  return 0;
}

void target_stop(void)
{
  overlap_stop();
  cpu_leave();
  WAITING("MPI_Finalize", MPI_Finalize());
}
