// SPDX-License-Identifier: MIT
// The thread that makes MPI go on with collectives beside arithmetic.
#include "cpu/overlap.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

// Between two looks at what has come: short beside a collective that is worth overlapping, long
// beside what a look takes.
enum { NANOSECONDS_BETWEEN = 20000 };

static pthread_t thread;
static bool is_running;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int in_flight; // of this rank's collectives; under the mutex
static bool ends;     // under the mutex

static void add(int n)
{
  pthread_mutex_lock(&mutex);
  in_flight += n;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&mutex);
}

// Waits until a collective is in flight; false: the end has come.
static bool is_needed(void)
{
  pthread_mutex_lock(&mutex);
  while (!in_flight && !ends) pthread_cond_wait(&changed, &mutex);
  const bool needed = !ends;
  pthread_mutex_unlock(&mutex);
  return needed;
}

// Any call of MPI goes on with all. While the program itself is in one, this one is not needed.
static void *drive(void *unused)
{
  const struct timespec between = {0, NANOSECONDS_BETWEEN};
  int is_there;
  while (is_needed()) {
    if (!__atomic_load_n(&pending, __ATOMIC_ACQUIRE))
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &is_there, MPI_STATUS_IGNORE);
    nanosleep(&between, NULL);
  }
  return unused;
}

void overlap_start(void)
{
  int level = MPI_THREAD_FUNNELED;
  if (MPI_Query_thread(&level) != MPI_SUCCESS || level < MPI_THREAD_MULTIPLE) return;
  is_running = pthread_create(&thread, NULL, drive, NULL) == 0;
}

void overlap_stop(void)
{
  if (!is_running) return;
  pthread_mutex_lock(&mutex);
  ends = true;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&mutex);
  pthread_join(thread, NULL);
  is_running = false;
}

int begun(const MPI_Request *request, int error)
{
  if (error == MPI_SUCCESS && *request != MPI_REQUEST_NULL) add(1);
  return error;
}

int await(MPI_Request *request)
{
  if (*request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  const int error = MPI_Wait(request, MPI_STATUS_IGNORE);
  add(-1);
  return error;
}
