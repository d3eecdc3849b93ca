// A stand-in for CUDA, for tests only: devices and errors.
#include "nvtx3/nvToolsExt.h"
#include "stand_in.h"

#include <cstdio>

namespace cuda_on_cpu
{
namespace
{
cudaError_t last_error = cudaSuccess;
int device;

int device_count()
{
  return (int)setting("CUDA_ON_CPU_DEVICES", 8);
}

void check_device(const char *call, int number)
{
  if (number < 0 || number >= device_count()) fail(call, "device %d of %d", number, device_count());
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

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int number)
{
  host_call("cudaDeviceGetPCIBusId");
  check_device("cudaDeviceGetPCIBusId", number);
  if (!text || bytes < 13) return set_last_error(cudaErrorInvalidValue);
  snprintf(text, (size_t)bytes, "0000:%02X:00.0", number & 0xff);
  return cudaSuccess;
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

// ---- a profiler's ranges

static int open_ranges;

int nvtxRangePushA(const char *name)
{
  host_call("nvtxRangePushA");
  if (!name) fail("nvtxRangePushA", "the name is null");
  return open_ranges++;
}

int nvtxRangePop(void)
{
  host_call("nvtxRangePop");
  if (!open_ranges) fail("nvtxRangePop", "no range is open");
  return --open_ranges;
}

void nvtxMarkA(const char *name)
{
  host_call("nvtxMarkA");
  if (!name) fail("nvtxMarkA", "the name is null");
}
