/* concat_slices.h: values that are stored side by side in a concat buffer: the decisions of the
   pass `merge_products`. */
#ifndef TPGEN_IR_CONCAT_SLICES_H
#define TPGEN_IR_CONCAT_SLICES_H

#include <stdint.h>

/* A concat buffer is a place in the arena. Each `row` elements of a rank's part of the value are
   followed by those of the other parts, `pitch` in all; the part begins after `first` elements. */
struct concat_slice {
  int buffer; /* the concat buffer, or NONE: it is a part of none */
  int64_t row, pitch, first;
};

struct concat_slices {
  int nvalue, room;
  struct concat_slice *of; /* by value; values after these are parts of none */
};

/* ----------------------------------------------------------------------------- concat_slices.c */

/* The value's part in a concat buffer; that of a value that is none, as before the pass. */
extern const struct concat_slice no_concat_slice;
const struct concat_slice *concat_slice(int value);
void make_concat_slice(int value, struct concat_slice part);

#endif
