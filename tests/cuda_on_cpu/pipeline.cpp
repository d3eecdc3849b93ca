// A stand-in for CUDA, for tests only: asynchronous copies to shared memory.
#include "cuda_pipeline.h"
#include "stand_in.h"

#include <vector>

using namespace cuda_on_cpu;

namespace
{
struct part {
  void *to;
  unsigned char bytes[16];
  size_t count;
};

// A thread's copies that it has not yet waited for, commit by commit; the last one is open.
struct pipeline {
  std::vector<std::vector<part>> commits;
};

uint64_t of_block;
std::vector<pipeline> pipelines;

pipeline &mine(const char *call)
{
  char where[1];
  if (!in_kernel(where, sizeof where)) fail(call, "called outside a kernel");
  if (of_block != block_number()) {
    pipelines.clear();
    of_block = block_number();
  }
  if (pipelines.size() <= current_thread()) pipelines.resize(current_thread() + 1);
  pipeline &p = pipelines[current_thread()];
  if (p.commits.empty()) p.commits.emplace_back();
  return p;
}
} // namespace

void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zeros)
{
  const char *call = "__pipeline_memcpy_async";
  pipeline &p = mine(call);
  if (bytes != 4 && bytes != 8 && bytes != 16) fail(call, "%zu bytes; 4, 8 or 16 go", bytes);
  if (zeros > bytes) fail(call, "%zu zeros in %zu bytes", zeros, bytes);
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes)
    fail(call, "an address is not aligned to %zu bytes", bytes);
  if (touches_device(to, bytes)) fail(call, "the destination is not shared memory");
  need_device(call, "the source", from, bytes - zeros);
  part copied = {to, {}, bytes};
  memcpy(copied.bytes, from, bytes - zeros);
  memset(to, 0xff, bytes);
  p.commits.back().push_back(copied);
}

void __pipeline_commit(void)
{
  mine("__pipeline_commit").commits.emplace_back();
}

void __pipeline_wait_prior(size_t most)
{
  pipeline &p = mine("__pipeline_wait_prior");
  while (p.commits.size() > most + 1) {
    for (const part &c : p.commits.front()) memcpy(c.to, c.bytes, c.count);
    p.commits.erase(p.commits.begin());
  }
}
