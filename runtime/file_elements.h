// Elements of files as the program's tensors have them.
#ifndef FILE_ELEMENTS_H
#define FILE_ELEMENTS_H

#include "checksums.h"
#include "program.h"
#include "safetensors_set.h"
#include "tensor_table.h"

// Whether elements of a file's dtype are taken for the tensor: of its own type, and what loses
// nothing or is usual: BF16 and F16 for a float32, F64 for a float32 of an input, any whole numbers
// and truths for an input of such.
bool elements_take(const struct tensor *t, const char *dtype);

// The message that they are not, or that shapes differ. Returns false.
bool elements_misfit(const struct kept *kept, const struct tensor *t, struct failure *why);

// Bytes of an element, in the file or in memory, whichever is wider. kept: where it is from; NULL:
// no file.
size_t elements_staged(const struct kept *kept, const struct tensor *t);

// Reads the slice's own elements from .. from + count - 1 as the tensor has them. In `to` there is
// room for as many elements of elements_staged bytes. They are added to the checksum, but not
// where they are whole numbers of an input; NULL: nobody asks.
bool elements_read(const struct kept *kept, const struct member *m, const struct slice *slice,
                   size_t from, size_t count, void *to, struct checksum *sum, struct failure *why);

#endif
