// SPDX-License-Identifier: MIT
// The steps of a CUDA program: copies to the GPU and back, a graph of a whole step, and the
// position of the GPU in it.
//
// Whenever `stream` has passed a collective, the GPU increments a count of these marks in host
// memory. Every step issues the same collectives, so the count identifies the collective and the
// step that the GPU waits in, however far ahead of it the host is.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/program.h"
#include "base/target.h"
#include "cuda/profile.h"
#include "cuda/steps.h"

// ---- marks -------------------------------------------------------------------------------------

struct waited {
  const struct place *at;
  int microbatch; // if it is an action of a pipeline
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // the watchdog's thread reads
static struct waited *place;              // the collectives of a step, in the order of their marks
static unsigned long count, room, issued; // in a step; marks issued to the GPU in all
static int first_step;
static bool known;                 // the first step has recorded the marks
static unsigned long long *passed; // marks that the GPU has passed, in host memory
static bool validates;             // a validation is being issued, which has no marks
static bool captures;              // work is being captured into a graph, and does not run
static struct waited beside;       // the last call on another stream
static struct waited *ends_at; // the call that ends at each of the program's events; none: awaited
static __device__ unsigned long long passed_so_far;

static __global__ void mark(unsigned long long *seen)
{
  *seen = ++passed_so_far;
}

static void *zeroed(size_t n, size_t size)
{
  void *memory = calloc(n ? n : 1, size);
  if (!memory) fail_call(__FILE__, __LINE__, "calloc", "out of memory");
  return memory;
}

static void open_marks()
{
  CHECK_CUDA(cudaMallocHost((void **)&passed, sizeof *passed));
  *passed = 0;
  ends_at = (struct waited *)zeroed((size_t)program->nevents, sizeof *ends_at);
}

static void add_place(const struct waited *at)
{
  if (count == room) {
    room = room ? 2 * room : 64;
    place = (struct waited *)realloc(place, room * sizeof *place);
    if (!place) fail_call(__FILE__, __LINE__, "realloc", "out of memory");
  }
  place[count++] = *at;
}

// All marks are on `stream`: on an overlapped stream, while kernels fill the GPU, a mark would wait
// for room, and the work that awaits the collective would wait with it.
static void set_mark(const struct waited *at)
{
  if (validates) return;
  pthread_mutex_lock(&lock);
  if (!known) add_place(at);
  issued += !captures;
  pthread_mutex_unlock(&lock);
  LAUNCH(mark, 1, 1, stream)(passed);
}

void mark_collective(const struct place *at, cudaStream_t on)
{
  if (!passed) open_marks();
  const struct waited call = {at, pending_microbatch};
  if (on == stream)
    set_mark(&call);
  else
    beside = call;
}

static int number_of(cudaEvent_t event)
{
  int i = 0;
  while (i < program->nevents && program->events[i] != event) i++;
  if (i == program->nevents) fail_call(__FILE__, __LINE__, "number_of", "no event of the program");
  return i;
}

void mark_end(cudaEvent_t event)
{
  ends_at[number_of(event)] = beside;
  beside.at = NULL;
}

void mark_awaited(cudaEvent_t event)
{
  struct waited *ended = &ends_at[number_of(event)];
  if (ended->at) set_mark(ended);
  ended->at = NULL;
}

bool is_unawaited(cudaEvent_t event)
{
  return ends_at && ends_at[number_of(event)].at;
}

// The first collective that the GPU has not passed; else what the host itself waits in.
struct waiting target_waiting()
{
  struct waiting w = waiting_in_call();
  pthread_mutex_lock(&lock);
  unsigned long here = passed ? (unsigned long)__atomic_load_n(passed, __ATOMIC_RELAXED) : 0;
  if (here < issued) {
    w.at = place[here % count].at;
    w.microbatch = place[here % count].microbatch;
    w.step = first_step + (int)(here / count);
  }
  pthread_mutex_unlock(&lock);
  w.moved += here;
  return w;
}

// ---- a step ------------------------------------------------------------------------------------

static bool wants;
static cudaGraphExec_t graph;

bool wants_graph()
{
  return wants;
}

bool target_capture(struct failure *why)
{
  (void)why;
  wants = true;
  // Steps run either all as graphs or none: communicators need not support a mix.
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
  return true;
}

// All ranks capture at the same step. A graph cannot hold the actions of libraries at their first
// call, such as connecting: so the step before was not captured, and has ended.
static void capture_step()
{
  cudaGraph_t captured;
  target_wait();
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  captures = true;
  program->step();
  captures = false;
  CHECK_CUDA(cudaStreamEndCapture(stream, &captured));
  CHECK_CUDA(cudaGraphInstantiateWithFlags(&graph, captured, 0));
  CHECK_CUDA(cudaGraphDestroy(captured));
}

static void launch_graph()
{
  pthread_mutex_lock(&lock);
  issued += count;
  pthread_mutex_unlock(&lock);
  CHECK_CUDA(cudaGraphLaunch(graph, stream));
}

void target_begin()
{
  if (!program->begin) return;
  program->begin();
  CHECK_CUDA(cudaGetLastError());
}

void target_step(int t)
{
  if (!known) first_step = t;
  if (program->prepare) program->prepare(t);
  if (wants && known) {
    if (!graph) capture_step();
    launch_graph();
  } else {
    program->step();
    CHECK_CUDA(cudaGetLastError()); // of the kernels' launches
  }
  known = true;
  profile_step();
}

// Collectives of a forward pass may end on their own streams, and be awaited only in the backward
// pass.
static void wait_for_all_streams()
{
  target_wait();
  for (int i = 0; i < program->ngroups; i++)
    if (program->groups[i].stream) CHECK_CUDA(cudaStreamSynchronize(*program->groups[i].stream));
}

void target_run(void (*entry)())
{
  WAITING("the step before a validation", wait_for_all_streams());
  validates = true;
  entry();
  CHECK_CUDA(cudaGetLastError());
  WAITING("a validation", wait_for_all_streams());
  validates = false;
}

// ---- to the GPU and back -----------------------------------------------------------------------

// A copy to the GPU from pageable memory may wait for all earlier work ("API synchronization
// behavior" in CUDA's documentation); one from pinned memory does not. Data passes through some
// pinned stages; each waits only for its own copy. So the host can prepare a step while the GPU
// runs the one before.
enum { STAGES = 4, STAGE_BYTES = 4 << 20 };

static struct stage {
  char *memory;
  cudaEvent_t copied;
} stages[STAGES];
static int next_stage;

static void open_stage(struct stage *s)
{
  CHECK_CUDA(cudaMallocHost((void **)&s->memory, STAGE_BYTES));
  CHECK_CUDA(cudaEventCreateWithFlags(&s->copied, cudaEventDisableTiming));
}

static void put_piece(char *memory, const char *from, size_t bytes)
{
  struct stage *s = &stages[next_stage++ % STAGES];
  if (!s->memory)
    open_stage(s);
  else
    CHECK_CUDA(cudaEventSynchronize(s->copied));
  memcpy(s->memory, from, bytes);
  CHECK_CUDA(cudaMemcpyAsync(memory, s->memory, bytes, cudaMemcpyHostToDevice, stream));
  CHECK_CUDA(cudaEventRecord(s->copied, stream));
}

void target_put(void *memory, const void *from, size_t bytes)
{
  const size_t most = STAGE_BYTES;
  for (size_t done = 0; done < bytes; done += most) {
    size_t left = bytes - done;
    put_piece((char *)memory + done, (const char *)from + done, left < most ? left : most);
  }
}

void target_get(void *to, const void *memory, size_t bytes)
{
  CHECK_CUDA(cudaMemcpyAsync(to, memory, bytes, cudaMemcpyDeviceToHost, stream));
  target_wait();
}

// Without a limit: the watchdog ends the job if it is in vain.
void target_wait()
{
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

void close_steps()
{
  profile_tell();
  if (graph) cudaGraphExecDestroy(graph);
  graph = NULL;
  for (int i = 0; i < STAGES && stages[i].memory; i++) {
    cudaEventDestroy(stages[i].copied);
    cudaFreeHost(stages[i].memory);
    stages[i].memory = NULL;
  }
  next_stage = 0;
  if (passed) cudaFreeHost(passed);
  close_finite();
  free(place);
  free(ends_at);
  passed = NULL;
  place = ends_at = NULL;
  count = room = issued = 0;
  known = false;
}
