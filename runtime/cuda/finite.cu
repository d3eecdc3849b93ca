// SPDX-License-Identifier: MIT
// Records the first value that is not finite, on a GPU: in device memory.
#include "base/finite.h"

#include <vector>
#include "base/target.h"

static std::vector<const struct made *> numbered;
static unsigned long long *noted;

int finite_number(const struct made *made)
{
  numbered.push_back(made);
  return (int)numbered.size();
}

// Allocated in the first step, which is not captured.
unsigned long long *finite_noted(void)
{
  if (noted) return noted;
  CHECK_CUDA(cudaMalloc((void **)&noted, sizeof *noted));
  CHECK_CUDA(cudaMemsetAsync(noted, 0, sizeof *noted, stream));
  return noted;
}

bool target_not_finite(struct not_finite *first)
{
  unsigned long long note = 0;
  if (noted) target_get(&note, noted, sizeof note);
  if (note == 0) return false;
  const struct made *made = numbered[(size_t)(note >> NUMBER_AT >> MODULE_BITS) - 1];
  const unsigned long long last = (1ull << PLACE_BITS) - 1;
  *first = {made->name, made->line, (int)(note >> NUMBER_AT & ((1 << MODULE_BITS) - 1)),
            (long)(note >> NAN_BIT & last), (note & NAN_BIT) != 0};
  return true;
}

void close_finite()
{
  if (noted) cudaFree(noted);
  noted = NULL;
}
