// A stand-in for CUDA that exists for tests only: ranges that a profiler would show, in place of
// <nvtx3/nvToolsExt.h>. Nothing is shown; ranges must be closed as often as they are opened.
#ifndef CUDA_ON_CPU_NVTX_H
#define CUDA_ON_CPU_NVTX_H

extern "C" {
int nvtxRangePushA(const char *name); // how many were open, or -1
int nvtxRangePop(void);               // how many are open now
void nvtxMarkA(const char *name);
}
#define nvtxRangePush nvtxRangePushA
#define nvtxMark      nvtxMarkA

#endif
