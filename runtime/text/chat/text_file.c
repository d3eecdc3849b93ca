// SPDX-License-Identifier: MIT
#include "text/chat/text_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/open_input.h"

enum { MOST_BYTES = 1 << 30 };

char *whole_file(const char *path, size_t *length, struct failure *why)
{
  uint64_t size;
  const int fd = open_regular(path, &size, why);
  if (fd < 0) return NULL;
  char *text = size <= MOST_BYTES ? malloc((size_t)size + 1) : NULL;
  size_t done = 0;
  for (ssize_t n = 1; text && n > 0 && done < size; done += (size_t)(n > 0 ? n : 0))
    n = read(fd, text + done, (size_t)size - done);
  close(fd);
  if (text && done == size) {
    text[done] = 0;
    *length = done;
    return text;
  }
  failed(why, text ? "%s: it cannot be read" : "%s: it is too large", path);
  free(text);
  return NULL;
}

bool each_line(const char *path,
               bool (*take)(void *to, const char *line, size_t length, const char *where,
                            struct failure *why),
               void *to, struct failure *why)
{
  size_t length, number = 0;
  char *text = whole_file(path, &length, why), where[300];
  bool ok = text != NULL;
  for (const char *line = text, *end = ok ? text + length : NULL; ok && line < end;) {
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    size_t n = (size_t)(stop - line);
    snprintf(where, sizeof where, "%.200s:%zu", path, ++number);
    if (n > 0 && line[n - 1] == '\r') n--;
    ok = n == 0 || take(to, line, n, where, why);
    line = stop + 1;
  }
  free(text);
  return ok;
}
