// SPDX-License-Identifier: MIT
// The CUDA target of a program: its ranks meet, it ends the job where a call fails, and releases
// all.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cuda/ranks.h"
#include "cuda/steps.h"

void fail_call(const char *file, int line, const char *call, const char *why)
{
  static bool failing;
  const char *base = strrchr(file, '/');
  if (neighbours_want_report(rank->id))
    fprintf(stderr, "rank %d: %s failed at %s:%d%s%s\n", rank->id, call, base ? base + 1 : file,
            line, why ? ": " : "", why ? why : "");
  fflush(NULL);
  silence_local_ranks();
  if (!failing) {
    failing = true;
    cuda_abort();
  }
#ifdef TPGEN_MPI
  if (over_mpi != MPI_COMM_NULL) MPI_Abort(MPI_COMM_WORLD, 1);
#endif
  _exit(1);
}

// ---- meeting before there is NCCL --------------------------------------------------------------

#ifdef TPGEN_MPI

// MPI's default error handler ends the job, which is right at this stage.
static bool start_mpi(struct identity *me, struct failure *why)
{
  int mpi_rank, mpi_size;
  WAITING("MPI_Init", MPI_Init(NULL, NULL));
  over_mpi = MPI_COMM_WORLD;
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
  if (me->launcher && (me->rank != mpi_rank || me->size != mpi_size))
    return failed(why,
                  "%s says rank %d of %d (%s, %s), but MPI says rank %d of %d: start it with "
                  "run.sh, mpirun, torchrun, srun --mpi=pmix, or srun with MASTER_ADDR set to the "
                  "machine of rank 0",
                  me->launcher, me->rank, me->size, me->rank_variable, me->size_variable, mpi_rank,
                  mpi_size);
  me->rank = mpi_rank;
  me->size = mpi_size;
  return true;
}

// torchrun and plain srun leave it to the ranks to find each other; MPI's launchers do not.
static bool wants_mpi(const struct identity *me)
{
  bool torchrun = me->launcher && strcmp(me->launcher, "torchrun") == 0;
  return !torchrun && (me->mpi || !getenv("MASTER_ADDR"));
}

#endif

static bool meet(struct identity *me, struct failure *why)
{
#ifdef TPGEN_MPI
  if (wants_mpi(me)) return start_mpi(me, why);
#endif
  if (!launch_fits(me, program->world, rank->id, why)) return false;
  const int limit = watch_limit();
  bool met;
  set_deadline_factor(2); // the rendezvous reports more about a missing rank than the watchdog
  WAITING("meet_start",
          met = meet_start(&meeting, me, program->hash,
                           limit && limit < MEETING_SECONDS ? limit : MEETING_SECONDS, why));
  set_deadline_factor(1);
  __atomic_store_n(&have_met, met, __ATOMIC_RELEASE);
  return met;
}

static bool choose_device(const struct identity *me, struct failure *why)
{
  int count = 0, local = me->local_rank < 0 ? me->rank : me->local_rank;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    return failed(why, "no GPU that CUDA can use: %s",
                  error != cudaSuccess ? cudaGetErrorString(error) : "there is none");
  error = cudaSetDevice(local % count);
  if (error == cudaSuccess) return true;
  return failed(why, "cannot use GPU %d: %s", local % count, cudaGetErrorString(error));
}

// Collective. False on every rank if one is not ok; `why` stays empty on those that are.
static bool all(bool ok, struct failure *why)
{
  if (ok) why->text[0] = 0;
  return cuda_lowest(ok) == 1;
}

// Either all ranks capture a collective, or none.
static bool is_graph_for_all(struct failure *why)
{
  int all_want = cuda_lowest(wants_graph()), none_wants = cuda_lowest(!wants_graph());
  if (all_want || none_wants) return true;
  why->text[0] = 0;
  if (rank->id > 0) return false; // rank 0 reports it
  return failed(why, "--graph: some ranks were started with it and others were not");
}

void target_prepare(char **argv)
{
  (void)argv;
}

// A rank that cannot start must report it here: in NCCL the others would wait for it.
bool target_start(struct identity *me, struct failure *why)
{
  if (!meet(me, why)) return false;
  if (!all(launch_fits(me, program->world, rank->id, why), why)) return false;
  if (!all(target_same_program(why) && choose_device(me, why), why)) return false;
  if (!all(is_graph_for_all(why), why)) return false;
  cuda_join();
  return true;
}

void target_stop()
{
  cuda_leave();
  target_free(rank_memory);
  meet_stop(&meeting);
#ifdef TPGEN_MPI
  if (over_mpi != MPI_COMM_NULL) WAITING("MPI_Finalize", MPI_Finalize());
#endif
}
