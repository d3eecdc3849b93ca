// The order of work on streams, in the stand-in for CUDA: a use without the event, the wait or the
// edge that makes it safe ends the program, and so does what CUDA forbids while a stream captures.
// Where this is compiled for the stand-in's own calls (see CMakeLists.txt) kernels' loads and
// stores are followed; elsewhere those faults are left out.
#include <cuda_runtime.h>
#include <nccl.h>

#include "faults.h"

#include <vector>

#if defined(__SANITIZE_THREAD__)
#define FOLLOWED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FOLLOWED 1
#endif
#endif

static const size_t N = 64, BYTES = N * sizeof(float);

__global__ static void copy_floats(float *y, const float *x)
{
  y[threadIdx.x] = x[threadIdx.x];
}
__global__ static void write_one(float *x, int i)
{
  x[i] = 1;
}

// Two streams, events, and memory that all work so far is done with.
struct device {
  cudaStream_t s, side;
  cudaEvent_t e, f;
  float *x, *y, *z, *pinned;
  device()
  {
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaEventCreate(&e) == cudaSuccess && cudaEventCreate(&f) == cudaSuccess);
    for (float **p : {&x, &y, &z}) {
      CHECK(cudaMalloc(p, BYTES) == cudaSuccess);
      CHECK(cudaMemset(*p, 0, BYTES) == cudaSuccess);
    }
    CHECK(cudaMallocHost(&pinned, BYTES) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
  }
  void wait(cudaStream_t waits, cudaEvent_t event, cudaStream_t on) const
  {
    CHECK(cudaEventRecord(event, on) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(waits, event, 0) == cudaSuccess);
  }
};

static void set(float *x, cudaStream_t on)
{
  CHECK(cudaMemsetAsync(x, 0, BYTES, on) == cudaSuccess);
}
static void copy(float *y, const float *x, cudaStream_t on)
{
  CHECK(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDeviceToDevice, on) == cudaSuccess);
}

// ---- missing events

static void read_unordered()
{
  device d;
  set(d.x, d.s);
  copy(d.y, d.x, d.side);
}
static void write_unordered()
{
  device d;
  set(d.x, d.s);
  CHECK(cudaMemsetAsync(d.x + N / 2, 0, 8, d.side) == cudaSuccess);
}
static void overwritten_too_early()
{
  device d;
  copy(d.y, d.x, d.side);
  set(d.x, d.s);
}
static void event_too_early()
{
  device d;
  CHECK(cudaEventRecord(d.e, d.s) == cudaSuccess);
  set(d.x, d.s);
  CHECK(cudaStreamWaitEvent(d.side, d.e, 0) == cudaSuccess);
  copy(d.y, d.x, d.side);
}
static void one_of_two_readers()
{
  device d;
  cudaStream_t third;
  CHECK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking) == cudaSuccess);
  copy(d.y, d.x, d.side);
  copy(d.z, d.x, third);
  d.wait(d.s, d.e, third);
  set(d.x, d.s);
}
static void host_waits_for_nothing()
{
  device d;
  float back[N];
  set(d.x, d.s);
  CHECK(cudaMemcpy(back, d.x, BYTES, cudaMemcpyDeviceToHost) == cudaSuccess);
}
static void host_changes_source()
{
  device d;
  CHECK(cudaMemcpyAsync(d.x, d.pinned, BYTES, cudaMemcpyHostToDevice, d.s) == cudaSuccess);
  d.pinned[3] = 1;
  CHECK(cudaStreamSynchronize(d.s) == cudaSuccess);
}
static void host_reads_early()
{
  device d;
  CHECK(cudaMemcpyAsync(d.pinned, d.x, BYTES, cudaMemcpyDeviceToHost, d.s) == cudaSuccess);
  if (d.pinned[3] != d.pinned[3]) fprintf(stderr, "not there yet\n"), exit(3);
}
static void collective_unordered()
{
  device d;
  ncclUniqueId id;
  ncclComm_t one;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRank(&one, 1, id, 0) == ncclSuccess);
  set(d.x, d.s);
  CHECK(ncclAllReduce(d.x, d.y, N, ncclFloat, ncclSum, one, d.side) == ncclSuccess);
}
#ifdef FOLLOWED
static void kernel_reads_unordered()
{
  device d;
  LAUNCH(copy_floats, 1, 32, d.s)(d.y, d.x);
  LAUNCH(copy_floats, 1, 32, d.side)(d.z, d.y);
}
static void kernel_overwrites_too_early()
{
  device d;
  LAUNCH(copy_floats, 1, 32, d.s)(d.y, d.x);
  LAUNCH(write_one, 1, 1, d.side)(d.x, 31);
}
static void kernel_writes_one_behind()
{
  float *odd;
  CHECK(cudaMalloc(&odd, 200) == cudaSuccess);
  LAUNCH(write_one, 1, 1, 0)(odd, 50);
}
#endif

// ---- graphs

static cudaGraphExec_t end_capture(cudaStream_t s)
{
  cudaGraph_t graph;
  cudaGraphExec_t made;
  CHECK(cudaStreamEndCapture(s, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&made, graph, 0) == cudaSuccess);
  return made;
}
static void begin_capture(cudaStream_t s)
{
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
}

static void missing_edge()
{
  device d;
  begin_capture(d.s);
  d.wait(d.side, d.e, d.s);
  set(d.x, d.s);
  copy(d.y, d.x, d.side);
  d.wait(d.s, d.f, d.side);
  CHECK(cudaGraphLaunch(end_capture(d.s), d.s) == cudaSuccess);
}
static void beside_a_graph()
{
  device d;
  begin_capture(d.s);
  set(d.x, d.s);
  CHECK(cudaGraphLaunch(end_capture(d.s), d.s) == cudaSuccess);
  copy(d.y, d.x, d.side);
}
static void unjoined()
{
  device d;
  begin_capture(d.s);
  d.wait(d.side, d.e, d.s);
  set(d.x, d.side);
  end_capture(d.s);
}
static void ended_elsewhere()
{
  device d;
  begin_capture(d.s);
  d.wait(d.side, d.e, d.s);
  end_capture(d.side);
}
static void allocates()
{
  device d;
  begin_capture(d.s);
  cudaMalloc(&d.x, BYTES);
}
static void waits_for_capture()
{
  device d;
  begin_capture(d.s);
  cudaStreamSynchronize(d.s);
}
static void asks_captured_event()
{
  device d;
  begin_capture(d.s);
  CHECK(cudaEventRecord(d.e, d.s) == cudaSuccess);
  cudaEventQuery(d.e);
}
static void event_from_outside()
{
  device d;
  CHECK(cudaEventRecord(d.e, d.side) == cudaSuccess);
  begin_capture(d.s);
  cudaStreamWaitEvent(d.s, d.e, 0);
}
static void event_of_ended_capture()
{
  device d;
  begin_capture(d.s);
  CHECK(cudaEventRecord(d.e, d.s) == cudaSuccess);
  end_capture(d.s);
  cudaStreamWaitEvent(d.side, d.e, 0);
}
static void default_stream_in_capture()
{
  device d;
  begin_capture(d.s);
  cudaMemsetAsync(d.x, 0, BYTES, nullptr);
}
static void captures_default_stream()
{
  cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal);
}
static void captures_twice()
{
  device d;
  begin_capture(d.s);
  begin_capture(d.s);
}
static void ends_nothing()
{
  device d;
  end_capture(d.s);
}

// ---- what is in order

static void test_orders()
{
  device d;
  for (int round = 0; round < 3; round++) {
    set(d.x, d.s);
    d.wait(d.side, d.e, d.s);
    copy(d.y, d.x, d.side);
    copy(d.z, d.x, d.s); // two read beside one another
    d.wait(d.s, d.f, d.side);
    LAUNCH(write_one, 1, 1, d.s)(d.x, 5); // and one writes when both have
    LAUNCH(copy_floats, 1, N, d.s)(d.y, d.x);
  }
  CHECK(cudaEventRecord(d.e, d.s) == cudaSuccess);
  CHECK(cudaEventSynchronize(d.e) == cudaSuccess);
  set(d.y, d.side); // the host has waited
  CHECK(cudaDeviceSynchronize() == cudaSuccess);

  cudaStream_t blocking; // which the default stream waits for, and it for that
  CHECK(cudaStreamCreate(&blocking) == cudaSuccess);
  set(d.x, blocking);
  set(d.x, nullptr);
  LAUNCH(copy_floats, 1, N, blocking)(d.y, d.x);
  CHECK(cudaStreamSynchronize(blocking) == cudaSuccess);

  begin_capture(d.s);
  set(d.x, d.s);
  d.wait(d.side, d.e, d.s);
  LAUNCH(copy_floats, 1, N, d.side)(d.y, d.x);
  LAUNCH(copy_floats, 1, N, d.s)(d.z, d.x);
  d.wait(d.s, d.f, d.side);
  set(d.y, d.s);
  cudaGraphExec_t step = end_capture(d.s);
  for (cudaStream_t on : {d.s, d.side, d.side, d.s})
    CHECK(cudaGraphLaunch(step, on) == cudaSuccess); // one launch comes after the other
  CHECK(cudaEventRecord(d.e, d.s) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(blocking, d.e, 0) == cudaSuccess);
  copy(d.x, d.y, blocking);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

static const fault faults[] = {
    FAULT(read_unordered, 0,
          "cudaMemcpyAsync: on stream 2: it reads bytes 0 to 255 of an allocation of 256 bytes,"
          " which cudaMemsetAsync on stream 1 writes; nothing orders"),
    FAULT(write_unordered, 0,
          "it writes bytes 128 to 135 of an allocation of 256 bytes, which cudaMemsetAsync on"
          " stream 1 writes, too; nothing orders"),
    FAULT(overwritten_too_early, 0, "which cudaMemcpyAsync on stream 2 reads; nothing orders"),
    FAULT(event_too_early, 0, "which cudaMemsetAsync on stream 1 writes; nothing orders"),
    FAULT(one_of_two_readers, 0, "which cudaMemcpyAsync on stream 2 reads; nothing orders"),
    FAULT(host_waits_for_nothing, 0, "cudaMemcpy: on the default stream: it reads bytes 0 to 255"),
    FAULT(host_changes_source, 0, "cudaMemcpyAsync: the host changed what is copied"),
    FAULT(host_reads_early, 0, "not there yet"),
    FAULT(collective_unordered, 1, "ncclAllReduce: on stream 2: it reads bytes 0 to 255"),
#ifdef FOLLOWED
    FAULT(kernel_reads_unordered, 0,
          "copy_floats: on stream 2: it reads bytes 0 to 3 of an allocation of 256 bytes, which"
          " copy_floats on stream 1 writes"),
    FAULT(kernel_overwrites_too_early, 0,
          "write_one: on stream 2: it writes bytes 124 to 127 of an allocation of 256 bytes, which"
          " copy_floats on stream 1 reads"),
    FAULT(kernel_writes_one_behind, 0,
          "write_one: it writes 4 bytes at offset 200 of an allocation of 200 bytes"),
#endif
    FAULT(missing_edge, 0, "which cudaMemsetAsync on a graph's stream 1 writes; nothing orders"),
    FAULT(beside_a_graph, 0, "which cudaMemsetAsync on a graph's stream 1 writes; nothing orders"),
    FAULT(unjoined, 0, "cudaStreamEndCapture: cudaMemsetAsync on stream 2 is in the capture"),
    FAULT(ended_elsewhere, 0, "the capture began on stream 1, not on stream 2"),
    FAULT(allocates, 0, "cudaMalloc: called while stream 1 captures"),
    FAULT(waits_for_capture, 0, "cudaStreamSynchronize: stream 1 captures"),
    FAULT(asks_captured_event, 0, "cudaEventQuery: the event was last recorded in a capture"),
    FAULT(event_from_outside, 0, "the event was recorded outside of the capture"),
    FAULT(event_of_ended_capture, 0, "recorded in a capture that has ended"),
    FAULT(default_stream_in_capture, 0, "cudaMemsetAsync: called while stream 1 captures"),
    FAULT(captures_default_stream, 0, "the default stream cannot capture"),
    FAULT(captures_twice, 0, "stream 1 captures already"),
    FAULT(ends_nothing, 0, "cudaStreamEndCapture: stream 1 does not capture"),
};

int main(int argc, char **argv)
{
  if (argc == 1) test_orders();
  return run_faults(faults, argc, argv);
}
