/* A library to be loaded before others (LD_PRELOAD) by the ranks of a job, for fault_pairs.sh. From
   the environment:

     FAULTY_CALL   openat, write, pwrite, fallocate, fsync, rename, unlink or close: this call fails
     FAULTY_NTH    the n-th of those of files below FAULTY_UNDER, counted from 1
     FAULTY_ERRNO  what errno says then
     FAULTY_RANK   of this rank alone
     FAULTY_CLOCK  so many seconds the wall clock is ahead at first; it is set right a second after
                   the start

   A close that fails closes the file all the same. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *call, *under;
static long nth, error, ahead, seen;
static struct timespec began;

static long number(const char *name)
{
  const char *value = getenv(name);
  return value ? strtol(value, NULL, 10) : 0;
}

__attribute__((constructor)) static void start(void)
{
  const char *rank = getenv("RANK");
  if (!rank) rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) return; /* a shell, or a launcher */
  ahead = number("FAULTY_CLOCK");
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &began);
  if (strtol(rank, NULL, 10) != number("FAULTY_RANK")) return;
  nth = number("FAULTY_NTH");
  error = number("FAULTY_ERRNO");
  under = getenv("FAULTY_UNDER");
  call = getenv("FAULTY_CALL");
}

static bool fails(const char *name, const char *path)
{
  if (!call || !under || strcmp(name, call) || strncmp(path, under, strlen(under))) return false;
  if (__atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) != nth) return false;
  errno = (int)error;
  return true;
}

static bool fails_at(const char *name, int directory, const char *path)
{
  char whole[2 * PATH_MAX], link[64];
  if (!call) return false;
  if (path && *path == '/') return fails(name, path);
  if (directory == AT_FDCWD)
    strcpy(link, "/proc/self/cwd");
  else
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  ssize_t n = readlink(link, whole, PATH_MAX);
  if (n < 0) return false;
  snprintf(whole + n, sizeof whole - (size_t)n, "%s%s", path ? "/" : "", path ? path : "");
  return fails(name, whole);
}

#define NEXT(name) dlsym(RTLD_NEXT, name)

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
  if (fails_at("openat", directory, path)) return -1;
  return (int)syscall(SYS_openat, directory, path, flags, mode);
}

#define OPEN(name)                                                                                 \
  int name(const char *path, int flags, ...)                                                       \
  {                                                                                                \
    va_list arguments;                                                                             \
    va_start(arguments, flags);                                                                    \
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;                           \
    va_end(arguments);                                                                             \
    return open_at(AT_FDCWD, path, flags, mode);                                                   \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
  int name(int directory, const char *path, int flags, ...)                                        \
  {                                                                                                \
    va_list arguments;                                                                             \
    va_start(arguments, flags);                                                                    \
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;                           \
    va_end(arguments);                                                                             \
    return open_at(directory, path, flags, mode);                                                  \
  }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *bytes, size_t count)
{
  if (fails_at("write", fd, NULL)) return -1;
  return syscall(SYS_write, fd, bytes, count);
}

#define PWRITE(name)                                                                               \
  ssize_t name(int fd, const void *bytes, size_t count, off_t at)                                  \
  {                                                                                                \
    if (fails_at("pwrite", fd, NULL)) return -1;                                                   \
    return syscall(SYS_pwrite64, fd, bytes, count, at);                                            \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

#define FALLOCATE(name)                                                                            \
  int name(int fd, int mode, off_t at, off_t size)                                                 \
  {                                                                                                \
    if (fails_at("fallocate", fd, NULL)) return -1;                                                \
    return (int)syscall(SYS_fallocate, fd, mode, at, size);                                        \
  }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)

int fsync(int fd)
{
  if (fails_at("fsync", fd, NULL)) return -1;
  return (int)syscall(SYS_fsync, fd);
}

int close(int fd)
{
  const bool fault = fails_at("close", fd, NULL);
  const int fault_errno = errno;
  const int result = (int)syscall(SYS_close, fd);
  if (fault) errno = fault_errno;
  return fault ? -1 : result;
}

int rename(const char *from, const char *to)
{
  if (fails_at("rename", AT_FDCWD, to)) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
  if (fails_at("rename", to_directory, to)) return -1;
  return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
}

int unlink(const char *path)
{
  if (fails_at("unlink", AT_FDCWD, path)) return -1;
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int directory, const char *path, int flags)
{
  if (fails_at("unlink", directory, path)) return -1;
  return (int)syscall(SYS_unlinkat, directory, path, flags);
}

/* fopen of glibc opens by a call of its own. */
#define FOPEN(name)                                                                                \
  FILE *name(const char *path, const char *mode)                                                   \
  {                                                                                                \
    FILE *(*next)(const char *, const char *);                                                     \
    void *at = NEXT(#name);                                                                        \
    memcpy(&next, &at, sizeof next);                                                               \
    return fails_at("openat", AT_FDCWD, path) ? NULL : next(path, mode);                           \
  }
FOPEN(fopen)
FOPEN(fopen64)

int clock_gettime(clockid_t clock, struct timespec *to)
{
  const long result = syscall(SYS_clock_gettime, clock, to);
  if (ahead && clock == CLOCK_REALTIME) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    if (now.tv_sec - began.tv_sec < 1) to->tv_sec += ahead;
  }
  return (int)result;
}

time_t time(time_t *to)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
