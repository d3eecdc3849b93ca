// SPDX-License-Identifier: MIT
// For programs by tpgen --check-finite: finds the first value that is not finite.
//
// After each statement CHECK_FINITE checks its result for NaN and infinity. Minus infinity is
// allowed: masks consist of it. The first value that a rank finds stays recorded until the runtime
// asks for it (target.h).
#ifndef FINITE_H
#define FINITE_H

#include "base/elements.h"

// A value in the plan's terms: "layers.*.attention.wq", and its line of the plan.
struct made {
  const char *name;
  int line;
};

#ifdef __cplusplus
#include "base/program.h"

// A note holds the statement of the value, the module, the element within the rank's part, and
// whether it is NaN. 0: none.
enum { NAN_BIT = 1, PLACE_BITS = 36, MODULE_BITS = 12, NUMBER_AT = NAN_BIT + PLACE_BITS };
int finite_number(const struct made *made); // of a statement, from 1 on: the same in every step
unsigned long long *finite_noted(void);     // on the device

__device__ static inline float as_float(float x)
{
  return x;
}
__device__ static inline float as_float(bf16 x)
{
  return bf16_to_float(x);
}

// One block records the first element that is not finite, if no kernel before has recorded one.
enum { FINDERS = 256 };
template <class T>
__global__ void find_not_finite(const T *x, long n, int number, int module,
                                unsigned long long *noted)
{
  __shared__ unsigned long long left; // elements from the first one found on, 0: none; its bit
  if (threadIdx.x == 0) left = 0;
  __syncthreads();
  for (long i = threadIdx.x; i < n; i += FINDERS) {
    const float y = as_float(x[i]);
    if (y == y && y != INFINITY) continue;
    atomicMax(&left, (unsigned long long)(n - i) << NAN_BIT | (y != y));
    break;
  }
  __syncthreads();
  if (threadIdx.x > 0 || left == 0 || *noted != 0) return;
  const unsigned long long at = (unsigned long long)n - (left >> NAN_BIT);
  *noted = ((unsigned long long)number << MODULE_BITS | (unsigned)module) << NUMBER_AT |
           at << NAN_BIT | (left & NAN_BIT);
}
template <class T> static inline void check_values(const T *x, long n, int number, int module)
{
  LAUNCH(find_not_finite<T>, 1, FINDERS, stream)(x, n, number, module, finite_noted());
}
#define CHECK_FINITE(x, n, module, name, line)                                                     \
  do {                                                                                             \
    static const struct made here_ = {name, line};                                                 \
    static const int number_ = finite_number(&here_);                                              \
    check_values(x, n, number_, module);                                                           \
  } while (0)
#else
void check_floats(const float *x, long n, int module, const struct made *made);
void check_halves(const bf16 *x, long n, int module, const struct made *made);
#define CHECK_FINITE(x, n, module, name, line)                                                     \
  do {                                                                                             \
    static const struct made here_ = {name, line};                                                 \
    _Generic((x) + 0, float * : check_floats, bf16 * : check_halves)(x, n, module, &here_);        \
  } while (0)
#endif

#endif
