// A stand-in for CUDA, for tests only: streams and events.
//
// Work is done at once, in the order of the calls; clocks track what a device could do later
// (order.cpp).
#include "streams_inside.h"

#include <algorithm>
#include <set>
#include <time.h>

namespace cuda_on_cpu
{
namespace
{
std::set<cudaStream_t> streams;
std::set<cudaEvent_t> events;
int streams_made;

// The default stream, whose handle is null: it waits for all streams without cudaStreamNonBlocking,
// and they wait for it.
CUstream_st &default_stream()
{
  static CUstream_st *one;
  if (!one) one = new CUstream_st{0, 0, 0, new_actor("the default stream"), {}, false, nullptr, {}};
  return *one;
}

CUstream_st &state_of(cudaStream_t stream)
{
  return stream ? *stream : default_stream();
}

bool blocking(const CUstream_st &s)
{
  return s.number && !(s.flags & cudaStreamNonBlocking);
}

void check_event(const char *call, cudaEvent_t event)
{
  if (!events.count(event)) fail(call, "%p is no live event", (void *)event);
}

void check_recorded(const char *call, cudaEvent_t event)
{
  check_event(call, event);
  if (!event->recorded) fail(call, "the event was never recorded, so there is nothing to wait for");
}

void check_not_captured(const char *call, cudaEvent_t event)
{
  check_recorded(call, event);
  if (event->in) fail(call, "the event was last recorded in a capture");
}

double now_in_milliseconds()
{
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// The answer to a query of the host: not ready at the first query, so that a program's way to wait
// is tested, too.
cudaError_t answer(const clocks &asked_about, bool &asked)
{
  if (!host_has(asked_about) && !asked) {
    asked = true;
    return cudaErrorNotReady;
  }
  asked = false;
  host_waits(asked_about);
  return cudaSuccess;
}
} // namespace

std::string name_of(cudaStream_t stream)
{
  return stream ? "stream " + std::to_string(stream->number) : "the default stream";
}

void check_stream(const char *call, cudaStream_t stream)
{
  if (stream && !streams.count(stream)) fail(call, "%p is no live stream", (void *)stream);
}

clocks &begin_work(const char *call, cudaStream_t stream)
{
  CUstream_st &s = state_of(stream);
  if (!stream) {
    not_in_capture(call, true);
    for (cudaStream_t other : streams)
      if (blocking(*other)) join(s.clock, other->clock);
  } else if (blocking(s)) {
    join(s.clock, default_stream().clock);
  }
  join(s.clock, host_clock());
  s.asked = false;
  return s.clock;
}

void on_stream(const char *call, cudaStream_t stream, const std::function<void()> &work)
{
  check_stream(call, stream);
  if (stream && stream->in)
    add_node(call, stream, work);
  else
    run_operation(call, state_of(stream).actor, begin_work(call, stream), work);
}

void host_waits_for(const char *call, cudaStream_t stream)
{
  check_stream(call, stream);
  if (stream && stream->in) fail(call, "%s captures", name_of(stream).c_str());
  if (!stream) begin_work(call, stream);
  host_waits(state_of(stream).clock);
}

void host_waits_for_all()
{
  host_waits(default_stream().clock);
  for (cudaStream_t stream : streams) host_waits(stream->clock);
}

void on_streams(const char *call, const std::vector<cudaStream_t> &together,
                const std::function<void()> &work)
{
  const cudaStream_t first = together[0];
  for (cudaStream_t other : together) {
    check_stream(call, other);
    if ((other && other->in) != (first && first->in))
      fail(call, "some of its streams capture and some do not");
    if (other == first) continue;
    if (other && other->in) {
      CUevent_st reached = {0, true, 0, {}, false, other->in, other->tips};
      wait_in_capture(first, &reached);
    } else {
      join(begin_work(call, first), begin_work(call, other));
    }
  }
  on_stream(call, first, work);
  for (cudaStream_t other : together) {
    if (other == first) continue;
    if (first && first->in) {
      CUevent_st reached = {0, true, 0, {}, false, first->in, first->tips};
      wait_in_capture(other, &reached);
    } else {
      join(state_of(other).clock, state_of(first).clock);
    }
  }
}
} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

// ---- streams

cudaError_t cudaDeviceSynchronize(void)
{
  host_call("cudaDeviceSynchronize");
  not_in_capture("cudaDeviceSynchronize", true);
  host_waits_for_all();
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
  const char *call = "cudaStreamCreateWithFlags";
  host_call(call);
  if (flags & ~(unsigned)cudaStreamNonBlocking) fail(call, "unsupported flags 0x%x", flags);
  const int number = ++streams_made;
  *stream = new CUstream_st{flags, number, priority, new_actor("stream " + std::to_string(number)),
                            {},    false,  nullptr,  {}};
  streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  host_call("cudaDeviceGetStreamPriorityRange");
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
  host_call("cudaStreamGetPriority");
  check_stream("cudaStreamGetPriority", stream);
  *priority = std::min(0, std::max(-5, state_of(stream).priority));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  host_call("cudaStreamDestroy");
  if (!streams.count(stream)) fail("cudaStreamDestroy", "%p is no live stream", (void *)stream);
  if (stream->in) fail("cudaStreamDestroy", "%s captures", name_of(stream).c_str());
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  host_call("cudaStreamSynchronize");
  host_waits_for("cudaStreamSynchronize", stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
  host_call("cudaStreamQuery");
  check_stream("cudaStreamQuery", stream);
  if (stream && stream->in) fail("cudaStreamQuery", "%s captures", name_of(stream).c_str());
  return answer(state_of(stream).clock, state_of(stream).asked);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
  host_call("cudaLaunchHostFunc");
  if (!function) fail("cudaLaunchHostFunc", "the function is null");
  on_stream("cudaLaunchHostFunc", stream, [=] { function(data); });
  return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned flags)
{
  return cudaEventCreateWithFlags(event, flags);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
  host_call("cudaEventCreateWithFlags");
  if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
    fail("cudaEventCreateWithFlags", "unsupported flags 0x%x", flags);
  *event = new CUevent_st{flags, false, 0, {}, false, nullptr, {}};
  events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  host_call("cudaEventDestroy");
  if (!events.erase(event)) fail("cudaEventDestroy", "%p is no live event", (void *)event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  host_call("cudaEventRecord");
  check_event("cudaEventRecord", event);
  check_stream("cudaEventRecord", stream);
  event->recorded = true;
  event->asked = false;
  event->in = stream ? stream->in : nullptr;
  if (event->in) {
    event->tips = stream->tips;
    return cudaSuccess;
  }
  event->clock = begin_work("cudaEventRecord", stream);
  event->milliseconds = now_in_milliseconds();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
  host_call("cudaStreamWaitEvent");
  check_stream("cudaStreamWaitEvent", stream);
  check_recorded("cudaStreamWaitEvent", event);
  if (flags) fail("cudaStreamWaitEvent", "unsupported flags 0x%x", flags);
  if (event->in || (stream && stream->in))
    wait_in_capture(stream, event);
  else
    join(begin_work("cudaStreamWaitEvent", stream), event->clock);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  host_call("cudaEventSynchronize");
  check_not_captured("cudaEventSynchronize", event);
  host_waits(event->clock);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
  host_call("cudaEventQuery");
  check_not_captured("cudaEventQuery", event);
  return answer(event->clock, event->asked);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
  host_call("cudaEventElapsedTime");
  check_not_captured("cudaEventElapsedTime", begin);
  check_not_captured("cudaEventElapsedTime", end);
  if ((begin->flags | end->flags) & cudaEventDisableTiming)
    fail("cudaEventElapsedTime", "an event was made with cudaEventDisableTiming");
  if (!host_has(begin->clock) || !host_has(end->clock)) return cudaErrorNotReady;
  *milliseconds = (float)(end->milliseconds - begin->milliseconds);
  return cudaSuccess;
}
