// A stand-in for CUDA that exists for tests only: what its sources know of one another.
#ifndef CUDA_ON_CPU_STAND_IN_H
#define CUDA_ON_CPU_STAND_IN_H

#include <cstddef>
#include <functional>

#include "cuda_runtime.h"

namespace cuda_on_cpu
{
// ---- fail.cpp

// Says on standard error which call failed and why, then ends the process, and with it the whole
// MPI job. Inside a kernel the message names kernel, block and thread.
[[noreturn]] void fail(const char *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The whole number that an environment variable holds, or `otherwise` where it is not set.
long setting(const char *name, long otherwise);

// ---- launch.cpp

// Whether a kernel runs now; if so, `where` gets its name, block and thread.
bool in_kernel(char *where, size_t bytes);

// Of the kernel that runs: which of its block's threads it is in, and a number that no other block
// of the job's process has.
unsigned current_thread();
uint64_t block_number();

// Every call of the host begins with this: fails where a kernel made it.
void host_call(const char *call);

// ---- fiber.cpp: a stack and the registers of one flow of control

struct fiber;
fiber *new_fiber(void (*body)()); // `body` never returns; it begins at the first switch to it
fiber *host_fiber();              // the flow of control that the program came with
void switch_fiber(fiber *from, fiber *to);
fiber *fiber_that_overflowed(const void *address); // whose guard page holds the address, or null

// ---- memory.cpp

// Whether any byte of device memory lies in [p, p + bytes).
bool touches_device(const void *p, size_t bytes);

// Fails unless [p, p + bytes) lies within one allocation of device memory. `what` names the
// argument. 0 bytes may be null, or at the end of an allocation.
void need_device(const char *call, const char *what, const void *p, size_t bytes);

// Fails where [p, p + bytes) touches device memory or is null.
void need_host(const char *call, const char *what, const void *p, size_t bytes);

// Stretches of bytes at equal distances: the columns of a matrix, the rows of a picture.
struct stretches {
  const char *at;
  size_t bytes, pitch, count; // of each; from the begin of one to the next; how many

  size_t extent() const
  {
    return bytes && count ? (count - 1) * pitch + bytes : 0;
  }
};

// Whether two such share a byte. Those of one pitch may lie interleaved; of those of different
// pitches only the ends are compared.
bool overlap(const stretches &x, const stretches &y);

// Device memory can be touched while one of these lives.
struct device_access {
  device_access();
  ~device_access();
  device_access(const device_access &) = delete;
  device_access &operator=(const device_access &) = delete;
};

// Fails where something was written just before or behind an allocation.
void check_edges(const char *call);

// ---- stream.cpp

// Fails unless the stream is null or alive.
void check_stream(const char *call, cudaStream_t stream);

// The one door through which work reaches a stream: kernels, copies, products, collectives. Today
// the work is done at once, so streams never overtake one another; an order that only waiting makes
// safe would be checked here.
void on_stream(const char *call, cudaStream_t stream, const std::function<void()> &work);

int current_device();

// Remembers the error for cudaGetLastError and returns it.
cudaError_t set_last_error(cudaError_t error);
} // namespace cuda_on_cpu

#endif
