/* build_files.h: files and commands of tests that compile what tpgen writes. */
#ifndef BUILD_FILES_H
#define BUILD_FILES_H

#include "unit.h"

static void write_text(const char *directory, const char *name, const char *contents)
{
  FILE *out = fopen(text("%s/%s", directory, name), "w");
  must(out && fputs(contents, out) >= 0 && fclose(out) == 0, "cannot write %s/%s", directory, name);
}

static void command(const char *line)
{
  must(system(line) == 0, "failed: %s", line);
}

#endif
