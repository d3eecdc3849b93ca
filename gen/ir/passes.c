/* passes.c: the names of the passes. */
#include "ir/ir.h"

const char *const pass_name[PASS_COUNT] = {
#define PASS(NAME, name) #name,
#include "ir/passes.h"
#undef PASS
};
