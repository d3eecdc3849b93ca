// SPDX-License-Identifier: MIT
// Declares glibc's vector versions of these functions, so that loops that call them are vectorised;
// glibc's own headers declare them only under fast-math. They are accurate to 4 units in the last
// place, and treat infinity and NaN like the scalar ones.
#ifndef CPU_VECTORS_H
#define CPU_VECTORS_H

#include <math.h>

#if defined(_OPENMP) && defined(__GLIBC__) && defined(__x86_64__) && !defined(__cplusplus)
#pragma omp declare simd notinbranch
extern float expf(float);
#pragma omp declare simd notinbranch
extern float logf(float);
#pragma omp declare simd notinbranch
extern float sinf(float);
#pragma omp declare simd notinbranch
extern float cosf(float);
#pragma omp declare simd notinbranch
extern float powf(float, float);
#if __GLIBC_PREREQ(2, 35)
#pragma omp declare simd notinbranch
extern float tanhf(float);
#pragma omp declare simd notinbranch
extern float erff(float);
#endif
#endif

#endif
