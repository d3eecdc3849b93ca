// A stand-in for CUDA that exists for tests only: what streams, events and graphs share.
#ifndef CUDA_ON_CPU_STREAMS_INSIDE_H
#define CUDA_ON_CPU_STREAMS_INSIDE_H

#include "stand_in.h"

#include <memory>
#include <string>

namespace cuda_on_cpu
{
// Work that a graph holds, and which of its earlier pieces must be done before.
struct node {
  const char *call;
  size_t lane; // the stream that it was captured on, counted by the graph
  std::vector<size_t> after;
  std::function<void()> work;
};

// A capture that is open: what it has so far, and the streams that take part, the first being the
// one that it began on.
struct capture {
  std::vector<node> nodes;
  std::vector<cudaStream_t> members;
  cudaStreamCaptureMode mode;
  bool open;
};

using tips =
    std::vector<size_t>; // the last nodes of a capture that a stream or an event stands for

// ---- graph.cpp

// Adds work to the capture that the stream is in.
void add_node(const char *call, cudaStream_t stream, const std::function<void()> &work);

// The stream, which is in a capture or comes into that of the event, waits for the event.
void wait_in_capture(cudaStream_t stream, cudaEvent_t event);

// ---- stream.cpp

std::string name_of(cudaStream_t stream);

// Makes the stream ready for work that begins now: after all that it and the host have waited for.
clocks &begin_work(const char *call, cudaStream_t stream);
} // namespace cuda_on_cpu

struct CUstream_st {
  unsigned flags;
  int number, priority;
  unsigned actor;
  cuda_on_cpu::clocks clock;
  bool asked; // cudaStreamQuery has said that it is not ready
  std::shared_ptr<cuda_on_cpu::capture> in;
  cuda_on_cpu::tips tips;
};

struct CUevent_st {
  unsigned flags;
  bool recorded;
  double milliseconds;
  cuda_on_cpu::clocks clock;
  bool asked;
  std::shared_ptr<cuda_on_cpu::capture> in; // that it was last recorded in
  cuda_on_cpu::tips tips;
};

#endif
