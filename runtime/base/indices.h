// SPDX-License-Identifier: MIT
// Checks the indices that a step computes, and records an invalid one for the runtime
// (integer_inputs.h).
//
// A note is 0 if none was recorded; else it encodes the least invalid index, as the maximum over
// the values of index_note: so the result does not depend on the order.
#ifndef INDICES_H
#define INDICES_H

#include <stdbool.h>

#ifdef __cplusplus
#define IN_KERNELS __device__ static inline
IN_KERNELS void note_index(unsigned long long note, unsigned long long *noted)
{
  atomicMax(noted, note);
}
#else
#define IN_KERNELS static inline
static inline void note_index(unsigned long long note, unsigned long long *noted)
{
  unsigned long long before = __atomic_load_n(noted, __ATOMIC_RELAXED);
  while (before < note && !__atomic_compare_exchange_n(noted, &before, note, true, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED)) {
  }
}
#endif

// x if it is in 0 .. below - 1, or `ignored`; else records it and returns -1.
IN_KERNELS int index_within(long long x, int below, int ignored, unsigned long long *noted)
{
  if ((x >= 0 && x < below) || x == ignored) return (int)x;
  const long long most = 1ll << 61, near = x > most ? most : x < -most ? -most : x;
  note_index((1ull << 63) + (unsigned long long)(most - near), noted);
  return -1;
}

// The index that a note, not 0, encodes; one beyond 2^61 is returned as 2^61.
static inline long long noted_index(unsigned long long note)
{
  return (1ll << 61) - (long long)(note - (1ull << 63));
}

#endif
