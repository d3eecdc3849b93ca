// A stand-in for CUDA that exists for tests only: the instructions of PTX that
// runtime/cuda/kernels/mma.h wraps, with the same names and the same registers in each lane.
// Included by cuda_runtime.h.
#ifndef CUDA_ON_CPU_MMA_H
#define CUDA_ON_CPU_MMA_H

// The last two arguments of these are never written: they say where the call stands.
void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
              const char *file = __builtin_FILE(), int line = __builtin_LINE());
void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
              const char *file = __builtin_FILE(), int line = __builtin_LINE());
void load_matrices(unsigned (&d)[4], const void *row, const char *file = __builtin_FILE(),
                   int line = __builtin_LINE());
void load_matrices_transposed(unsigned (&d)[4], const void *row,
                              const char *file = __builtin_FILE(), int line = __builtin_LINE());

void copy_16(void *shared, const void *global, bool filled);
void copy_4(void *shared, const void *global, bool filled);
void end_copies();
void wait_for_copies(int later);
template <int LATER> void wait_for_copies()
{
  wait_for_copies(LATER);
}

unsigned bf16_pair(float low, float high);
unsigned to_tf32(float x);
float quick_exp2(float x);

#endif
