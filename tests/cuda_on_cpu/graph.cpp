// A stand-in for CUDA, for tests only: captures work into a graph, and runs it.
//
// Work on a capturing stream does not run: it becomes nodes, each after those that its stream has
// reached. Events carry that to other streams, which so join the capture. A launch runs the nodes
// in the order of their capture. The order that is checked (order.cpp) has only their edges: each
// captured stream is an actor of its own.
#include "streams_inside.h"

#include <algorithm>
#include <set>

using namespace cuda_on_cpu;

struct CUgraph_st {
  std::vector<node> nodes;
  std::vector<std::string> lanes; // the captured streams' names
};

struct CUgraphExec_st {
  CUgraph_st graph;
  std::vector<unsigned> actors; // one for each lane
  clocks done;                  // the clock at the end of its last launch
};

namespace
{
std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> executables;
std::set<std::shared_ptr<capture>> captures; // open captures

size_t lane_of(capture &c, cudaStream_t stream)
{
  auto found = std::find(c.members.begin(), c.members.end(), stream);
  return (size_t)(found - c.members.begin());
}

void add_tips(tips &to, const tips &from)
{
  for (size_t t : from)
    if (std::find(to.begin(), to.end(), t) == to.end()) to.push_back(t);
}

// Fails if the first stream has not joined a piece of work.
void check_joined(const capture &c)
{
  std::vector<bool> followed(c.nodes.size());
  for (size_t t : c.members[0]->tips) followed[t] = true;
  for (size_t i = c.nodes.size(); i--;) {
    if (!followed[i])
      fail("cudaStreamEndCapture",
           "%s on %s is in the capture, and %s does not wait for it: streams that came in by an"
           " event must be waited for by another",
           c.nodes[i].call, name_of(c.members[c.nodes[i].lane]).c_str(),
           name_of(c.members[0]).c_str());
    for (size_t before : c.nodes[i].after) followed[before] = true;
  }
}

void check_graph(const char *call, cudaGraph_t graph)
{
  if (!graphs.count(graph)) fail(call, "%p is no live graph", (void *)graph);
}
} // namespace

void cuda_on_cpu::not_in_capture(const char *call, bool even_relaxed)
{
  for (const auto &c : captures)
    if (even_relaxed || c->mode != cudaStreamCaptureModeRelaxed)
      fail(call, "called while %s captures, which CUDA forbids", name_of(c->members[0]).c_str());
}

void cuda_on_cpu::add_node(const char *call, cudaStream_t stream, const std::function<void()> &work)
{
  capture &c = *stream->in;
  c.nodes.push_back({call, lane_of(c, stream), stream->tips, work});
  stream->tips = {c.nodes.size() - 1};
}

void cuda_on_cpu::wait_in_capture(cudaStream_t stream, cudaEvent_t event)
{
  const char *call = "cudaStreamWaitEvent";
  if (!event->in)
    fail(call, "%s captures, and the event was recorded outside of the capture",
         name_of(stream).c_str());
  if (!event->in->open) fail(call, "the event was recorded in a capture that has ended");
  if (!stream) fail(call, "the default stream cannot come into a capture");
  if (stream->in && stream->in != event->in)
    fail(call, "the event belongs to another capture than %s", name_of(stream).c_str());
  if (!stream->in) {
    stream->in = event->in;
    stream->in->members.push_back(stream);
    stream->tips.clear();
  }
  add_tips(stream->tips, event->tips);
}

// ---- capture

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
  const char *call = "cudaStreamBeginCapture";
  host_call(call);
  check_stream(call, stream);
  if (!stream) fail(call, "the default stream cannot capture");
  if (stream->in) fail(call, "%s captures already", name_of(stream).c_str());
  if (mode != cudaStreamCaptureModeGlobal && mode != cudaStreamCaptureModeThreadLocal &&
      mode != cudaStreamCaptureModeRelaxed)
    fail(call, "unknown mode %d", (int)mode);
  stream->in = std::make_shared<capture>();
  stream->in->mode = mode;
  stream->in->open = true;
  stream->in->members.push_back(stream);
  stream->tips.clear();
  captures.insert(stream->in);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
  const char *call = "cudaStreamEndCapture";
  host_call(call);
  check_stream(call, stream);
  if (!graph) fail(call, "the graph's address is null");
  if (!stream || !stream->in) fail(call, "%s does not capture", name_of(stream).c_str());
  std::shared_ptr<capture> c = stream->in;
  if (c->members[0] != stream)
    fail(call, "the capture began on %s, not on %s", name_of(c->members[0]).c_str(),
         name_of(stream).c_str());
  check_joined(*c);
  *graph = new CUgraph_st{std::move(c->nodes), {}};
  for (cudaStream_t member : c->members) {
    (*graph)->lanes.push_back(name_of(member));
    member->in = nullptr;
    member->tips.clear();
  }
  c->open = false;
  captures.erase(c);
  graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
  host_call("cudaStreamIsCapturing");
  check_stream("cudaStreamIsCapturing", stream);
  *status = stream && stream->in ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

// ---- graphs

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
  host_call("cudaGraphGetNodes");
  check_graph("cudaGraphGetNodes", graph);
  if (nodes) fail("cudaGraphGetNodes", "the stand-in gives the number of nodes only");
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  host_call("cudaGraphDestroy");
  check_graph("cudaGraphDestroy", graph);
  graphs.erase(graph);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags)
{
  host_call("cudaGraphInstantiate");
  check_graph("cudaGraphInstantiate", graph);
  if (!executable) fail("cudaGraphInstantiate", "the executable's address is null");
  if (flags & ~(unsigned long long)cudaGraphInstantiateFlagUseNodePriority)
    fail("cudaGraphInstantiate", "unsupported flags 0x%llx", flags);
  CUgraphExec_st *made = new CUgraphExec_st{*graph, {}, {}};
  for (const std::string &lane : graph->lanes)
    made->actors.push_back(new_actor("a graph's " + lane));
  executables.insert(made);
  *executable = made;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long flags)
{
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream)
{
  host_call("cudaGraphUpload");
  check_stream("cudaGraphUpload", stream);
  if (!executables.count(executable))
    fail("cudaGraphUpload", "%p is no live executable graph", (void *)executable);
  return cudaSuccess;
}

// The whole graph comes after the earlier work of the stream, and after its own last launch; later
// work of the stream comes after the whole graph.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
  const char *call = "cudaGraphLaunch";
  host_call(call);
  check_stream(call, stream);
  if (!executables.count(executable))
    fail(call, "%p is no live executable graph", (void *)executable);
  if (stream && stream->in)
    fail(call, "%s captures; the stand-in knows no graphs within graphs", name_of(stream).c_str());
  clocks &outer = begin_work(call, stream);
  join(outer, executable->done);
  const std::vector<node> &nodes = executable->graph.nodes;
  std::vector<clocks> done(nodes.size());
  clocks all = outer;
  for (size_t i = 0; i < nodes.size(); i++) {
    done[i] = outer;
    for (size_t before : nodes[i].after) join(done[i], done[before]);
    run_operation(nodes[i].call, executable->actors[nodes[i].lane], done[i], nodes[i].work);
    join(all, done[i]);
  }
  join(outer, all);
  executable->done = all;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
  host_call("cudaGraphExecDestroy");
  if (!executables.erase(executable))
    fail("cudaGraphExecDestroy", "%p is no live executable graph", (void *)executable);
  delete executable;
  return cudaSuccess;
}
