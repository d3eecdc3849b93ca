// A stand-in for CUDA that exists for tests only: streams, events, devices, errors.
#include "stand_in.h"

#include <cstdio>
#include <set>
#include <time.h>

struct CUstream_st {
  unsigned flags;
};

struct CUevent_st {
  unsigned flags;
  bool recorded;
  double milliseconds;
};

namespace cuda_on_cpu
{
namespace
{
std::set<cudaStream_t> streams;
std::set<cudaEvent_t> events;
cudaError_t last_error = cudaSuccess;
int device;

int device_count()
{
  return (int)setting("CUDA_ON_CPU_DEVICES", 8);
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

void check_device(const char *call, int number)
{
  if (number < 0 || number >= device_count()) fail(call, "device %d of %d", number, device_count());
}

double now_in_milliseconds()
{
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

const struct {
  cudaDeviceAttr attribute;
  int value;
} attributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, 48 * 1024},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMultiProcessorCount, 1},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 * 1024},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 * 1024},
};

struct error_text {
  cudaError_t error;
  const char *name, *text;
};

const error_text error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const error_text &find_error(const char *call, cudaError_t error)
{
  for (const error_text &e : error_texts)
    if (e.error == error) return e;
  fail(call, "error %d is unknown here", (int)error);
}
} // namespace

void check_stream(const char *call, cudaStream_t stream)
{
  if (stream && !streams.count(stream)) fail(call, "%p is no live stream", (void *)stream);
}

void on_stream(const char *call, cudaStream_t stream, const std::function<void()> &work)
{
  check_stream(call, stream);
  device_access access;
  work();
  check_edges(call);
}

int current_device()
{
  return device;
}

cudaError_t set_last_error(cudaError_t error)
{
  return last_error = error;
}
} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

// ---- errors

cudaError_t cudaGetLastError(void)
{
  host_call("cudaGetLastError");
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void)
{
  host_call("cudaPeekAtLastError");
  return last_error;
}

const char *cudaGetErrorString(cudaError_t error)
{
  return find_error("cudaGetErrorString", error).text;
}

const char *cudaGetErrorName(cudaError_t error)
{
  return find_error("cudaGetErrorName", error).name;
}

// ---- devices

cudaError_t cudaGetDeviceCount(int *count)
{
  host_call("cudaGetDeviceCount");
  *count = device_count();
  return *count ? cudaSuccess : set_last_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int number)
{
  host_call("cudaSetDevice");
  if (number < 0 || number >= device_count()) return set_last_error(cudaErrorInvalidDevice);
  device = number;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *number)
{
  host_call("cudaGetDevice");
  *number = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
  host_call("cudaDeviceSynchronize");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int number)
{
  host_call("cudaDeviceGetAttribute");
  check_device("cudaDeviceGetAttribute", number);
  for (const auto &[known, its_value] : attributes)
    if (known == attribute) {
      *value = its_value;
      return cudaSuccess;
    }
  fail("cudaDeviceGetAttribute", "attribute %d is unknown here", (int)attribute);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int number)
{
  host_call("cudaGetDeviceProperties");
  check_device("cudaGetDeviceProperties", number);
  *properties = {};
  snprintf(properties->name, sizeof properties->name, "stand-in on the CPU, not a GPU");
  size_t free_bytes;
  cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
  properties->sharedMemPerBlock = 48 * 1024;
  properties->sharedMemPerBlockOptin = 227 * 1024;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = 9;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// ---- streams

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
  host_call("cudaStreamCreateWithFlags");
  if (flags & ~(unsigned)cudaStreamNonBlocking)
    fail("cudaStreamCreateWithFlags", "unsupported flags 0x%x", flags);
  *stream = new CUstream_st{flags};
  streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  host_call("cudaStreamDestroy");
  if (!streams.erase(stream)) fail("cudaStreamDestroy", "%p is no live stream", (void *)stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  host_call("cudaStreamSynchronize");
  check_stream("cudaStreamSynchronize", stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
  host_call("cudaStreamQuery");
  check_stream("cudaStreamQuery", stream);
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
  *event = new CUevent_st{flags, false, 0};
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
  event->milliseconds = now_in_milliseconds();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
  host_call("cudaStreamWaitEvent");
  check_stream("cudaStreamWaitEvent", stream);
  check_recorded("cudaStreamWaitEvent", event);
  if (flags) fail("cudaStreamWaitEvent", "unsupported flags 0x%x", flags);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  host_call("cudaEventSynchronize");
  check_recorded("cudaEventSynchronize", event);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
  host_call("cudaEventQuery");
  check_recorded("cudaEventQuery", event);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
  host_call("cudaEventElapsedTime");
  check_recorded("cudaEventElapsedTime", begin);
  check_recorded("cudaEventElapsedTime", end);
  if ((begin->flags | end->flags) & cudaEventDisableTiming)
    fail("cudaEventElapsedTime", "an event was made with cudaEventDisableTiming");
  *milliseconds = (float)(end->milliseconds - begin->milliseconds);
  return cudaSuccess;
}
