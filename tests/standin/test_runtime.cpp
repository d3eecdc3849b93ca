// The calls of the CUDA runtime on the stand-in: memory, copies, streams, events, devices, errors.
#include <cuda_runtime.h>

#include "check.h"

#include <cstring>
#include <vector>

static void test_memory()
{
  std::vector<char> host(1000), back(1000);
  for (size_t i = 0; i < host.size(); i++) host[i] = (char)i;
  char *a, *b;
  CHECK(cudaMalloc(&a, 1000) == cudaSuccess && cudaMalloc((void **)&b, 1000) == cudaSuccess);
  CHECK((size_t)a % 256 == 0 && (size_t)b % 256 == 0);
  CHECK(cudaMemcpy(a, host.data(), 1000, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpy(b + 100, a, 900, cudaMemcpyDeviceToDevice) == cudaSuccess);
  CHECK(cudaMemset(b, 7, 100) == cudaSuccess);
  CHECK(cudaMemcpy(back.data(), b, 1000, cudaMemcpyDefault) == cudaSuccess);
  for (size_t i = 0; i < 1000; i++) CHECK(back[i] == (i < 100 ? 7 : host[i - 100]));
  CHECK(cudaMemcpy(a, nullptr, 0, cudaMemcpyHostToDevice) == cudaSuccess);

  char *page;
  CHECK(cudaMallocHost(&page, 1000) == cudaSuccess);
  CHECK(cudaMemcpy(page, a, 1000, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(memcmp(page, host.data(), 1000) == 0);
  CHECK(cudaFreeHost(page) == cudaSuccess && cudaFreeHost(nullptr) == cudaSuccess);
  CHECK(cudaFree(a) == cudaSuccess && cudaFree(b) == cudaSuccess && cudaFree(0) == cudaSuccess);
}

// Columns 2 to 4 of 3 x 5 bytes to columns 1 to 3 of 3 x 4, then within the device, interleaved.
static void test_copies_of_rows()
{
  const char from[16] = "abcdefghijklmno";
  char *a, to[13] = "............";
  CHECK(cudaMalloc(&a, 24) == cudaSuccess && cudaMemset(a, '-', 24) == cudaSuccess);
  CHECK(cudaMemcpy2D(a + 1, 4, from + 2, 5, 3, 3, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpy2DAsync(to, 4, a, 4, 4, 3, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(strcmp(to, "-cde-hij-mno") == 0);
  CHECK(cudaMemcpy2DAsync(a, 4, a + 3, 4, 1, 3, cudaMemcpyDeviceToDevice) == cudaSuccess);
  CHECK(cudaMemcpy2D(to, 1, a, 4, 1, 3, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(memcmp(to, "ejo", 3) == 0);
  CHECK(cudaMemcpy2D(a, 9, nullptr, 9, 9, 0, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaFree(a) == cudaSuccess);
}

static void test_out_of_memory()
{
  setenv("CUDA_ON_CPU_MEMORY_MIB", "2", 1);
  size_t left, total;
  void *a, *b;
  CHECK(cudaMemGetInfo(&left, &total) == cudaSuccess && left == 2 << 20 && total == 2 << 20);
  CHECK(cudaMalloc(&a, 1 << 20) == cudaSuccess);
  CHECK(cudaMalloc(&b, (1 << 20) + 1) == cudaErrorMemoryAllocation && !b);
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
  CHECK(cudaFree(a) == cudaSuccess);
  CHECK(cudaMemGetInfo(&left, &total) == cudaSuccess && left == 2 << 20);
  unsetenv("CUDA_ON_CPU_MEMORY_MIB");
}

static void test_streams()
{
  cudaStream_t s, t;
  cudaEvent_t begin, end;
  int *at, back[2];
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaStreamCreate(&t) == cudaSuccess);
  CHECK(cudaEventCreateWithFlags(&end, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaMalloc(&at, sizeof back) == cudaSuccess);
  CHECK(cudaMemsetAsync(at, 1, sizeof back, s) == cudaSuccess);
  CHECK(cudaEventRecord(end, s) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(t, end) == cudaSuccess);
  CHECK(cudaMemcpyAsync(back, at, sizeof back, cudaMemcpyDeviceToHost, t) == cudaSuccess);
  CHECK(cudaStreamSynchronize(t) == cudaSuccess && cudaStreamQuery(s) == cudaSuccess);
  CHECK(back[0] == 0x01010101 && back[1] == 0x01010101);
  CHECK(cudaEventSynchronize(end) == cudaSuccess && cudaEventQuery(end) == cudaSuccess);
  CHECK(cudaEventDestroy(end) == cudaSuccess);

  float milliseconds = -1;
  CHECK(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
  CHECK(cudaEventRecord(begin, s) == cudaSuccess && cudaEventRecord(end, s) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess && milliseconds >= 0);
  CHECK(cudaEventDestroy(begin) == cudaSuccess && cudaEventDestroy(end) == cudaSuccess);
  CHECK(cudaStreamDestroy(s) == cudaSuccess && cudaStreamDestroy(t) == cudaSuccess);
  CHECK(cudaFree(at) == cudaSuccess);
}

static void test_devices()
{
  int n, value;
  setenv("CUDA_ON_CPU_DEVICES", "3", 1);
  CHECK(cudaGetDeviceCount(&n) == cudaSuccess && n == 3);
  CHECK(cudaSetDevice(2) == cudaSuccess && cudaGetDevice(&n) == cudaSuccess && n == 2);
  CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0) == cudaSuccess && value == 32);
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0) == cudaSuccess && p.warpSize == 32 && p.totalGlobalMem);
  setenv("CUDA_ON_CPU_DEVICES", "0", 1);
  CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
  CHECK(cudaGetLastError() == cudaErrorNoDevice);
  CHECK(strstr(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device"));
  CHECK(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
  unsetenv("CUDA_ON_CPU_DEVICES");
}

int main()
{
  test_memory();
  test_copies_of_rows();
  test_out_of_memory();
  test_streams();
  test_devices();
  puts("runtime: ok");
}
