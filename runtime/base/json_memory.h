// SPDX-License-Identifier: MIT
// Memory of jansson, which does not always report that it ran out: it may drop a name or truncate a
// text.
#ifndef JSON_MEMORY_H
#define JSON_MEMORY_H

#include <stdbool.h>

// Once, before jansson is used: replaces its allocator by one that records failures.
void json_memory_start(void);

// Whether an allocation of jansson has failed since the last call. Call it after building, reading
// or writing a value: if true, do not use the result.
bool json_memory_ended(void);

#endif
