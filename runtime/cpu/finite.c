// SPDX-License-Identifier: MIT
// Records the first value that is not finite, on the CPU.
#include "base/finite.h"

#include <math.h>
#include <stdbool.h>
#include "base/program.h"
#include "base/target.h"

static OF_MODEL struct {
  const struct made *made; // NULL: none
  int module;
  long at;
  bool is_nan;
} note;

static void look_at(float x, long i, int module, const struct made *made)
{
  if (x == x && x < INFINITY) return;
  note.made = made;
  note.module = module;
  note.at = i;
  note.is_nan = x != x;
}

void check_floats(const float *x, long n, int module, const struct made *made)
{
  for (long i = 0; i < n && !note.made; i++) look_at(x[i], i, module, made);
}

void check_halves(const bf16 *x, long n, int module, const struct made *made)
{
  for (long i = 0; i < n && !note.made; i++) look_at(bf16_to_float(x[i]), i, module, made);
}

bool target_not_finite(struct not_finite *first)
{
  if (!note.made) return false;
  *first = (struct not_finite){note.made->name, note.made->line, note.module, note.at, note.is_nan};
  return true;
}
