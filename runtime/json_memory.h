// The memory of jansson, which does not always tell when it had none: a name is left out, a text
// is cut.
#ifndef JSON_MEMORY_H
#define JSON_MEMORY_H

#include <stdbool.h>

// Once, before jansson is used: what it takes is looked at from here on.
void json_memory_start(void);

// Whether jansson has been refused memory since it was asked last. Ask behind what was built, read
// or written with it: if so, the result is not to be used.
bool json_memory_ended(void);

#endif
