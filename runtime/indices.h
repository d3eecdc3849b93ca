// Indices that a step computes: what is no index is noted where the runtime looks
// (integer_inputs.h).
//
// A note is 0 where nothing was noted; else the least number that was no index, as the greatest of
// what index_note makes of them: in whatever order they are met, the same one stays.
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

// x where it is from 0 to below - 1, or `ignored`; else it is noted, and -1 comes of it.
IN_KERNELS int index_within(long long x, int below, int ignored, unsigned long long *noted)
{
  if ((x >= 0 && x < below) || x == ignored) return (int)x;
  const long long most = 1ll << 61, near = x > most ? most : x < -most ? -most : x;
  note_index((1ull << 63) + (unsigned long long)(most - near), noted);
  return -1;
}

// The number that a note, which isn't 0, tells of; where it is beyond 2^61, that.
static inline long long noted_index(unsigned long long note)
{
  return (1ll << 61) - (long long)(note - (1ull << 63));
}

#endif
