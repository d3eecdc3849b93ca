// SPDX-License-Identifier: MIT
#include "metrics/metrics_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/open_input.h"

// Where new lines begin; -1, and why, if a line is of no such file.
static long end_of_kept(FILE *file, const char *path, int step, struct failure *why)
{
  char *line = NULL;
  size_t room = 0;
  long end = 0, number = 1;
  ssize_t length;
  while (end >= 0 && (length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n') {
    int of;
    if (sscanf(line, "{\"step\":%d", &of) != 1) {
      failed(why, "%s:%ld: this is no line of metrics: say another file, or remove it", path,
             number);
      end = -1;
    } else if (of > step) {
      break;
    } else {
      end += length;
      number++;
    }
  }
  free(line);
  return end;
}

FILE *metrics_file_open(const char *path, int step, struct failure *why)
{
  struct stat about;
  if (step == 0 || stat(path, &about) != 0 || !S_ISREG(about.st_mode))
    return create_stream(path, why);
  FILE *file = fopen(path, "r+e");
  if (!file) {
    failed(why, "%s: cannot open: %s", path, strerror(errno));
    return NULL;
  }
  const long end = end_of_kept(file, path, step, why);
  if (end >= 0 && fseek(file, end, SEEK_SET) == 0 && ftruncate(fileno(file), end) == 0) return file;
  if (end >= 0) failed(why, "%s: cannot cut it: %s", path, strerror(errno));
  fclose(file);
  return NULL;
}
