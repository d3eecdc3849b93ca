/* run_passes.c: the passes one after the other, in the order of ir/passes.h. */
#include "driver/driver.h"

static void (*const run[PASS_COUNT])(void) = {
#define PASS(NAME, name) [PASS_##NAME] = name,
#include "ir/passes.h"
#undef PASS
};

void run_passes(enum pass first, enum pass last)
{
  for (enum pass pass = first; pass <= last; pass++) {
    run[pass]();
    check(pass);
    dump(pass);
  }
}

void run_until(enum pass last)
{
  run_passes(0, last);
}
