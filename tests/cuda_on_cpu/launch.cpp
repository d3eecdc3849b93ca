// A stand-in for CUDA that exists for tests only: runs a kernel's threads over its grid and block.
//
// Blocks run one after another. Within a block each warp runs as far as it can before the next one
// does, so that a missing barrier shows. A fiber runs a warp's threads in a row for as long as none
// of them waits; a thread that waits keeps its fiber and the next thread gets another. Where no
// thread can go on, the block is stuck, and the message says who waits where.
// CUDA_ON_CPU_ORDER=backward runs blocks, warps and threads from the last to the first.
#include "stand_in.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

// Where the shared variables lie, if there are any.
extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace cuda_on_cpu
{
uint3 thread_index, block_index;
dim3 block_size, grid_size;

namespace
{
const unsigned WARP = 32, MAX_THREADS = 1024;
const size_t SHARED = 48 * 1024, MOST_SHARED = 227 * 1024; // dynamic: of any kernel, when asked for

struct place {
  const char *file;
  int line;
};

bool operator==(const place &a, const place &b)
{
  return a.line == b.line && strcmp(a.file, b.file) == 0;
}

enum class state { unstarted, ready, at_barrier, in_warp, done };

struct thread {
  enum state state;
  fiber *on;
  uint3 index;
  place at;       // of the barrier or warp call that it waits in
  warp_call call; // while in_warp, and what follows
  unsigned mask;
  uint64_t given, taken;
  int argument, width;
  const char *name; // of what all do together, and what that is
  void (*work)(void *const *lanes);
};

const char *kernel_name; // of the kernel that runs, or null
const std::function<void()> *kernel_body;
std::vector<thread> threads;
unsigned current; // the thread that runs
uint64_t blocks_begun;
unsigned live; // threads of the block that have not ended
std::vector<fiber *> idle;
bool backward;
int counted, last_counted;              // predicates at the barrier, and at the last one
std::map<const void *, size_t> allowed; // dynamic shared memory, by kernel
size_t shared_bytes;                    // that the block has
char *shared_end;                       // behind which nobody may touch

const char *name_of(warp_call call)
{
  switch (call) {
  case warp_call::sync:
    return "__syncwarp";
  case warp_call::shfl:
    return "__shfl_sync";
  case warp_call::shfl_up:
    return "__shfl_up_sync";
  case warp_call::shfl_down:
    return "__shfl_down_sync";
  case warp_call::shfl_xor:
    return "__shfl_xor_sync";
  case warp_call::ballot:
    return "__ballot_sync (or __any_sync, __all_sync)";
  case warp_call::match_any:
    return "__match_any_sync";
  case warp_call::reduce_add:
    return "__reduce_add_sync";
  case warp_call::reduce_min:
  case warp_call::reduce_min_signed:
    return "__reduce_min_sync";
  case warp_call::reduce_max:
  case warp_call::reduce_max_signed:
    return "__reduce_max_sync";
  case warp_call::reduce_and:
    return "__reduce_and_sync";
  case warp_call::reduce_or:
    return "__reduce_or_sync";
  case warp_call::reduce_xor:
    return "__reduce_xor_sync";
  case warp_call::all:
    break;
  }
  return "a call of the whole warp";
}

const char *name_of(const thread &w)
{
  return w.call == warp_call::all ? w.name : name_of(w.call);
}

unsigned warp_begin(unsigned t)
{
  return t / WARP * WARP;
}

unsigned warp_end(unsigned t)
{
  return std::min(warp_begin(t) + WARP, (unsigned)threads.size());
}

// The i-th thread of [begin, end) in the order in which threads run.
unsigned in_order(unsigned begin, unsigned end, unsigned i)
{
  return backward ? end - 1 - i : begin + i;
}

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
  if (w.state == state::at_barrier)
    snprintf(text, sizeof text, "__syncthreads at %s:%d", w.at.file, w.at.line);
  else
    snprintf(text, sizeof text, "%s with mask 0x%08x at %s:%d", name_of(w), w.mask, w.at.file,
             w.at.line);
  return text;
}

// ---- fibers and threads

void try_warp(unsigned t);

void run_thread(unsigned t, fiber *self)
{
  current = t;
  thread_index = threads[t].index;
  threads[t].on = self;
  threads[t].state = state::ready;
  (*kernel_body)();
  threads[t].state = state::done;
  live--;
  for (unsigned other = warp_begin(t); other < warp_end(t); other++)
    if (threads[other].state == state::in_warp) try_warp(other);
}

fiber *next_fiber; // the fiber that is switched to, so that it can learn who it is

// A fiber's life: the thread that it was woken for, then the rest of the warp, then idleness.
void live_on()
{
  fiber *self = next_fiber;
  for (;;) {
    unsigned begin = warp_begin(current), end = warp_end(current);
    run_thread(current, self);
    for (unsigned i = 0; i < end - begin; i++) {
      unsigned t = in_order(begin, end, i);
      if (threads[t].state == state::unstarted) run_thread(t, self);
    }
    idle.push_back(self);
    switch_fiber(self, host_fiber());
  }
}

void resume(unsigned t)
{
  fiber *f = threads[t].on;
  if (threads[t].state == state::unstarted) {
    if (idle.empty()) idle.push_back(new_fiber(live_on));
    f = idle.back();
    idle.pop_back();
  }
  current = t;
  thread_index = threads[t].index;
  next_fiber = f;
  switch_fiber(host_fiber(), f);
}

void wait_here()
{
  unsigned t = current;
  switch_fiber(threads[t].on, host_fiber());
}

// ---- what meets in a warp

// The lane whose value a lane gets, by CUDA's rules; its own where the rule leads out of reach.
unsigned source_lane(const thread &w, unsigned lane)
{
  unsigned width = (unsigned)w.width, in = lane % width, first = lane - in;
  unsigned by = (unsigned)w.argument;
  switch (w.call) {
  case warp_call::shfl:
    return first + by % width;
  case warp_call::shfl_up:
    return by > in ? lane : lane - by;
  case warp_call::shfl_down:
    return by >= width - in ? lane : lane + by;
  case warp_call::shfl_xor:
    return (lane ^ by) >= first + width ? lane : lane ^ by;
  default:
    return lane;
  }
}

uint64_t reduce_two(warp_call call, uint64_t a, uint64_t b)
{
  const unsigned x = (unsigned)a, y = (unsigned)b;
  switch (call) {
  case warp_call::reduce_add:
    return x + y;
  case warp_call::reduce_min:
    return std::min(x, y);
  case warp_call::reduce_max:
    return std::max(x, y);
  case warp_call::reduce_min_signed:
    return (unsigned)std::min((int)x, (int)y);
  case warp_call::reduce_max_signed:
    return (unsigned)std::max((int)x, (int)y);
  case warp_call::reduce_and:
    return x & y;
  case warp_call::reduce_or:
    return x | y;
  default:
    return x ^ y;
  }
}

void give(unsigned begin, unsigned lane, unsigned members)
{
  thread &w = threads[begin + lane];
  if (w.call == warp_call::ballot) {
    w.taken = 0;
    for (unsigned l = 0; l < WARP; l++)
      if (members >> l & 1 && threads[begin + l].given) w.taken |= 1ull << l;
    return;
  }
  if (w.call == warp_call::match_any) {
    w.taken = 0;
    for (unsigned l = 0; l < WARP; l++)
      if (members >> l & 1 && threads[begin + l].given == w.given) w.taken |= 1ull << l;
    return;
  }
  if (w.call >= warp_call::reduce_add) {
    w.taken = w.given;
    for (unsigned l = 0; l < WARP; l++)
      if (members >> l & 1 && l != lane)
        w.taken = reduce_two(w.call, w.taken, threads[begin + l].given);
    return;
  }
  unsigned from = source_lane(w, lane);
  if (!(members >> from & 1))
    fail(name_of(w), "%s reads lane %u of its warp, which takes no part in the call at %s:%d",
         describe(begin + lane).c_str(), from, w.at.file, w.at.line);
  w.taken = threads[begin + from].given;
}

void must_agree(unsigned a, unsigned b)
{
  if (threads[a].call == threads[b].call && threads[a].at == threads[b].at) return;
  fail(name_of(threads[a]), "the warp has parted: %s is in %s, %s in %s", describe(a).c_str(),
       waits_in(a).c_str(), describe(b).c_str(), waits_in(b).c_str());
}

// What all lanes of a warp do at once, each with what it has brought.
void work_together(unsigned begin, unsigned members)
{
  const thread &w = threads[begin];
  if (members != 0xffffffffu)
    fail(name_of(w), "lanes 0x%08x of the warp alone come to %s:%d; all 32 must", members,
         w.at.file, w.at.line);
  void *lanes[WARP];
  for (unsigned lane = 0; lane < WARP; lane++) lanes[lane] = (void *)threads[begin + lane].given;
  w.work(lanes);
}

// Lets the lanes of a waiting thread's mask go on once all of them that live are there.
void try_warp(unsigned t)
{
  unsigned begin = warp_begin(t), end = warp_end(t), mask = threads[t].mask, members = 0;
  for (unsigned other = begin; other < end; other++) {
    unsigned lane = other - begin;
    if (!(mask >> lane & 1) || threads[other].state == state::done) continue;
    if (threads[other].state != state::in_warp || threads[other].mask != mask) return;
    members |= 1u << lane;
  }
  for (unsigned lane = 0; lane < end - begin; lane++)
    if (members >> lane & 1) must_agree(t, begin + lane);
  if (threads[t].call == warp_call::all)
    work_together(begin, members);
  else
    for (unsigned lane = 0; lane < end - begin; lane++)
      if (members >> lane & 1) give(begin, lane, members);
  for (unsigned lane = 0; lane < end - begin; lane++)
    if (members >> lane & 1) threads[begin + lane].state = state::ready;
}

// ---- blocks

bool run_warp(unsigned begin, unsigned end)
{
  bool ran = false;
  for (bool again = true; again; ran |= again) {
    again = false;
    for (unsigned i = 0; i < end - begin; i++) {
      unsigned t = in_order(begin, end, i);
      if (threads[t].state != state::unstarted && threads[t].state != state::ready) continue;
      resume(t);
      again = true;
    }
  }
  return ran;
}

// Lets all go on if every live thread waits at the block's barrier; false if one does not.
bool open_barrier()
{
  unsigned first = MAX_THREADS;
  for (unsigned t = 0; t < threads.size(); t++) {
    if (threads[t].state == state::done) continue;
    if (threads[t].state != state::at_barrier) return false;
    if (first == MAX_THREADS) first = t;
    if (!(threads[t].at == threads[first].at))
      fail("__syncthreads", "the block has parted: %s is in %s, %s in %s", describe(first).c_str(),
           waits_in(first).c_str(), describe(t).c_str(), waits_in(t).c_str());
  }
  for (thread &w : threads)
    if (w.state == state::at_barrier) w.state = state::ready;
  last_counted = counted;
  counted = 0;
  return true;
}

[[noreturn]] void report_stuck()
{
  std::string text;
  std::vector<bool> told(threads.size());
  for (unsigned t = 0; t < threads.size(); t++) {
    if (threads[t].state == state::done || told[t]) continue;
    std::string here = waits_in(t);
    unsigned alike = 0;
    for (unsigned other = t; other < threads.size(); other++) {
      if (threads[other].state == state::done || waits_in(other) != here) continue;
      told[other] = true;
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

void poison_shared()
{
  if (shared_bytes) memset(shared_end - shared_bytes, 0xff, shared_bytes);
  char *begin = __start_cuda_shared, *end = __stop_cuda_shared;
  if (begin != end) memset(begin, 0xff, (size_t)(end - begin));
}

void run_block()
{
  unsigned count = (unsigned)threads.size();
  for (unsigned t = 0; t < count; t++) {
    threads[t] = {};
    threads[t].index = {t % block_size.x, t / block_size.x % block_size.y,
                        t / (block_size.x * block_size.y)};
  }
  blocks_begun++;
  live = count;
  poison_shared();
  unsigned warps = (count + WARP - 1) / WARP;
  while (live) {
    bool ran = false;
    for (unsigned i = 0; i < warps; i++) {
      unsigned w = in_order(0, warps, i);
      ran |= run_warp(w * WARP, warp_end(w * WARP));
    }
    if (live && !open_barrier() && !ran) report_stuck();
  }
}

// The dynamic shared memory ends where nobody may touch; it begins aligned to 16 bytes.
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
  const dim3 grid = what.blocks, block = what.threads;
  backward = false;
  if (const char *order = getenv("CUDA_ON_CPU_ORDER")) {
    backward = strcmp(order, "backward") == 0;
    if (!backward && strcmp(order, "forward") != 0)
      fail("CUDA_ON_CPU_ORDER", "the environment says '%s'; forward or backward is wanted", order);
  }
  grid_size = grid;
  block_size = block;
  kernel_body = &body;
  threads.resize((size_t)block.x * block.y * block.z);
  kernel_name = what.kernel;
  make_shared(what.shared);
  uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; i++) {
    uint64_t b = backward ? blocks - 1 - i : i;
    block_index = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                   (unsigned)(b / grid.x / grid.y)};
    run_block();
  }
  kernel_name = nullptr;
}
} // namespace

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

void launch(const launch_of &what, std::function<void()> body)
{
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
  on_stream(what.kernel, what.stream, [=] { run_grid(what, body); });
}

void *dynamic_shared(size_t bytes)
{
  if (!kernel_name) fail("DYNAMIC_SHARED", "used outside a kernel");
  if (bytes > shared_bytes)
    fail("DYNAMIC_SHARED", "the launch gave %zu bytes: use LAUNCH_SHARED", shared_bytes);
  return shared_end - shared_bytes;
}

void check_argument(const char *kernel, int index, const void *pointer)
{
  char what[32];
  snprintf(what, sizeof what, "argument %d", index);
  if (pointer && !is_pinned(pointer)) need_device(kernel, what, pointer, 0);
}

uint64_t meet_in_warp(warp_call call, unsigned mask, uint64_t given, int argument, int width,
                      const char *file, int line)
{
  if (!kernel_name) fail(name_of(call), "called outside a kernel, at %s:%d", file, line);
  unsigned t = current, lane = t % WARP;
  if (width < 1 || width > 32 || (width & (width - 1)))
    fail(name_of(call), "width %d at %s:%d; a power of two up to 32 is wanted", width, file, line);
  if (!(mask >> lane & 1))
    fail(name_of(call), "lane %u calls it with mask 0x%08x, where it is not itself, at %s:%d", lane,
         mask, file, line);
  thread &w = threads[t];
  w.call = call;
  w.at = {file, line};
  w.mask = mask;
  w.given = given;
  w.argument = argument;
  w.width = width;
  w.state = state::in_warp;
  try_warp(t);
  if (w.state == state::in_warp) wait_here();
  return threads[t].taken;
}

void meet_all(const char *name, void *mine, void (*work)(void *const *lanes), const char *file,
              int line)
{
  if (!kernel_name) fail(name, "called outside a kernel, at %s:%d", file, line);
  threads[current].name = name;
  threads[current].work = work;
  meet_in_warp(warp_call::all, 0xffffffffu, (uint64_t)mine, 0, 32, file, line);
}
} // namespace cuda_on_cpu

// ---- barriers

static void meet_in_block(const char *file, int line)
{
  using namespace cuda_on_cpu;
  if (!kernel_name) fail("__syncthreads", "called outside a kernel, at %s:%d", file, line);
  threads[current].at = {file, line};
  threads[current].state = state::at_barrier;
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
