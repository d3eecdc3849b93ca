/* fuzz_archive ARCHIVE PATH FIRST COUNT [LOSS]: mutants of an archive, which plans/torch_export.lua
   reads: tpgen makes a program of each, or refuses it with one line. The mutant is left at PATH. */
#include "archive_mutants.h"
#include "json_mutants.h"
#include "driver/driver.h"

#include <stdio.h>
#include <stdlib.h>

static const char *loss = "none";

static void compile(const char *path)
{
  struct definition list[] = {{"model", path}, {"loss", loss}};
  set_target("cpu");
  options.plan = "plans/torch_export.lua";
  options.definition = list;
  options.ndefinition = 2;
  graph_open();
  for (enum pass pass = 0; pass < PASS_COUNT; pass++) run_passes(pass, pass);
}

int main(int argc, char **argv)
{
  if (argc < 5) return 2;
  if (argc > 5) loss = argv[5];
  open_archive(argv[1]);
  return run_mutants(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                     write_mutant, compile) != 0;
}
