// A stand-in for CUDA, for tests only: the memory accesses of kernels.
//
// Code that is compiled with -fsanitize=thread calls a function before each load and store. These
// functions are here, instead of in the sanitizer's own library (which must not be linked): they
// report loads and stores of device memory to order.cpp and ignore all others, the host's too: the
// processor traps the host's accesses to device memory.
#include "cells.h"

#if !defined(__SANITIZE_THREAD__)

namespace
{
using namespace cuda_on_cpu;

// The old state of cells that the current operation has all brought to the same new state.
struct seen_before {
  uint32_t by;
  cell was, is;
};
seen_before last_read, last_write;

template <size_t n> bool all_are(const cell *c, cell like)
{
  bool same = true;
  for (size_t i = 0; i < n; i++) same &= c[i].write == like.write && c[i].read == like.read;
  return same;
}

template <size_t n> bool known(const seen_before &s, cell *c)
{
  if (s.by != now || !all_are<n>(c, s.was)) return false;
  for (size_t i = 0; i < n; i++) c[i] = s.is;
  return true;
}

template <size_t bytes> inline void read_of(const void *p)
{
  const size_t n = bytes > 1 ? bytes / 2 : 1;
  if (!in_device_addresses(p)) return;
  cell *const c = cells_at(p);
  bool done = true;
  for (size_t i = 0; i < n; i++) done &= (c[i].write == now) | (c[i].read == now);
  if (done || known<n>(last_read, c)) return;
  const cell was = c[0];
  reads(p, bytes);
  last_read = {now, was, c[0]};
}

template <size_t bytes> inline void write_of(const void *p)
{
  const size_t n = bytes > 1 ? bytes / 2 : 1;
  if (!in_device_addresses(p)) return;
  cell *const c = cells_at(p);
  bool done = true;
  for (size_t i = 0; i < n; i++) done &= c[i].write == now;
  if (done || known<n>(last_write, c)) return;
  const cell was = c[0];
  writes(p, bytes);
  last_write = {now, was, c[0]};
}

void range(const void *p, size_t bytes, void (*touch)(const void *, size_t))
{
  if (bytes && in_device_addresses(p)) touch(p, bytes);
}
} // namespace

extern "C" {
void __tsan_init();
void __tsan_func_entry(void *);
void __tsan_func_exit();
void __tsan_vptr_update(void **, void *);
void __tsan_vptr_read(void **);
void __tsan_init()
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit()
{
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_vptr_read(void **)
{
}

#define TOUCH(name, what)                                                                          \
  void __tsan_##name(void *p);                                                                     \
  void __tsan_##name(void *p)                                                                      \
  {                                                                                                \
    what;                                                                                          \
  }
#define TOUCH_BYTES(n)                                                                             \
  TOUCH(read##n, read_of<n>(p))                                                                    \
  TOUCH(write##n, write_of<n>(p))                                                                  \
  TOUCH(volatile_read##n, read_of<n>(p))                                                           \
  TOUCH(volatile_write##n, write_of<n>(p))                                                         \
  TOUCH(read_write##n, (read_of<n>(p), write_of<n>(p)))                                            \
  TOUCH(unaligned_read##n, range(p, n, reads))                                                     \
  TOUCH(unaligned_write##n, range(p, n, writes))                                                   \
  TOUCH(unaligned_volatile_read##n, range(p, n, reads))                                            \
  TOUCH(unaligned_volatile_write##n, range(p, n, writes))                                          \
  TOUCH(unaligned_read_write##n, (range(p, n, reads), range(p, n, writes)))
TOUCH_BYTES(1)
TOUCH_BYTES(2)
TOUCH_BYTES(4)
TOUCH_BYTES(8)
TOUCH_BYTES(16)

void __tsan_read_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int byte, size_t bytes);
void __tsan_read_range(void *p, size_t bytes)
{
  range(p, bytes, reads);
}
void __tsan_write_range(void *p, size_t bytes)
{
  range(p, bytes, writes);
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
  range(from, bytes, reads);
  range(to, bytes, writes);
  return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
  range(from, bytes, reads);
  range(to, bytes, writes);
  return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int byte, size_t bytes)
{
  range(to, bytes, writes);
  return memset(to, byte, bytes);
}

// Atomics are the host's (program.h has some for the watchdog): executed, and not checked.
#define ATOMIC(bits, T)                                                                            \
  T __tsan_atomic##bits##_load(const volatile T *at, int order);                                   \
  T __tsan_atomic##bits##_load(const volatile T *at, int)                                          \
  {                                                                                                \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T *at, T value, int order);                            \
  void __tsan_atomic##bits##_store(volatile T *at, T value, int)                                   \
  {                                                                                                \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                \
  T __tsan_atomic##bits##_exchange(volatile T *at, T value, int order);                            \
  T __tsan_atomic##bits##_exchange(volatile T *at, T value, int)                                   \
  {                                                                                                \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                       \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_add(volatile T *at, T value, int order);                           \
  T __tsan_atomic##bits##_fetch_add(volatile T *at, T value, int)                                  \
  {                                                                                                \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                        \
  }
ATOMIC(8, uint8_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int)
{
}
}

#endif
