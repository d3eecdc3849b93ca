// A directory for the files of a test, and one file's path in it; with what cmocka calls before the
// tests and after them.
#ifndef TEMPORARY_H
#define TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>

static char directory[] = "/tmp/tpgen_test.XXXXXX";
static char path[128]; // DIRECTORY/file, until a test has another one

static int make_directory(void **state)
{
  (void)state;
  if (!mkdtemp(directory)) return -1;
  snprintf(path, sizeof path, "%s/file", directory);
  return 0;
}

// With all that is in it.
static int remove_directory(void **state)
{
  char command[64];
  (void)state;
  snprintf(command, sizeof command, "rm -r '%s'", directory);
  return system(command);
}

#endif
