// SPDX-License-Identifier: MIT
// One clear message for the user of the program.
#ifndef FAILURE_H
#define FAILURE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

struct failure {
  char text[1024];
};

// Writes the message and returns false, so that a function can end with `return failed(why, ...)`.
// Control characters become '?': names come from files, and a terminal would interpret them.
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
static inline bool
failed(struct failure *why, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why->text, sizeof why->text, format, arguments);
  va_end(arguments);
  for (char *c = why->text; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
  return false;
}

#endif
