/* passes.c: what the passes are called. */
#include "ir/ir.h"

const char *const pass_name[PASS_COUNT] = {
#define PASS(NAME, name) #name,
#include "ir/passes.h"
#undef PASS
};
