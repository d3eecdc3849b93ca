/* run_passes.c: runs the passes one after the other, in the order of ir/passes.h. */
#include "driver/driver.h"

#include <string.h>

static void (*const run[PASS_COUNT])(void) = {
#define PASS(NAME, name) [PASS_##NAME] = name,
#include "ir/passes.h"
#undef PASS
};

void run_passes(enum pass first, enum pass last)
{
  for (enum pass pass = first; pass <= last; pass++) {
    if (pass == PASS_OUTLINE && options.explain) {
      leave_out_dead(); /* outline does this first, too */
      gather_explained();
    }
    run[pass]();
    check(pass);
    dump(pass);
  }
}

void run_until(enum pass last)
{
  run_passes(0, last);
}

static enum pass pass_of(const char *name)
{
  enum pass pass = 0;
  while (strcmp(pass_name[pass], name)) pass++;
  return pass;
}

/* The text of the file, which is no longer than any dump. */
static const char *dump_file(const char *path)
{
  const size_t most = (size_t)1 << 28;
  size_t length;
  const char *why, *dump = read_file(path, most, &length, &why);
  if (!dump) usage_error(3, "cannot read %s: %s", path, why);
  if (strlen(dump) != length) usage_error(3, "%s: it has a byte 0, and is no text", path);
  return dump;
}

/* The passes behind that one. */
static void run_rest(enum pass last, void (*finish)(void))
{
  const struct graph *whole = graph;
  if (!graph->stages || last >= PASS_LAST) {
    run_passes(last + 1, PASS_LAST);
    finish();
    return;
  }
  if (last < PASS_REDISTRIBUTE) run_passes(last + 1, PASS_REDISTRIBUTE);
  for (int place = 0; place < graph->mesh.size[graph->stages->mesh_dim]; place++) {
    graph = program_of_stages(whole, place);
    run_passes(PASS_REDISTRIBUTE + 1, PASS_LAST);
    finish();
  }
}

void run_all(void (*finish)(void))
{
  if (!options.from) {
    run_passes(0, 0);
    run_rest(0, finish);
    return;
  }
  enum pass pass = pass_of(options.from);
  read_dump(options.plan, dump_file(options.plan), pass);
  check_ranks();
  check(pass);
  if (pass >= PASS_KERNEL_FORMS) kernel_forms(); /* a dump has them as comments */
  bugs_are_of(options.plan, NULL, 0);            /* operations are numbered anew */
  dump(pass);
  run_rest(pass, finish);
}
