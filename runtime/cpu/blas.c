// SPDX-License-Identifier: MIT
// What OpenBLAS leaves to its callers.
//
// It takes a buffer for each thread that multiplies, at its first product. Where it gets none it
// tries for ever: this file asks for as much before that.
//
// It takes a processor that is newer than itself for a Prescott, of 2004, whose products are
// several times slower. It chooses while it is loaded, so the program must start again to get
// others.
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/program.h"
#include "cpu/kernels/lapack.h"
#include "cpu/kernels/math.h"

extern char *openblas_get_config(void) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));

// OpenBLAS's name of the processor whose products this one can compute; NULL: none is better than
// the oldest.
static const char *blas_core(void)
{
#if defined __x86_64__ && defined __GNUC__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return NULL;
}

void take_newer_blas_core(char **argv)
{
  static const char variable[] = "OPENBLAS_CORETYPE"; // who sets it has chosen
  const char *core = blas_core();
  if (!core || !openblas_get_corename || getenv(variable)) return;
  if (strcmp(openblas_get_corename(), "Prescott") != 0) return;
  char path[PATH_MAX]; // by its own name, under which ps and pkill know it
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0 || setenv(variable, core, true) != 0) return;
  path[n] = 0;
  execv(path, argv);
}

void ask_for_blas_memory(void)
{
  enum { BUFFER = (128 << 20) + 4096 }; // of the largest builds
  static _Atomic bool asked;
  if (atomic_load_explicit(&asked, memory_order_relaxed)) return;
#ifdef _OPENMP
  const size_t bytes = (size_t)omp_get_max_threads() * BUFFER;
#else
  const size_t bytes = BUFFER;
#endif
  if (openblas_get_config) {
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
      fail_call(__FILE__, __LINE__, "the first product", "out of memory for OpenBLAS's buffers");
    munmap(room, bytes);
  }
  atomic_store_explicit(&asked, true, memory_order_relaxed);
}

void ask_for_lapack(bool is_linked)
{
  if (!is_linked)
    fail_call(__FILE__, __LINE__, "the first decomposition of a matrix",
              "the BLAS library has no LAPACK: link OpenBLAS");
  ask_for_blas_memory();
}
