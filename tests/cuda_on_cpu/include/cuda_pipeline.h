// A stand-in for CUDA that exists for tests only: copies from device memory to shared memory beside
// the thread's work (cp.async), in place of <cuda_pipeline.h>. What was asked for arrives when the
// thread waits for it, and reads as NaN until then.
#ifndef CUDA_ON_CPU_CUDA_PIPELINE_H
#define CUDA_ON_CPU_CUDA_PIPELINE_H

#include "cuda_runtime.h"

// Of 4, 8 or 16 bytes, to and from addresses aligned so; the last `zeros` of them are 0.
void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zeros = 0);
void __pipeline_commit(void);
void __pipeline_wait_prior(size_t most); // until at most so many of the commits are still open

#endif
