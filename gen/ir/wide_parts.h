/* wide_parts.h: values that are stored side by side in a wide value: the decisions of the pass
   `merge_products`. */
#ifndef TPGEN_IR_WIDE_PARTS_H
#define TPGEN_IR_WIDE_PARTS_H

#include <stdint.h>

/* A wide value is a place in the arena. Each `row` elements of a rank's part of the value are
   followed by those of the other parts, `pitch` in all; the part begins after `first` elements. */
struct wide_part {
  int wide; /* the wide value, or NONE: it is a part of none */
  int64_t row, pitch, first;
};

struct wide_parts {
  int nvalue, room;
  struct wide_part *of; /* by value; values after these are parts of none */
};

/* -------------------------------------------------------------------------------- wide_parts.c */

/* The value's part of a wide one; that of a value that is none, as before the pass. */
extern const struct wide_part no_wide_part;
const struct wide_part *wide_part(int value);
void make_wide_part(int value, struct wide_part part);

#endif
