// A stand-in for CUDA that exists for tests only: what its sources know of one another.
#ifndef CUDA_ON_CPU_STAND_IN_H
#define CUDA_ON_CPU_STAND_IN_H

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

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

// Whether products that may round their operands to TF32 do so: NVIDIA_TF32_OVERRIDE is not 0.
bool rounds_to_tf32();

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

// Whether memory of the host was given by cudaHostAlloc: kernels may touch it, and copies from and
// to it run beside the host.
bool is_pinned(const void *p);

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

// An address of device memory, as far from the nearest allocation's begin.
struct place_in_memory {
  size_t offset, bytes;
};
place_in_memory place_of(const void *p);

// Fails where something was written just before or behind an allocation.
void check_edges(const char *call);

// ---- stream.cpp

// Fails unless the stream is null or alive.
void check_stream(const char *call, cudaStream_t stream);

// The one door through which work reaches a stream: kernels, copies, products, collectives. It is
// done at once, or, where the stream captures, whenever the graph is launched. `call` must live as
// long as the program. The work says what it touches by reads() and writes().
void on_stream(const char *call, cudaStream_t stream, const std::function<void()> &work);

// Likewise, of work that is on several streams, after what each of them has come to.
void on_streams(const char *call, const std::vector<cudaStream_t> &together,
                const std::function<void()> &work);

// The host waits for a stream, or for all.
void host_waits_for(const char *call, cudaStream_t stream);
void host_waits_for_all();

// ---- graph.cpp

// Fails where a stream captures; unless even_relaxed, only where not in the relaxed mode.
void not_in_capture(const char *call, bool even_relaxed = false);

// ---- order.cpp: who comes after whom

using clocks = std::vector<uint32_t>;

void join(clocks &into, const clocks &from);
unsigned new_actor(const std::string &name);
const clocks &host_clock();
bool host_has(const clocks &done); // whether the host knows all of it to be over
void host_waits(const clocks &done);

// Does the work as one more operation of the actor, after what its clock holds; the clock then
// holds the operation, too.
void run_operation(const char *call, unsigned actor, clocks &clock,
                   const std::function<void()> &work);

// Within an operation. It reads, or writes, these bytes of device memory: fails where another one
// writes them, or reads what this one writes, and is not ordered with it.
void reads(const void *p, size_t bytes);
void writes(const void *p, size_t bytes);
void reads(const stretches &s);
void writes(const stretches &s);

// Within an operation. The host does not go on before it is over; or: `work` is done when the host
// learns, by waiting, that it is.
void host_waits_for_this();
void when_host_knows(const std::function<void()> &work);
void arrived(); // what the host would have, had it waited for all before the operation, is there

// Within an operation: it is over when `work` is done, which waits. That is done before the next
// operation, or the host, that comes after this one.
void over_when(const std::function<void()> &work);

// Nobody may touch these bytes, of whole cells.
void close_cells(const void *p, size_t bytes);

// ---- device.cpp

int current_device();

// Remembers the error for cudaGetLastError and returns it.
cudaError_t set_last_error(cudaError_t error);
} // namespace cuda_on_cpu

#endif
