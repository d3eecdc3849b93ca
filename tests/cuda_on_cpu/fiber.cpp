// A stand-in for CUDA, for tests only: fibers; each thread of a block is one.
//
// A switch saves the callee-saved registers on the stack and changes stacks: some ten instructions.
// On processors other than x86-64 _setjmp and _longjmp do it, and ucontext begins a fiber. The
// address sanitizer is notified of every switch.
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
#ifdef __x86_64__
  void *top; // of its stack, while another fiber runs
#else
  jmp_buf registers;
  ucontext_t beginning;
  bool begun;
#endif
  char *guard;       // one page below the stack
  const void *stack; // its lowest address; the host's is set at the first switch from it
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

static char *stack_of(const fiber *f)
{
  return const_cast<char *>(static_cast<const char *>(f->stack));
}

static void begin()
{
  fiber *self = starting;
  arriving(self);
  self->body();
  abort();
}

#ifdef __x86_64__
// Saves the registers and the stack's top at *from, and continues at `to`.
extern "C" void cuda_on_cpu_change_stack(void **from, void *to);
__asm__(R"(
.text
.globl cuda_on_cpu_change_stack
.hidden cuda_on_cpu_change_stack
.type cuda_on_cpu_change_stack, @function
cuda_on_cpu_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_on_cpu_change_stack, . - cuda_on_cpu_change_stack
)");

// Builds a stack as if a switch had left `begin` at its first instruction, without a caller.
static void prepare(fiber *f)
{
  // Stacks with the same offset in a page would share the same few cache lines.
  const size_t shift = fibers.size() % 32 * 128;
  void **top = reinterpret_cast<void **>(stack_of(f) + f->bytes - shift);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void *>(begin);
  for (int i = 3; i <= 8; i++) top[-i] = nullptr;
  f->top = top - 8;
}

static void change(fiber *from, fiber *to)
{
  starting = to;
  cuda_on_cpu_change_stack(&from->top, to->top);
}
#else
static void prepare(fiber *f)
{
  getcontext(&f->beginning);
  f->beginning.uc_stack.ss_sp = stack_of(f);
  f->beginning.uc_stack.ss_size = f->bytes;
  f->beginning.uc_link = nullptr;
  makecontext(&f->beginning, begin, 0);
}

static void change(fiber *from, fiber *to)
{
  if (_setjmp(from->registers) != 0) return;
  if (to->begun || to == &host) _longjmp(to->registers, 1);
  to->begun = true;
  starting = to;
  setcontext(&to->beginning);
  abort();
}
#endif

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
  prepare(f);
  fibers.push_back(f);
  return f;
}

fiber *host_fiber()
{
  return &host;
}

void switch_fiber(fiber *from, fiber *to)
{
  leaving(from, to);
  change(from, to);
  arriving(from);
}

fiber *fiber_that_overflowed(const void *address)
{
  for (fiber *f : fibers)
    if (address >= f->guard && address < f->stack) return f;
  return nullptr;
}
} // namespace cuda_on_cpu
