// A stand-in for CUDA, for tests only: runs a kernel's threads over its grid and block.
//
// Blocks run one after another. Within a block each warp runs as far as it can before the next one,
// so that a missing barrier shows. A fiber runs a warp's threads in a row as long as none of them
// waits; a waiting thread keeps its fiber, and another fiber runs the next thread that can run. If
// no thread can run, the block is stuck, and the message says which threads wait where.
// CUDA_ON_CPU_ORDER=backward runs blocks, warps and threads from the last to the first.
#include "kernel_inside.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

// The shared variables, if there are any.
extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace cuda_on_cpu
{
uint3 thread_index, block_index;
dim3 block_size, grid_size;
thread_local const char *kernel_name;
thread threads[MAX_THREADS];
warp warps[MAX_THREADS / WARP];
unsigned current;

namespace
{
const size_t SHARED = 48 * 1024, MOST_SHARED = 227 * 1024; // dynamic: of any kernel, on request
const unsigned NOBODY = MAX_THREADS, POISONED_BLOCKS = 8;

const std::function<void()> *kernel_body;
unsigned thread_count, warp_count;
uint64_t blocks_begun;
unsigned live; // threads of the block that have not ended
std::vector<fiber *> idle;
bool backward;
int counted, last_counted;              // predicates at the current barrier, and at the last one
std::map<const void *, size_t> allowed; // dynamic shared memory, by kernel
size_t shared_bytes;                    // of the block
char *shared_end;                       // the end of accessible memory

void live_on();

bool waits(unsigned t)
{
  return (warps[t / WARP].in_call | warps[t / WARP].at_barrier) >> t % WARP & 1;
}

[[noreturn]] void report_stuck()
{
  std::string text;
  std::vector<bool> is_reported(thread_count);
  for (unsigned t = 0; t < thread_count; t++) {
    if (!waits(t) || is_reported[t]) continue;
    std::string here = waits_in(t);
    unsigned alike = 0;
    for (unsigned other = t; other < thread_count; other++) {
      if (!waits(other) || waits_in(other) != here) continue;
      is_reported[other] = true;
      alike++;
    }
    text += (text.empty() ? "" : "; ") + std::to_string(alike) + " thread(s), the first " +
            describe(t) + ", wait in " + here;
  }
  fail(kernel_name,
       "block (%u, %u, %u) is stuck, since not all of its threads reach the same call:"
       " %s",
       block_index.x, block_index.y, block_index.z, text.c_str());
}

// ---- who runs

// Opens the barrier if every live thread of the block waits at it; else returns false.
bool open_barrier()
{
  unsigned first = NOBODY;
  for (unsigned w = 0; w < warp_count; w++) {
    if (warps[w].at_barrier != warps[w].live) return false;
    for (unsigned left = warps[w].live; left; left &= left - 1) {
      const unsigned t = w * WARP + (unsigned)__builtin_ctz(left);
      if (first == NOBODY) first = t;
      if (same_place(threads[t].at, threads[first].at)) continue;
      fail("__syncthreads", "the block has parted: %s is in %s, %s in %s", describe(first).c_str(),
           waits_in(first).c_str(), describe(t).c_str(), waits_in(t).c_str());
    }
  }
  for (unsigned w = 0; w < warp_count; w++) {
    warps[w].ready = warps[w].at_barrier;
    warps[w].at_barrier = 0;
  }
  last_counted = counted;
  counted = 0;
  return true;
}

// The first of these lanes of a warp in the order in which threads run.
unsigned first_of(unsigned lanes)
{
  return backward ? WARP - 1 - (unsigned)__builtin_clz(lanes) : (unsigned)__builtin_ctz(lanes);
}

// The thread that runs next in a warp, starting after the current lane, or NOBODY.
unsigned next_in(unsigned w, unsigned lane)
{
  const unsigned lanes = warps[w].unstarted | warps[w].ready;
  if (!lanes) return NOBODY;
  const unsigned behind = lanes & (backward ? (1u << lane) - 1 : ~1u << lane);
  return w * WARP + first_of(behind ? behind : lanes);
}

// The thread that runs next in the block, starting at warp w; NOBODY if all have ended.
unsigned next_from(unsigned w)
{
  for (;;) {
    for (;;) {
      const unsigned t = next_in(w, backward ? 0 : WARP - 1);
      if (t != NOBODY) return t;
      if (w == (backward ? 0 : warp_count - 1)) break;
      w += backward ? -1u : 1u;
    }
    if (!live) return NOBODY;
    if (!open_barrier()) report_stuck();
    w = backward ? warp_count - 1 : 0;
  }
}

unsigned next_thread()
{
  const unsigned t = next_in(current / WARP, current % WARP);
  return t != NOBODY ? t : next_from(current / WARP);
}

// ---- fibers and threads

void run_thread(unsigned t, fiber *self)
{
  const unsigned bit = 1u << t % WARP;
  warp &w = warps[t / WARP];
  current = t;
  thread_index = threads[t].index;
  threads[t].on = self;
  w.unstarted &= ~bit;
  (*kernel_body)();
  wait_for_warp();
  w.live &= ~bit;
  live--;
  if (w.in_call) try_calls(w);
}

// Continues a thread on its own fiber, or starts it on an idle one.
void switch_to(fiber *self, unsigned t)
{
  const unsigned bit = 1u << t % WARP;
  warp &w = warps[t / WARP];
  fiber *f = threads[t].on;
  if (w.unstarted & bit) {
    if (idle.empty()) idle.push_back(new_fiber(live_on));
    f = idle.back();
    idle.pop_back();
  }
  w.ready &= ~bit;
  current = t;
  thread_index = threads[t].index;
  threads[t].on = f;
  switch_fiber(self, f);
}

// The loop of a fiber: runs the thread that it was started for, then the next ones. If the next one
// has a fiber already, or none is left, this fiber becomes idle.
void live_on()
{
  fiber *const self = threads[current].on;
  for (;;) {
    run_thread(current, self);
    const unsigned begun = warps[current / WARP].unstarted;
    const unsigned t = begun ? current / WARP * WARP + first_of(begun) : next_thread();
    if (t != NOBODY && warps[t / WARP].unstarted >> t % WARP & 1) {
      current = t;
      continue;
    }
    idle.push_back(self);
    if (t == NOBODY)
      switch_fiber(self, host_fiber());
    else
      switch_to(self, t);
  }
}

// ---- blocks

void poison_shared(uint64_t block)
{
  if (shared_bytes) memset(shared_end - shared_bytes, 0xff, shared_bytes);
  char *begin = __start_cuda_shared, *end = __stop_cuda_shared;
  if (block < POISONED_BLOCKS && begin != end) memset(begin, 0xff, (size_t)(end - begin));
}

void make_threads()
{
  thread_count = block_size.x * block_size.y * block_size.z;
  warp_count = (thread_count + WARP - 1) / WARP;
  for (unsigned t = 0; t < thread_count; t++)
    threads[t].index = {t % block_size.x, t / block_size.x % block_size.y,
                        t / (block_size.x * block_size.y)};
}

void run_block()
{
  for (unsigned w = 0; w < warp_count; w++) {
    const unsigned lanes = thread_count - w * WARP;
    const unsigned all = lanes >= WARP ? 0xffffffffu : (1u << lanes) - 1;
    warp &here = warps[w];
    here.unstarted = here.live = all;
    here.ready = here.in_call = here.at_barrier = 0;
    memset(here.meetings, 0, sizeof here.meetings);
    for (meeting &m : here.last) m.number = 0;
  }
  blocks_begun++;
  live = thread_count;
  switch_to(host_fiber(), next_from(backward ? warp_count - 1 : 0));
}

// The dynamic shared memory ends at an inaccessible page; it begins aligned to 16 bytes.
void make_shared(size_t bytes)
{
  static const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = 256 * 1024;
  if (bytes && !shared_end) {
    void *memory =
        mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("a kernel's launch", "no memory for dynamic shared memory");
    shared_end = static_cast<char *>(memory) + whole;
    mprotect(shared_end, page, PROT_NONE);
  }
  shared_bytes = (bytes + 15) / 16 * 16;
}

void run_grid(const launch_of &what, const std::function<void()> &body)
{
  const dim3 grid = what.blocks;
  backward = false;
  if (const char *order = getenv("CUDA_ON_CPU_ORDER")) {
    backward = strcmp(order, "backward") == 0;
    if (!backward && strcmp(order, "forward") != 0)
      fail("CUDA_ON_CPU_ORDER", "the environment says '%s'; forward or backward is expected",
           order);
  }
  grid_size = grid;
  block_size = what.threads;
  kernel_body = &body;
  kernel_name = what.kernel;
  make_threads();
  make_shared(what.shared);
  const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; i++) {
    const uint64_t b = backward ? blocks - 1 - i : i;
    block_index = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                   (unsigned)(b / grid.x / grid.y)};
    poison_shared(i);
    run_block();
  }
  kernel_name = nullptr;
}

// Fails unless a pointer handed to a kernel is null or points into device or pinned memory.
void check_argument(const char *kernel, int index, const void *pointer)
{
  char what[32];
  snprintf(what, sizeof what, "argument %d", index);
  if (pointer && !is_pinned(pointer)) need_device(kernel, what, pointer, 0);
}

// Each of a kernel's arguments has a multiple of 16 bytes in their copy, so that all are aligned.
size_t room(size_t bytes)
{
  return (bytes + 15) / 16 * 16;
}
} // namespace

std::string describe(unsigned t)
{
  const uint3 &i = threads[t].index;
  char text[64];
  snprintf(text, sizeof text, "thread (%u, %u, %u)", i.x, i.y, i.z);
  return text;
}

std::string waits_in(unsigned t)
{
  const thread &w = threads[t];
  char text[512];
  if (warps[t / WARP].at_barrier >> t % WARP & 1)
    snprintf(text, sizeof text, "__syncthreads at %s:%d", w.at.file, w.at.line);
  else
    snprintf(text, sizeof text, "%s with mask 0x%08x at %s:%d", name_of(w), w.mask, w.at.file,
             w.at.line);
  return text;
}

void wait_here()
{
  const unsigned t = current, next = next_thread();
  if (next == t)
    warps[t / WARP].ready &= ~(1u << t % WARP);
  else
    switch_to(threads[t].on, next);
}

bool in_kernel(char *where, size_t bytes)
{
  if (!kernel_name) return false;
  snprintf(where, bytes, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", kernel_name,
           block_index.x, block_index.y, block_index.z, thread_index.x, thread_index.y,
           thread_index.z);
  return true;
}

unsigned current_thread()
{
  return current;
}

uint64_t block_number()
{
  return blocks_begun;
}

void host_call(const char *call)
{
  if (kernel_name) fail(call, "a kernel called it; only the host may");
}

void *next_argument(char **copies, size_t bytes)
{
  char *const at = *copies;
  *copies += room(bytes);
  return at;
}

void launch(const launch_of &what, const argument_of *arguments, int count,
            void (*thread)(const void *kernel, char *copies))
{
  size_t bytes = 0;
  for (int i = 0; i < count; i++) {
    const argument_of &a = arguments[i];
    if (a.is_pointer) check_argument(what.kernel, i + 1, *static_cast<const void *const *>(a.at));
    bytes += room(a.bytes);
  }
  const dim3 blocks = what.blocks, size = what.threads;
  host_call(what.kernel);
  if (blocks.x < 1 || blocks.x > 0x7fffffffu || blocks.y < 1 || blocks.y > 65535 || blocks.z < 1 ||
      blocks.z > 65535)
    fail(what.kernel, "a grid of %u x %u x %u blocks; 1 to 2147483647 x 65535 x 65535 are possible",
         blocks.x, blocks.y, blocks.z);
  if (size.x < 1 || size.x > MAX_THREADS || size.y < 1 || size.y > MAX_THREADS || size.z < 1 ||
      size.z > 64 || size.x * size.y * size.z > MAX_THREADS)
    fail(what.kernel,
         "a block of %u x %u x %u threads; at most 1024 x 1024 x 64, and 1024 in all, are"
         " possible",
         size.x, size.y, size.z);
  const auto own = allowed.find(what.entry);
  const size_t most = own == allowed.end() ? SHARED : own->second;
  if (what.shared > most)
    fail(what.kernel,
         "%zu bytes of dynamic shared memory; %zu are allowed (more, up to %zu, by"
         " cudaFuncSetAttribute)",
         what.shared, most, MOST_SHARED);
  std::vector<char> copies(bytes);
  char *next = copies.data();
  for (int i = 0; i < count; i++)
    memcpy(next_argument(&next, arguments[i].bytes), arguments[i].at, arguments[i].bytes);
  on_stream(what.kernel, what.stream, [what, copies, thread]() mutable {
    run_grid(what, [&] { thread(what.entry, copies.data()); });
  });
}

void *dynamic_shared(size_t bytes)
{
  if (!kernel_name) fail("DYNAMIC_SHARED", "used outside a kernel");
  if (bytes > shared_bytes)
    fail("DYNAMIC_SHARED", "the launch gave %zu bytes: use LAUNCH_SHARED", shared_bytes);
  return shared_end - shared_bytes;
}
} // namespace cuda_on_cpu

// ---- barriers

static void meet_in_block(const char *file, int line)
{
  using namespace cuda_on_cpu;
  if (!kernel_name) fail("__syncthreads", "called outside a kernel, at %s:%d", file, line);
  wait_for_warp();
  threads[current].at = {file, line};
  warps[current / WARP].at_barrier |= 1u << current % WARP;
  wait_here();
}

void __syncthreads(const char *file, int line)
{
  meet_in_block(file, line);
}

int __syncthreads_count(int predicate, const char *file, int line)
{
  cuda_on_cpu::counted += predicate != 0;
  meet_in_block(file, line);
  return cuda_on_cpu::last_counted;
}

int __syncthreads_and(int predicate, const char *file, int line)
{
  return __syncthreads_count(!predicate, file, line) == 0;
}

int __syncthreads_or(int predicate, const char *file, int line)
{
  return __syncthreads_count(predicate, file, line) != 0;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
  using namespace cuda_on_cpu;
  host_call("cudaFuncSetAttribute");
  if (!kernel) fail("cudaFuncSetAttribute", "the kernel is null");
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess; // a hint
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    fail("cudaFuncSetAttribute", "attribute %d is unknown here", (int)attribute);
  if (value < 0 || (size_t)value > MOST_SHARED) return set_last_error(cudaErrorInvalidValue);
  allowed[kernel] = (size_t)value;
  return cudaSuccess;
}
