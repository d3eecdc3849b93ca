// SPDX-License-Identifier: MIT
// OpenBLAS takes a buffer for each thread that multiplies, at its first product. Where it gets none
// it tries for ever: this file asks for as much before that.
#include <stdatomic.h>
#include <sys/mman.h>
#include "base/program.h"
#include "cpu/kernels/lapack.h"
#include "cpu/kernels/math.h"

extern char *openblas_get_config(void) __attribute__((weak));

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
