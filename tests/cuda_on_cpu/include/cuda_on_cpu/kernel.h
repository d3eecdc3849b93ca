// A stand-in for CUDA that exists for tests only: what kernels are written with (qualifiers, the
// place in the grid, barriers, shuffles, atomics) and how they are launched. Included by
// cuda_runtime.h.
#ifndef CUDA_ON_CPU_KERNEL_H
#define CUDA_ON_CPU_KERNEL_H

#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// Blocks run one after another, so one copy of a shared variable is enough. The section lets each
// block begin with all of them poisoned; the address sanitizer guards plain statics only, so under
// it they stay where they are. `extern __shared__` does not compile: see DYNAMIC_SHARED.
#if defined(__SANITIZE_ADDRESS__)
#define __shared__ static
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __shared__ static
#endif
#endif
#ifndef __shared__
#define __shared__ static __attribute__((section("cuda_shared")))
#endif

namespace cuda_on_cpu
{
extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;

// A launch: `entry` is the kernel's address, `shared` the bytes of dynamic shared memory.
struct launch_of {
  const char *kernel;
  const void *entry;
  dim3 blocks, threads;
  size_t shared;
  cudaStream_t stream;
};

// An argument of a kernel, where the caller has it.
struct argument_of {
  const void *at;
  size_t bytes;
  bool is_pointer;
};

// Checks and copies the arguments, and runs `thread` once for each thread of each block, in the
// order of the stream. It takes the kernel and the copies, which it asks for one by one with
// next_argument().
void launch(const launch_of &what, const argument_of *arguments, int count,
            void (*thread)(const void *kernel, char *copies));
void *next_argument(char **copies, size_t bytes);

// The dynamic shared memory of the block that runs, of at least so many bytes.
void *dynamic_shared(size_t bytes);

// What meets in a warp: the calling lane gives 8 bytes and gets 8.
enum class warp_call {
  sync,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  ballot,
  match_any,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_min_signed,
  reduce_max_signed,
  reduce_and,
  reduce_or,
  reduce_xor,
  all
};
uint64_t meet_in_warp(warp_call call, unsigned mask, uint64_t given, int argument, int width,
                      const char *file, int line);

// What a whole warp does at once: the last lane to come does the work, with what each has brought.
void meet_all(const char *name, void *mine, void (*work)(void *const *lanes), const char *file,
              int line);

// Kernels have many lists of parameters, and each compiles this again: it leaves what it can to
// functions.
template <class... P> class launcher
{
public:
  launcher(const char *name, void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared,
           cudaStream_t on)
      : what{name, reinterpret_cast<const void *>(kernel), blocks, threads, shared, on}
  {
  }

  void operator()(P... arguments) const
  {
    const argument_of given[] = {{&arguments, sizeof arguments, std::is_pointer_v<P>}..., {}};
    launch(what, given, sizeof...(P), thread);
  }

private:
  // Unlike the arguments of a call, a list in braces is evaluated from left to right.
  struct in_order {
    in_order(const void *kernel, P... arguments)
    {
      reinterpret_cast<void (*)(P...)>(const_cast<void *>(kernel))(arguments...);
    }
  };
  static void thread(const void *kernel, char *copies)
  {
    (void)copies;
    in_order{kernel, *static_cast<P *>(next_argument(&copies, sizeof(P)))...};
  }

  launch_of what;
};

template <class... P> void allow_shared(void (*kernel)(P...), size_t bytes)
{
  if (bytes > 48 * 1024)
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

template <class T>
T shuffle_any(warp_call call, unsigned mask, T value, int argument, int width, const char *file,
              int line)
{
  uint64_t bits = 0;
  memcpy(&bits, static_cast<const void *>(&value), sizeof value);
  bits = meet_in_warp(call, mask, bits, argument, width, file, line);
  memcpy(static_cast<void *>(&value), &bits, sizeof value);
  return value;
}
template <class T>
T shuffle(warp_call call, unsigned mask, T value, int argument, int width, const char *file,
          int line)
{
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, long> ||
                    std::is_same_v<T, unsigned long> || std::is_same_v<T, long long> ||
                    std::is_same_v<T, unsigned long long> || std::is_same_v<T, float> ||
                    std::is_same_v<T, double>,
                "the stand-in shuffles int, long, long long, their unsigned kin, float and double");
  return shuffle_any(call, mask, value, argument, width, file, line);
}
} // namespace cuda_on_cpu

// As that of program.h it asks for what is more than a kernel has unasked.
#define LAUNCH_WITH(kernel, blocks, threads, bytes, on)                                            \
  (::cuda_on_cpu::allow_shared(kernel, bytes),                                                     \
   ::cuda_on_cpu::launcher(#kernel, kernel, blocks, threads, bytes, on))
#define LAUNCH(kernel, blocks, threads, on) LAUNCH_WITH(kernel, blocks, threads, 0, on)
#define LAUNCH_SHARED(kernel, blocks, threads, bytes, on)                                          \
  LAUNCH_WITH(kernel, blocks, threads, bytes, on)

// In place of `extern __shared__`, which a host compiler takes for something else: a pointer to the
// block's dynamic shared memory.
#define DYNAMIC_SHARED(type, name)                                                                 \
  type *const name = static_cast<type *>(::cuda_on_cpu::dynamic_shared(sizeof(type)))

static constexpr int warpSize = 32;
inline const uint3 &threadIdx = cuda_on_cpu::thread_index;
inline const uint3 &blockIdx = cuda_on_cpu::block_index;
inline const dim3 &blockDim = cuda_on_cpu::block_size;
inline const dim3 &gridDim = cuda_on_cpu::grid_size;

// The last two arguments of these are never written: they say where the call stands.
void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE());
int __syncthreads_count(int predicate, const char *file = __builtin_FILE(),
                        int line = __builtin_LINE());
int __syncthreads_and(int predicate, const char *file = __builtin_FILE(),
                      int line = __builtin_LINE());
int __syncthreads_or(int predicate, const char *file = __builtin_FILE(),
                     int line = __builtin_LINE());

static inline void __syncwarp(unsigned mask = 0xffffffffu, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE())
{
  cuda_on_cpu::meet_in_warp(cuda_on_cpu::warp_call::sync, mask, 0, 0, 32, file, line);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, const char *file = __builtin_FILE(),
              int line = __builtin_LINE())
{
  return cuda_on_cpu::shuffle(cuda_on_cpu::warp_call::shfl, mask, value, lane, width, file, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
  return cuda_on_cpu::shuffle(cuda_on_cpu::warp_call::shfl_up, mask, value, (int)by, width, file,
                              line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
  return cuda_on_cpu::shuffle(cuda_on_cpu::warp_call::shfl_down, mask, value, (int)by, width, file,
                              line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32,
                  const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
  return cuda_on_cpu::shuffle(cuda_on_cpu::warp_call::shfl_xor, mask, value, with, width, file,
                              line);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate,
                                     const char *file = __builtin_FILE(),
                                     int line = __builtin_LINE())
{
  return (unsigned)cuda_on_cpu::meet_in_warp(cuda_on_cpu::warp_call::ballot, mask, predicate != 0,
                                             0, 32, file, line);
}
static inline int __any_sync(unsigned mask, int predicate, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
  return __ballot_sync(mask, predicate, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
  return __ballot_sync(mask, !predicate, file, line) == 0;
}

static inline unsigned __match_any_sync(unsigned mask, unsigned value,
                                        const char *file = __builtin_FILE(),
                                        int line = __builtin_LINE())
{
  return (unsigned)cuda_on_cpu::meet_in_warp(cuda_on_cpu::warp_call::match_any, mask, value, 0, 32,
                                             file, line);
}
#define CUDA_ON_CPU_REDUCE(name, T, call)                                                          \
  static inline T name(unsigned mask, T value, const char *file = __builtin_FILE(),                \
                       int line = __builtin_LINE())                                                \
  {                                                                                                \
    return (T)cuda_on_cpu::meet_in_warp(cuda_on_cpu::warp_call::call, mask, (unsigned)value, 0,    \
                                        32, file, line);                                           \
  }
CUDA_ON_CPU_REDUCE(__reduce_add_sync, unsigned, reduce_add)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, unsigned, reduce_min)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, unsigned, reduce_max)
CUDA_ON_CPU_REDUCE(__reduce_add_sync, int, reduce_add)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, int, reduce_min_signed)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, int, reduce_max_signed)
CUDA_ON_CPU_REDUCE(__reduce_and_sync, unsigned, reduce_and)
CUDA_ON_CPU_REDUCE(__reduce_or_sync, unsigned, reduce_or)
CUDA_ON_CPU_REDUCE(__reduce_xor_sync, unsigned, reduce_xor)
#undef CUDA_ON_CPU_REDUCE

// Threads take turns and memory is one: nothing is left to order.
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}
static inline void __threadfence_system(void)
{
}

namespace cuda_on_cpu
{
template <class T, class... Allowed> constexpr bool one_of = (std::is_same_v<T, Allowed> || ...);
template <class T> struct same {
  using type = T;
};
template <class T> using given = typename same<T>::type; // not deduced: converts as in real calls
} // namespace cuda_on_cpu

// A thread is never interrupted between two barriers, so these are plain. All return the old value.
template <class T> T atomicAdd(T *at, cuda_on_cpu::given<T> by)
{
  static_assert(cuda_on_cpu::one_of<T, int, unsigned, unsigned long long, float, double>,
                "atomicAdd takes int, unsigned, unsigned long long, float or double");
  T old = *at;
  *at = old + by;
  return old;
}
template <class T> T atomicSub(T *at, cuda_on_cpu::given<T> by)
{
  static_assert(cuda_on_cpu::one_of<T, int, unsigned>, "atomicSub takes int or unsigned");
  T old = *at;
  *at = old - by;
  return old;
}
static inline unsigned atomicInc(unsigned *at, unsigned last)
{
  unsigned old = *at;
  *at = old >= last ? 0 : old + 1;
  return old;
}
#define CUDA_ON_CPU_ATOMIC(name, operation)                                                        \
  template <class T> T name(T *at, cuda_on_cpu::given<T> value)                                    \
  {                                                                                                \
    static_assert(cuda_on_cpu::one_of<T, int, unsigned, unsigned long long>,                       \
                  #name " takes int, unsigned or unsigned long long");                             \
    T old = *at;                                                                                   \
    *at = old operation value;                                                                     \
    return old;                                                                                    \
  }
CUDA_ON_CPU_ATOMIC(atomicAnd, &)
CUDA_ON_CPU_ATOMIC(atomicOr, |)
CUDA_ON_CPU_ATOMIC(atomicXor, ^)
#undef CUDA_ON_CPU_ATOMIC
template <class T> T atomicMax(T *at, cuda_on_cpu::given<T> value)
{
  static_assert(cuda_on_cpu::one_of<T, int, unsigned, long long, unsigned long long>,
                "atomicMax takes int, unsigned and their long long kin");
  T old = *at;
  *at = old > value ? old : value;
  return old;
}
template <class T> T atomicMin(T *at, cuda_on_cpu::given<T> value)
{
  static_assert(cuda_on_cpu::one_of<T, int, unsigned, long long, unsigned long long>,
                "atomicMin takes int, unsigned and their long long kin");
  T old = *at;
  *at = old < value ? old : value;
  return old;
}
template <class T> T atomicExch(T *at, cuda_on_cpu::given<T> value)
{
  static_assert(cuda_on_cpu::one_of<T, int, unsigned, unsigned long long, float>,
                "atomicExch takes int, unsigned, unsigned long long or float");
  T old = *at;
  *at = value;
  return old;
}
template <class T> T atomicCAS(T *at, cuda_on_cpu::given<T> compare, cuda_on_cpu::given<T> value)
{
  static_assert(cuda_on_cpu::one_of<T, int, unsigned, unsigned long long>,
                "atomicCAS takes int, unsigned or unsigned long long");
  T old = *at;
  if (old == compare) *at = value;
  return old;
}

#endif
