// Graphs on the stand-in for CUDA: what is captured is done at each launch and not before, streams
// come into a capture by events, and the host's memory is what it was when the host has waited.
#include <cuda_runtime.h>

#include "check.h"
#include "on_device.h"

#include <vector>

__global__ static void add(float *y, const float *x, float by)
{
  const int i = threadIdx.x;
  y[i] = x[i] + by;
}

struct two_streams {
  cudaStream_t s, side;
  cudaEvent_t begun, done;
  two_streams()
  {
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamCreateWithPriority(&side, cudaStreamNonBlocking, -1) == cudaSuccess);
    CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming) == cudaSuccess);
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming) == cudaSuccess);
  }
  ~two_streams()
  {
    cudaEventDestroy(begun);
    cudaEventDestroy(done);
    cudaStreamDestroy(s);
    cudaStreamDestroy(side);
  }
};

// x = x + 1 on one stream, then y = x + 10 on the other and z = x + 100 on the first, then x = y +
// z.
static void enqueue(const two_streams &on, float *x, float *y, float *z)
{
  LAUNCH(add, 1, 32, on.s)(x, x, 1);
  CHECK(cudaEventRecord(on.begun, on.s) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(on.side, on.begun, 0) == cudaSuccess);
  LAUNCH(add, 1, 32, on.side)(y, x, 10);
  LAUNCH(add, 1, 32, on.s)(z, x, 100);
  CHECK(cudaEventRecord(on.done, on.side) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(on.s, on.done, 0) == cudaSuccess);
  CHECK(cudaMemcpyAsync(x, y, 32 * sizeof(float), cudaMemcpyDeviceToDevice, on.s) == cudaSuccess);
}

static void test_replay()
{
  two_streams on;
  const std::vector<float> zeros(32, 0.0f);
  on_device<float> x(zeros), y(zeros), z(zeros);
  cudaGraph_t graph;
  cudaGraphExec_t step;
  cudaStreamCaptureStatus status;
  size_t nodes = 0;
  CHECK(cudaStreamBeginCapture(on.s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  enqueue(on, x.at, y.at, z.at);
  CHECK(cudaStreamIsCapturing(on.side, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  CHECK(cudaStreamEndCapture(on.s, &graph) == cudaSuccess);
  CHECK(cudaStreamIsCapturing(on.side, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess && nodes == 4);
  CHECK(cudaGraphInstantiate(&step, graph, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  for (float v : x.read()) CHECK(v == 0); // nothing was done yet
  for (int launch = 1; launch <= 3; launch++) {
    CHECK(cudaGraphLaunch(step, on.s) == cudaSuccess);
    CHECK(cudaStreamSynchronize(on.s) == cudaSuccess);
    for (float v : x.read()) CHECK(v == 11.0f * (float)launch);
    for (float v : z.read()) CHECK(v == 11.0f * (float)launch + 90);
  }
  CHECK(cudaGraphExecDestroy(step) == cudaSuccess);
  enqueue(on, x.at, y.at, z.at); // and without a graph
  CHECK(cudaStreamSynchronize(on.s) == cudaSuccess);
  for (float v : x.read()) CHECK(v == 44);
}

// A graph's copy reads the host's memory at each launch.
static void test_host_in_graph()
{
  two_streams on;
  float *constants, *back;
  cudaGraph_t graph;
  cudaGraphExec_t step;
  on_device<float> x(std::vector<float>(4, 0.0f));
  CHECK(cudaMallocHost(&constants, 16) == cudaSuccess);
  CHECK(cudaHostAlloc((void **)&back, 16, cudaHostAllocDefault) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(on.s, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaMemcpyAsync(x.at, constants, 16, cudaMemcpyHostToDevice, on.s) == cudaSuccess);
  LAUNCH(add, 1, 4, on.s)(x.at, x.at, 1);
  CHECK(cudaMemcpyAsync(back, x.at, 16, cudaMemcpyDeviceToHost, on.s) == cudaSuccess);
  CHECK(cudaStreamEndCapture(on.s, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&step, graph) == cudaSuccess &&
        cudaGraphDestroy(graph) == cudaSuccess);
  for (int t = 0; t < 3; t++) {
    for (int i = 0; i < 4; i++) constants[i] = (float)(t * 10 + i);
    CHECK(cudaGraphLaunch(step, on.s) == cudaSuccess);
    CHECK(cudaEventRecord(on.done, on.s) == cudaSuccess);
    while (cudaEventQuery(on.done) == cudaErrorNotReady) continue;
    for (int i = 0; i < 4; i++) CHECK(back[i] == (float)(t * 10 + i + 1));
  }
  CHECK(cudaGraphExecDestroy(step) == cudaSuccess);
  CHECK(cudaFreeHost(constants) == cudaSuccess && cudaFreeHost(back) == cudaSuccess);
}

// A chain of events over three streams orders what lies at its ends.
static void test_chain()
{
  two_streams on, more;
  on_device<float> x(std::vector<float>(32, 1.0f)), y(std::vector<float>(32, 1.0f));
  LAUNCH(add, 1, 32, on.s)(x.at, y.at, 1);
  CHECK(cudaEventRecord(on.done, on.s) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(on.side, on.done, 0) == cudaSuccess);
  CHECK(cudaEventRecord(more.done, on.side) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(more.s, more.done, 0) == cudaSuccess);
  LAUNCH(add, 1, 32, more.s)(y.at, x.at, 1);
  CHECK(cudaStreamSynchronize(more.s) == cudaSuccess);
  LAUNCH(add, 1, 32, more.side)(x.at, y.at, 1); // the host has waited for what it needs
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  for (float v : x.read()) CHECK(v == 4);
}

static int called;
static void call_me(void *by)
{
  called += *(int *)by;
}

static void test_host_function()
{
  two_streams on;
  int by = 3;
  CHECK(cudaLaunchHostFunc(on.s, call_me, &by) == cudaSuccess);
  CHECK(cudaStreamSynchronize(on.s) == cudaSuccess && called == 3);
  int least = 1, greatest = 1;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess && greatest <= least);
}

int main()
{
  test_replay();
  test_host_in_graph();
  test_chain();
  test_host_function();
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  puts("graph: ok");
}
