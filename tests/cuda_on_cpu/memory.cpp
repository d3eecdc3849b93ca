// A stand-in for CUDA, for tests only: device memory.
//
// An allocation is a mapping of its own between two inaccessible ranges of addresses. It ends as
// close to the second as its alignment of 256 bytes allows. Its bytes begin as 0xff, which reads as
// NaN, and so do the few bytes before and after it on its pages: a change of those is an overrun.
// Outside kernels and library calls it is inaccessible, too, so that the processor catches a host
// that forgets a copy.
#include "cells.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace cuda_on_cpu
{
namespace
{
const size_t ALIGNMENT = 256;
const size_t GUARD = 64 << 20; // addresses only
const size_t POISON = 2 << 20; // the file's length
const size_t HUGE_PAGE = 2 << 20;
const size_t FILLED = 64 << 20; // what is as large, or smaller, is filled at once

struct allocation {
  char *mapping; // begins and ends with GUARD inaccessible bytes
  size_t mapped;
  char *inner; // the pages between
  size_t inner_bytes;
  size_t bytes; // of the allocation, which begins at its key in the map
};

std::map<char *, allocation> allocations;
std::map<char *, size_t> pinned;
size_t used;
int open_count;

size_t round_up(size_t bytes, size_t to)
{
  return (bytes + to - 1) / to * to;
}

size_t total_memory()
{
  return (size_t)setting("CUDA_ON_CPU_MEMORY_MIB", 16 * 1024) << 20;
}

// The allocation with the highest start that is at most p, or end().
std::map<char *, allocation>::iterator at_or_before(const void *p)
{
  auto next = allocations.upper_bound(static_cast<char *>(const_cast<void *>(p)));
  return next == allocations.begin() ? allocations.end() : std::prev(next);
}

void protect(const allocation &a, int how)
{
  if (mprotect(a.inner, a.inner_bytes, how) != 0)
    fail("device memory", "mprotect of %zu bytes failed", a.inner_bytes);
}

int poison_file()
{
  static int file = -1;
  if (file >= 0) return file;
  std::vector<char> poison(POISON, (char)0xff);
  file = memfd_create("poison", MFD_CLOEXEC);
  if (file < 0 || write(file, poison.data(), POISON) != (ssize_t)POISON)
    fail("cudaMalloc", "no file of %zu bytes in memory", POISON);
  return file;
}

// Reserves the addresses of all device memory, and of its cells. Nothing is mapped yet.
bool reserve_addresses()
{
  if (device_bytes) return true;
  const size_t bytes = (size_t)1 << 37;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *whole = mmap(nullptr, bytes + HUGE_PAGE, PROT_NONE, flags, -1, 0);
  void *cells = mmap(nullptr, bytes * 4, PROT_NONE, flags, -1, 0);
  if (whole == MAP_FAILED || cells == MAP_FAILED) return false;
  device_begin = round_up(reinterpret_cast<uintptr_t>(whole), HUGE_PAGE);
  cells_begin = reinterpret_cast<uintptr_t>(cells);
  device_bytes = bytes;
  return true;
}

// The start of so many free addresses, after the last allocation, or null.
char *find_addresses(size_t bytes)
{
  static char *next;
  char *const begin = reinterpret_cast<char *>(device_begin), *const end = begin + device_bytes;
  for (char *from : {next ? next : begin, begin}) {
    char *at = from;
    for (const auto &[start, a] : allocations) {
      if (a.mapping + a.mapped <= at) continue;
      if (a.mapping >= at + bytes) break;
      at = a.mapping + a.mapped;
    }
    if (bytes > (size_t)(end - at)) continue;
    next = at + bytes;
    return at;
  }
  return nullptr;
}

char *end_of_pages(const allocation &a)
{
  return a.inner + a.inner_bytes;
}

// On large pages, if the system has them: kernels' launches change the protection of all.
void fill_pages(const allocation &a)
{
  void *at = mmap(a.inner, a.inner_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) fail("cudaMalloc", "cannot map %zu bytes", a.inner_bytes);
  madvise(at, a.inner_bytes, MADV_HUGEPAGE);
  memset(at, 0xff, a.inner_bytes);
  protect(a, PROT_NONE);
}

// Pages of a file, which are there once they are touched.
void map_poison(const allocation &a)
{
  for (size_t done = 0; done < a.inner_bytes; done += POISON) {
    size_t part = std::min(POISON, a.inner_bytes - done);
    void *at = mmap(a.inner + done, part, PROT_NONE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                    poison_file(), 0);
    if (at == MAP_FAILED) fail("cudaMalloc", "cannot map %zu bytes", part);
  }
}

// Maps an allocation of a.bytes and returns its start; null if there are no addresses left.
char *map(allocation &a)
{
  a.inner_bytes = round_up(round_up(a.bytes, ALIGNMENT), (size_t)sysconf(_SC_PAGESIZE));
  a.mapped = round_up(a.inner_bytes, HUGE_PAGE) + 2 * GUARD;
  if (!reserve_addresses() || !(a.mapping = find_addresses(a.mapped))) return nullptr;
  a.inner = a.mapping + GUARD;
  if (a.inner_bytes <= FILLED)
    fill_pages(a);
  else
    map_poison(a);
  if (mprotect(cells_at(a.inner), a.inner_bytes * 4, PROT_READ | PROT_WRITE) != 0)
    fail("cudaMalloc", "cannot map the cells of %zu bytes", a.bytes);
  char *start = end_of_pages(a) - round_up(a.bytes, ALIGNMENT);
  close_cells(a.inner, (size_t)(start - a.inner));
  close_cells(start + round_up(a.bytes, 2), round_up(a.bytes, ALIGNMENT) - round_up(a.bytes, 2));
  return start;
}

// Releases the addresses for another allocation; until then they are inaccessible.
void unmap(const allocation &a)
{
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  mmap(a.inner, a.inner_bytes, PROT_NONE, flags, -1, 0);
  mmap(cells_at(a.inner), a.inner_bytes * 4, PROT_NONE, flags, -1, 0);
}

// ---- what a stray load or store ends in

struct sigaction before_segv, before_bus;

bool in_cells(const char *address)
{
  return reinterpret_cast<uintptr_t>(address) - cells_begin < 4 * device_bytes;
}

void explain(const char *address)
{
  char where[512];
  bool kernel = in_kernel(where, sizeof where);
  if (in_cells(address)) // the cells of memory that a kernel was about to access
    address = reinterpret_cast<char *>(device_begin +
                                       (reinterpret_cast<uintptr_t>(address) - cells_begin) / 4);
  if (fiber_that_overflowed(address))
    fail("a kernel", "a thread's stack is full: recursion, or arrays too large for it");
  for (const auto &[start, a] : allocations) {
    if (address < a.mapping || address >= a.mapping + a.mapped) continue;
    if (!kernel && address >= start && address < start + a.bytes)
      fail("the host",
           "touched device memory, %zu bytes into an allocation of %zu; only kernels"
           " and copies may",
           (size_t)(address - start), a.bytes);
    if (address < start)
      fail(kernel ? "a kernel" : "the host", "touched %zu bytes before an allocation of %zu bytes",
           (size_t)(start - address), a.bytes);
    fail(kernel ? "a kernel" : "the host",
         "touched %zu bytes behind the end of an allocation of"
         " %zu bytes",
         (size_t)(address - start) - a.bytes, a.bytes);
  }
  if (kernel)
    fail("a kernel", "touched address %p, which is no device memory", (const void *)address);
}

void on_fault(int number, siginfo_t *info, void *)
{
  explain(static_cast<const char *>(info->si_addr));
  // Not ours: repeats the fault for the previous handler.
  sigaction(number, number == SIGSEGV ? &before_segv : &before_bus, nullptr);
}

// The handler needs a stack of its own: the fault may be a stack overflow.
void catch_faults()
{
  static bool done;
  if (done) return;
  done = true;
  const size_t bytes = 256 * 1024;
  stack_t own = {};
  own.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  own.ss_size = bytes;
  if (own.ss_sp == MAP_FAILED || sigaltstack(&own, nullptr) != 0)
    fail("cudaMalloc", "no stack for the handler of faults");
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before_segv);
  sigaction(SIGBUS, &action, &before_bus);
}

bool poisoned(const char *begin, const char *end)
{
  return std::all_of(begin, end, [](char c) { return c == (char)0xff; });
}

// ---- copies

enum class side { host, device };

side guess(const void *p)
{
  return touches_device(p, 1) ? side::device : side::host;
}

void check_side(const char *call, const char *what, const void *p, size_t bytes, side s)
{
  if (s == side::device)
    need_device(call, what, p, bytes);
  else
    need_host(call, what, p, bytes);
}

struct sides {
  side to, from;
};

sides sides_of(const char *call, const void *to, const void *from, cudaMemcpyKind kind)
{
  switch (kind) {
  case cudaMemcpyHostToHost:
    return {side::host, side::host};
  case cudaMemcpyHostToDevice:
    return {side::device, side::host};
  case cudaMemcpyDeviceToHost:
    return {side::host, side::device};
  case cudaMemcpyDeviceToDevice:
    return {side::device, side::device};
  case cudaMemcpyDefault:
    return {guess(to), guess(from)};
  }
  fail(call, "unknown kind %d", (int)kind);
}

void copy_stretches(const stretches &to, const stretches &from)
{
  for (size_t i = 0; i < to.count; i++)
    memcpy(const_cast<char *>(to.at) + i * to.pitch, from.at + i * from.pitch, to.bytes);
}

// Data that is copied into pinned memory is not there until the host has waited for it: until then
// it reads as NaN.
void bring_later(const stretches &to, const stretches &from)
{
  auto held = std::make_shared<std::vector<char>>(to.bytes * to.count);
  const stretches kept = {held->data(), to.bytes, to.bytes, to.count};
  copy_stretches(kept, from);
  for (size_t i = 0; i < to.count; i++)
    memset(const_cast<char *>(to.at) + i * to.pitch, 0xff, to.bytes);
  when_host_knows([=] { copy_stretches(to, {held->data(), to.bytes, to.bytes, to.count}); });
}

// Data that is copied from pinned memory must stay until the host has waited for the copy.
void must_stay(const char *call, const stretches &from)
{
  auto held = std::make_shared<std::vector<char>>(from.bytes * from.count);
  copy_stretches({held->data(), from.bytes, from.bytes, from.count}, from);
  when_host_knows([=] {
    for (size_t i = 0; i < from.count; i++)
      if (memcmp(from.at + i * from.pitch, held->data() + i * from.bytes, from.bytes) != 0)
        fail(call, "the host changed what is copied before it waited for the copy");
  });
}

void copy_now(const char *call, const stretches &to, const stretches &from, sides s)
{
  const bool later = strstr(call, "Async");
  if (s.from == side::device) reads(from);
  if (s.to == side::device) writes(to);
  if (s.from == side::host) arrived();
  if (s.to == side::host && later && is_pinned(to.at)) return bring_later(to, from);
  copy_stretches(to, from);
  if (s.from == side::host && later && is_pinned(from.at)) must_stay(call, from);
  if (s.to == side::host) host_waits_for_this();
  if (!later && s.from != s.to) host_waits_for_this();
}

// Copies `to.count` ranges of `to.bytes` each; `from` has as many of the same size.
cudaError_t copy(const char *call, const stretches &to, const stretches &from, cudaMemcpyKind kind,
                 cudaStream_t stream)
{
  host_call(call);
  if (to.bytes > to.pitch || from.bytes > from.pitch)
    fail(call, "rows of %zu bytes, %zu and %zu bytes apart", to.bytes, to.pitch, from.pitch);
  sides s = sides_of(call, to.at, from.at, kind);
  check_side(call, "the destination", to.at, to.extent(), s.to);
  check_side(call, "the source", from.at, from.extent(), s.from);
  if (overlap(to, from)) fail(call, "source and destination overlap");
  if (to.extent()) on_stream(call, stream, [=] { copy_now(call, to, from, s); });
  return cudaSuccess;
}

stretches rows(const void *at, size_t bytes, size_t pitch, size_t count)
{
  return {static_cast<const char *>(at), bytes, pitch, count};
}

cudaError_t fill(const char *call, void *p, int byte, size_t bytes, cudaStream_t stream)
{
  host_call(call);
  need_device(call, "the destination", p, bytes);
  if (bytes)
    on_stream(call, stream, [=] {
      writes(p, bytes);
      memset(p, byte, bytes);
    });
  return cudaSuccess;
}
} // namespace

bool is_pinned(const void *p)
{
  auto next = pinned.upper_bound(static_cast<char *>(const_cast<void *>(p)));
  if (next == pinned.begin()) return false;
  return static_cast<const char *>(p) < std::prev(next)->first + std::prev(next)->second;
}

bool touches_device(const void *p, size_t bytes)
{
  const char *begin = static_cast<const char *>(p);
  auto last = at_or_before(begin + (bytes ? bytes - 1 : 0));
  return last != allocations.end() && begin < last->first + last->second.bytes;
}

void need_device(const char *call, const char *what, const void *p, size_t bytes)
{
  const char *begin = static_cast<const char *>(p);
  auto a = at_or_before(p);
  if (!bytes && !p) return;
  if (!p) fail(call, "%s is null", what);
  if (a == allocations.end() || begin > a->first + a->second.bytes)
    fail(call, "%s, %p, is not device memory", what, p);
  size_t offset = (size_t)(begin - a->first);
  if (bytes > a->second.bytes - offset)
    fail(call, "%s is out of bounds: %zu bytes from offset %zu of an allocation of %zu bytes", what,
         bytes, offset, a->second.bytes);
}

void need_host(const char *call, const char *what, const void *p, size_t bytes)
{
  if (!bytes) return;
  if (!p) fail(call, "%s is null", what);
  if (touches_device(p, bytes))
    fail(call, "%s, %p, is device memory; the host's is expected", what, p);
}

bool overlap(const stretches &x, const stretches &y)
{
  const stretches &low = x.at <= y.at ? x : y, &high = x.at <= y.at ? y : x;
  if (!high.extent() || low.at + low.extent() <= high.at) return false;
  if (x.pitch != y.pitch) return true;
  size_t distance = (size_t)(high.at - low.at), whole = distance / x.pitch,
         rest = distance % x.pitch;
  return (rest < low.bytes && whole < low.count) ||
         (rest + high.bytes > x.pitch && whole + 1 < low.count);
}

device_access::device_access()
{
  if (open_count++) return;
  for (const auto &[start, a] : allocations) protect(a, PROT_READ | PROT_WRITE);
}

device_access::~device_access()
{
  if (--open_count) return;
  for (const auto &[start, a] : allocations) protect(a, PROT_NONE);
}

uintptr_t device_begin, device_bytes, cells_begin;

place_in_memory place_of(const void *p)
{
  auto a = at_or_before(p);
  if (a == allocations.end()) a = allocations.begin();
  return {(size_t)(static_cast<const char *>(p) - a->first), a->second.bytes};
}

void check_edges(const char *call)
{
  for (const auto &[start, a] : allocations) {
    if (!poisoned(a.inner, start))
      fail(call, "wrote just before an allocation of %zu bytes", a.bytes);
    if (!poisoned(start + a.bytes, a.inner + a.inner_bytes))
      fail(call, "wrote just behind the end of an allocation of %zu bytes", a.bytes);
  }
}
} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
  host_call("cudaMalloc");
  not_in_capture("cudaMalloc");
  if (!pointer) fail("cudaMalloc", "the pointer's address is null");
  *pointer = nullptr;
  if (!bytes) return cudaSuccess;
  if (bytes > total_memory() - used) return set_last_error(cudaErrorMemoryAllocation);
  catch_faults();
  allocation a = {};
  a.bytes = bytes;
  char *start = map(a);
  if (!start) return set_last_error(cudaErrorMemoryAllocation);
  allocations[start] = a;
  used += bytes;
  *pointer = start;
  return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
  host_call("cudaFree");
  not_in_capture("cudaFree");
  if (!pointer) return cudaSuccess;
  auto found = allocations.find(static_cast<char *>(pointer));
  if (found == allocations.end())
    fail("cudaFree", "%p was not given by cudaMalloc, or is free already", pointer);
  host_waits_for_all();
  unmap(found->second);
  used -= found->second.bytes;
  allocations.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
  host_call("cudaHostAlloc");
  not_in_capture("cudaHostAlloc");
  if (!pointer) fail("cudaHostAlloc", "the pointer's address is null");
  if (flags & ~(unsigned)cudaHostAllocPortable)
    fail("cudaHostAlloc", "unsupported flags 0x%x", flags);
  *pointer = bytes ? malloc(bytes) : nullptr;
  if (bytes && !*pointer) return set_last_error(cudaErrorMemoryAllocation);
  if (*pointer) pinned[static_cast<char *>(memset(*pointer, 0xff, bytes))] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer)
{
  host_call("cudaFreeHost");
  if (!pointer) return cudaSuccess;
  not_in_capture("cudaFreeHost");
  host_waits_for_all();
  if (!pinned.erase(static_cast<char *>(pointer)))
    fail("cudaFreeHost", "%p was not given by cudaMallocHost, or is free already", pointer);
  free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemset(void *pointer, int byte, size_t bytes)
{
  return fill("cudaMemset", pointer, byte, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void *pointer, int byte, size_t bytes, cudaStream_t stream)
{
  return fill("cudaMemsetAsync", pointer, byte, bytes, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
  return copy("cudaMemcpy", rows(to, bytes, bytes, 1), rows(from, bytes, bytes, 1), kind, nullptr);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
  return copy("cudaMemcpyAsync", rows(to, bytes, bytes, 1), rows(from, bytes, bytes, 1), kind,
              stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t bytes, size_t count, cudaMemcpyKind kind)
{
  return copy("cudaMemcpy2D", rows(to, bytes, to_pitch, count),
              rows(from, bytes, from_pitch, count), kind, nullptr);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, size_t count, cudaMemcpyKind kind, cudaStream_t stream)
{
  return copy("cudaMemcpy2DAsync", rows(to, bytes, to_pitch, count),
              rows(from, bytes, from_pitch, count), kind, stream);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
  host_call("cudaMemGetInfo");
  if (!free_bytes || !total) fail("cudaMemGetInfo", "an address is null");
  *total = total_memory();
  *free_bytes = *total - used;
  return cudaSuccess;
}
