/* files.c: reads files for a plan, and checks whether they are below it. */
#include "lua/lua.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* "lib.model" and "lib/model" are lib/model.lua: names of letters, digits, _ and -. NULL: it is no
   such name. */
const char *path_of_name(const char *name, size_t length)
{
  if (!length || length > INT16_MAX) return NULL;
  char *path = text("%.*s.lua", (int)length, name);
  bool wrong = false;
  for (size_t i = 0; i < length && !wrong; i++) {
    bool parts = name[i] == '.' || name[i] == '/';
    bool before = i > 0 && name[i - 1] != '.' && name[i - 1] != '/', after = i + 1 < length;
    bool plain = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
    wrong = parts ? !before || !after : !plain;
    if (parts) path[i] = '/';
  }
  return wrong ? NULL : path;
}

char *read_file(const char *path, size_t most, size_t *length, const char **why)
{
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat about;
  char *at = NULL;
  *length = 0;
  *why = NULL;
  if (file < 0 || fstat(file, &about))
    *why = strerror(errno);
  else if (!S_ISREG(about.st_mode))
    *why = "it is not a file";
  else if ((unsigned long long)about.st_size > most)
    *why = text("it has %lld bytes; at most %zu are read", (long long)about.st_size, most);
  size_t size = *why ? 0 : (size_t)about.st_size;
  if (!*why) at = alloc(size + 1);
  ssize_t n = at ? read_up_to(file, at, size) : 0;
  if (n < 0) {
    *why = strerror(errno);
    at = NULL;
  } else {
    *length = (size_t)n;
  }
  if (file >= 0) close(file);
  return at;
}

const char *map_file(const char *path, size_t *length, const char **why)
{
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat about;
  void *at = MAP_FAILED;
  *why = NULL;
  if (file < 0 || fstat(file, &about))
    *why = strerror(errno);
  else if (!S_ISREG(about.st_mode))
    *why = "it is not a file";
  else if (about.st_size == 0)
    *why = "it is empty";
  else if ((at = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED)
    *why = strerror(errno);
  if (file >= 0) close(file);
  if (*why) return NULL;
  *length = (size_t)about.st_size;
  return at;
}

bool is_below_plan(const char *directory, const char *path)
{
  char *top = realpath(*directory ? directory : ".", NULL), *file = realpath(path, NULL);
  size_t n = top ? strlen(top) : 0;
  bool below = top && file && !strncmp(top, file, n) && (n == 1 || file[n] == '/');
  free(top);
  free(file);
  return below;
}
