// SPDX-License-Identifier: MIT
// Ranges that a profiler shows above the kernels (Nsight Systems, by NVTX): the functions of a step
// and, with the plan's line, its collectives. Without a profiler a range costs some nanoseconds; a
// step that runs as a graph has none.
#ifndef CUDA_RANGES_H
#define CUDA_RANGES_H

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#define nvtxRangePushA(name) ((void)(name))
#define nvtxRangePop()       ((void)0)
#endif

#ifdef __cplusplus
// From its declaration to the end of the block.
struct range {
  explicit range(const char *name)
  {
    nvtxRangePushA(name);
  }
  ~range()
  {
    nvtxRangePop();
  }
  range(const range &) = delete;
  range &operator=(const range &) = delete;
};
#endif

#endif
