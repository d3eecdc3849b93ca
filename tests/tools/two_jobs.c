/* Two jobs in one folder: preloaded, this links every file that is renamed to model.safetensors
   under another name, too, and may disable locks.

   KEPT=DIR        the folder of these links: later writes to the files show there
   NO_LOCKS=NAME   no file can be locked, and NAME is the machine's name */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

int rename(const char *from, const char *to)
{
  static int n;
  int (*real)(const char *, const char *) =
      (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  const char *kept = getenv("KEPT"), *slash = strrchr(to, '/');
  char path[4096];
  if (kept && slash && strcmp(slash, "/model.safetensors") == 0) {
    snprintf(path, sizeof path, "%s/%d-%d", kept, (int)getpid(), n++);
    if (link(from, path) != 0) perror(path);
  }
  return real(from, to);
}

int flock(int fd, int how)
{
  if (!getenv("NO_LOCKS")) return (int)syscall(SYS_flock, fd, how);
  errno = ENOLCK;
  return -1;
}

int gethostname(char *to, size_t size)
{
  int (*real)(char *, size_t) = (int (*)(char *, size_t))dlsym(RTLD_NEXT, "gethostname");
  const char *name = getenv("NO_LOCKS");
  if (!name || strncmp(name, "own", 3) == 0) return real(to, size);
  snprintf(to, size, "%s", name);
  return 0;
}
