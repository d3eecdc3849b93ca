// SPDX-License-Identifier: MIT
// Names of tensors and files.
#ifndef NAMES_H
#define NAMES_H

#include <stdbool.h>
#include <string.h>

static inline bool ends_with(const char *name, const char *end)
{
  const size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

#endif
