// SPDX-License-Identifier: MIT
// Kinds of characters: tables, each in the order of the characters.
#ifndef TEXT_UNICODE_RANGES_H
#define TEXT_UNICODE_RANGES_H

#include <stdint.h>

struct code_range {
  uint32_t first, last;
};
// From first to last, each with the character so far behind it.
struct code_step {
  uint32_t first, last;
  int32_t by;
};

extern const struct code_range control_ranges[], nonspacing_ranges[], combining_ranges[],
    punctuation_ranges[], numeric_ranges[], word_ranges[], newer_ranges[];
extern const int control_count, nonspacing_count, combining_count, punctuation_count, numeric_count,
    word_count, newer_count;
extern const struct code_step lower_steps[];
extern const int lower_count;

// From first to last, each is searched as another character.
struct stand_in {
  uint32_t first, last, other;
};
extern const struct stand_in stand_ins[];
extern const int stand_in_count;

#endif
