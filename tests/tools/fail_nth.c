/* A library to be loaded before others (LD_PRELOAD): it lets the n-th of a process's calls fail.
   From the environment:
     FAIL_CALL   the call: renameat, fsync, ...; memory: malloc, calloc, realloc, aligned_alloc,
   mmap FAIL_NTH    which one, counted from 1, in each process that the first one forks as well
     FAIL_HOW    what errno says then; 0: the process is killed in its place
     FAIL_ON     1: all that follow fail, too
     FAIL_SEEN   an open file, which is given a byte other than 0 where a call has failed */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *failing;
static long nth, how, count;
static bool and_on;
static char *seen;

static long number(const char *name)
{
  const char *s = getenv(name);
  return s ? strtol(s, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void)
{
  nth = number("FAIL_NTH");
  how = number("FAIL_HOW");
  and_on = number("FAIL_ON");
  long page =
      syscall(SYS_mmap, NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, number("FAIL_SEEN"), 0);
  seen = page == -1 ? NULL : (char *)page;
  failing = getenv("FAIL_CALL");
}

static bool fails(const char *call)
{
  if (!failing || strcmp(failing, call)) return false;
  count++;
  if (and_on ? count < nth : count != nth) return false;
  if (seen) *seen = 1;
  if (!how) kill(getpid(), SIGKILL);
  errno = (int)how;
  return true;
}

#define CALL(result, failure, call, parameters, arguments)                                         \
  result call parameters                                                                           \
  {                                                                                                \
    result(*next) parameters;                                                                      \
    void *at_next = dlsym(RTLD_NEXT, #call);                                                       \
    memcpy(&next, &at_next, sizeof next);                                                          \
    return fails(#call) ? failure : next arguments;                                                \
  }

CALL(ssize_t, -1, read, (int fd, void *to, size_t n), (fd, to, n))
CALL(ssize_t, -1, write, (int fd, const void *from, size_t n), (fd, from, n))
CALL(int, -1, fsync, (int fd), (fd))
CALL(int, -1, flock, (int fd, int operation), (fd, operation))
CALL(int, -1, fstat, (int fd, struct stat *about), (fd, about))
CALL(int, -1, stat, (const char *path, struct stat *about), (path, about))
CALL(int, -1, fstatat, (int at, const char *path, struct stat *about, int flags),
     (at, path, about, flags))
CALL(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
CALL(int, -1, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
CALL(int, -1, rmdir, (const char *path), (path))
CALL(int, -1, unlinkat, (int at, const char *path, int flags), (at, path, flags))
CALL(int, -1, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b))
CALL(int, -1, rename, (const char *from, const char *to), (from, to))
CALL(int, -1, faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags))
CALL(int, -1, utimensat, (int at, const char *path, const struct timespec t[2], int flags),
     (at, path, t, flags))
CALL(DIR *, NULL, fdopendir, (int fd), (fd))
CALL(struct dirent *, NULL, readdir, (DIR * d), (d))

int close(int fd)
{
  bool failed = fails("close");
  int error = errno, status = (int)syscall(SYS_close, fd);
  if (!failed) return status;
  errno = error;
  return -1;
}

static mode_t mode_of(int flags, va_list rest)
{
  return flags & O_CREAT ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return fails("open") ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return fails("openat") ? -1 : (int)syscall(SYS_openat, at, path, flags, mode);
}

/* ---------------------------------------------------------------------------------------- memory
 */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
  return fails("memory") ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
  return fails("memory") ? NULL : __libc_calloc(n, size);
}

void *realloc(void *block, size_t size)
{
  return fails("memory") ? NULL : __libc_realloc(block, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
  return fails("memory") ? NULL : __libc_memalign(alignment, size);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
  if (fails("memory")) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
