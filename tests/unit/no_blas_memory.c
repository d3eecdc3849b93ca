/* For kernels that a test links without the runtime: no memory is asked for ahead of OpenBLAS. */
void ask_for_blas_memory(void);
void ask_for_blas_memory(void)
{
}
