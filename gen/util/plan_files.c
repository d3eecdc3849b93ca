/* plan_files.c: the files that the plan requires, and the lines of the plan that are theirs. */
#include "util/util.h"

#include <stdlib.h>
#include <string.h>

static const char *plan_file[MOST_PLAN_FILES];
static int nplan_file;

void forget_plan_files(void)
{
  nplan_file = 0;
}

int add_plan_file(const char *name)
{
  if (nplan_file < MOST_PLAN_FILES) plan_file[nplan_file++] = name;
  return nplan_file;
}

int plan_files(void)
{
  return nplan_file;
}

const char *required_file(int line)
{
  int file = line > 0 ? line / LINES_OF_FILE : 0;
  return file > 0 && file <= nplan_file ? plan_file[file - 1] : NULL;
}

int folder_length(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? (int)(slash + 1 - path) : 0;
}

void tell_files(char *to, size_t room, const char *message)
{
  static const char word[] = "line ";
  size_t n = 0;
  for (const char *c = message; *c && n + 1 < room;) {
    char *end = NULL;
    long line = strncmp(c, word, strlen(word)) ? 0 : strtol(c + strlen(word), &end, 10);
    const char *name = line > 0 && line <= INT32_MAX ? required_file((int)line) : NULL;
    if (name) {
      n += (size_t)snprintf(to + n, room - n, "%s%ld of %s", word, line % LINES_OF_FILE, name);
      c = end;
    } else {
      to[n++] = *c++;
    }
  }
  to[n < room ? n : room - 1] = 0;
}
