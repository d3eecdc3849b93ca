// SPDX-License-Identifier: MIT
#include "base/open_input.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_regular(const char *path, const struct stat *about, struct failure *why)
{
  mode_t mode = about->st_mode;
  if (S_ISREG(mode)) return true;
  return failed(why, "%s: not a file but %s", path,
                S_ISFIFO(mode)   ? "a FIFO"
                : S_ISDIR(mode)  ? "a folder"
                : S_ISSOCK(mode) ? "a socket"
                                 : "a device");
}

// Checks before it opens: opening a device may have an effect. Checks again afterwards: the path
// may have changed.
int open_regular(const char *path, uint64_t *size, struct failure *why)
{
  struct stat about;
  if (stat(path, &about) == 0 && !is_regular(path, &about, why)) return -1;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 || fstat(fd, &about) != 0)
    failed(why, "%s: cannot open: %s", path, strerror(errno));
  else if (is_regular(path, &about, why)) {
    *size = (uint64_t)about.st_size;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

FILE *create_stream(const char *path, struct failure *why)
{
  struct stat about;
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  int error = errno;
  if (fd < 0 && error == ENXIO && stat(path, &about) == 0 && S_ISFIFO(about.st_mode)) {
    failed(why, "%s: nobody reads this FIFO: start its reader first", path);
    return NULL;
  }
  // From here on writes may block.
  FILE *file = fd >= 0 && fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "w") : NULL;
  if (file) return file;
  failed(why, "%s: cannot create: %s", path, strerror(fd < 0 ? error : errno));
  if (fd >= 0) close(fd);
  return NULL;
}

void raise_file_limit(size_t files)
{
  struct rlimit limit;
  enum { OTHERS = 200 };
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files + OTHERS) return;
  limit.rlim_cur = limit.rlim_max < files + OTHERS ? limit.rlim_max : files + OTHERS;
  setrlimit(RLIMIT_NOFILE, &limit); // if it is refused, opening reports that
}

bool folder_make(const char *directory, struct failure *why)
{
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s", directory) >= (int)sizeof path)
    return failed(why, "%s: the path is too long", directory);
  for (char *slash = path + 1; *path && (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(path, 0777); // if this fails, so does the last one
    *slash = '/';
  }
  struct stat about;
  if (mkdir(path, 0777) == 0 ||
      (errno == EEXIST && stat(path, &about) == 0 && S_ISDIR(about.st_mode)))
    return true;
  return failed(why, "%s: cannot make the directory: %s", path,
                strerror(errno == EEXIST ? ENOTDIR : errno));
}
