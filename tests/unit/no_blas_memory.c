/* For kernels that a test links without the runtime: no memory is asked for ahead of OpenBLAS. */
#include <stdbool.h>

void ask_for_blas_memory(void);
void ask_for_blas_memory(void)
{
}

void ask_for_lapack(bool is_linked);
void ask_for_lapack(bool is_linked)
{
  (void)is_linked;
}
