// A stand-in for CUDA that exists for tests only: fibers, of which each thread of a block is one.
//
// A fiber begins through ucontext; later switches go through _setjmp and _longjmp, which ask
// nothing of the kernel and so take nanoseconds. The address sanitizer is told of every switch.
#undef _FORTIFY_SOURCE // its longjmp refuses to change stacks
#include "stand_in.h"

#include <csetjmp>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define CUDA_ON_CPU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDA_ON_CPU_ASAN 1
#endif
#endif
#ifdef CUDA_ON_CPU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_on_cpu
{
struct fiber {
  jmp_buf registers;
  ucontext_t beginning;
  bool begun;
  char *guard;       // one page below the stack
  const void *stack; // its lowest address; the host's is learnt at the first switch from it
  size_t bytes;
  void *fake_stack; // the sanitizer's
  void (*body)();
};

static const size_t STACK_BYTES = 256 * 1024;
static std::vector<fiber *> fibers;
static fiber host;

static void leaving(fiber *from, fiber *to)
{
#ifdef CUDA_ON_CPU_ASAN
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->bytes);
#else
  (void)from, (void)to;
#endif
}

static void arriving(fiber *self)
{
#ifdef CUDA_ON_CPU_ASAN
  const void *stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(self->fake_stack, &stack, &bytes);
  if (!host.stack) {
    host.stack = stack;
    host.bytes = bytes;
  }
#else
  (void)self;
#endif
}

static fiber *starting;

static void begin()
{
  fiber *self = starting;
  arriving(self);
  self->body();
  abort();
}

fiber *new_fiber(void (*body)())
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *memory = mmap(nullptr, page + STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("a kernel's launch", "no memory for a thread's stack");
  fiber *f = new fiber();
  f->guard = static_cast<char *>(memory);
  f->stack = f->guard + page;
  f->bytes = STACK_BYTES;
  f->body = body;
  mprotect(f->guard, page, PROT_NONE);
  getcontext(&f->beginning);
  f->beginning.uc_stack.ss_sp = f->guard + page;
  f->beginning.uc_stack.ss_size = f->bytes;
  f->beginning.uc_link = nullptr;
  makecontext(&f->beginning, begin, 0);
  fibers.push_back(f);
  return f;
}

fiber *host_fiber()
{
  host.begun = true;
  return &host;
}

void switch_fiber(fiber *from, fiber *to)
{
  if (_setjmp(from->registers) == 0) {
    leaving(from, to);
    if (to->begun) _longjmp(to->registers, 1);
    to->begun = true;
    starting = to;
    setcontext(&to->beginning);
    abort();
  }
  arriving(from);
}

fiber *fiber_that_overflowed(const void *address)
{
  for (fiber *f : fibers)
    if (address >= f->guard && address < f->stack) return f;
  return nullptr;
}
} // namespace cuda_on_cpu
