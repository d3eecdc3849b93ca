// The whole numbers of a program's inputs: what types of files they are taken from, and whether
// they are what the plan declares and what it uses as indices takes.
#ifndef INTEGER_INPUTS_H
#define INTEGER_INPUTS_H

#include "safetensors_set.h"
#include "failure.h"
#include "program.h"
#include "tensor_table.h"

// Whether the tensor is an input of whole numbers, or of truths; and whether elements of the file's
// dtype are taken for it: any whole numbers and truths are, where they fit.
bool numbers_are(const struct tensor *t);
bool numbers_take(const struct tensor *t, const char *dtype);

// Reads the slice's own elements from .. from + count - 1 as the tensor has them. In `to` there is
// room for as many elements of the wider of both types. False, and why with the element's place,
// where one does not fit the tensor's type.
bool numbers_read(const struct kept *kept, const struct member *m, const struct slice *slice,
                  size_t from, size_t count, void *to, struct failure *why);

// Looks at the slice's own elements from .. from + count - 1 of an input, which lie in `elements`:
// each must be as randint or tokens declares, and an index where it is used as one. False, and why
// with the element's place and the plan's line. kept: where they are from; NULL: they were drawn.
// Sample s of the slice is sample s - shift of the batch.
bool numbers_hold(const struct kept *kept, const struct member *m, const struct slice *slice,
                  long shift, size_t from, size_t count, const void *elements, struct failure *why);

// What ignores a number of an input, as cross_entropy does -100: the first such use, or NULL. Such
// numbers can fill up the place of samples that a batch lacks.
const struct index_use *numbers_ignoring(int row);

// How many of the slice's own elements from .. from + count - 1 that use does not ignore; 0 where
// there is none. `shift` is as above.
long numbers_counted(int row, const struct slice *slice, long shift, size_t from, size_t count,
                     const void *elements);

// Looks at what the steps up to t have noted of indices that they compute. False, and why, where
// one was none.
bool numbers_computed(int t, struct failure *why);

#endif
