// SPDX-License-Identifier: MIT
// A rank's standard output and standard error go through two processes of tee. They outlive the
// rank, so its last words are in the file, however it ends.
#include "base/rank_log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/open_input.h"

static const char TEE[] = "/usr/bin/tee";
static int own = -1; // the file
static pid_t tees[2];

// Never returns. The environment is empty: a process with this rank's variables would be taken for
// the rank.
static void be_tee(int from, int to, const char *path)
{
  char *const words[] = {"tee", "-a", (char *)path, NULL}, *const environment[] = {NULL};
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  if (dup2(from, STDIN_FILENO) >= 0 && dup2(to, STDOUT_FILENO) >= 0)
    execve(TEE, words, environment);
  _exit(127);
}

// Puts a tee behind a stream.
static bool lead(int fd, const char *path, pid_t *tee, struct failure *why)
{
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed(why, "--logs: %s", strerror(errno));
  fflush(NULL);
  *tee = fork();
  if (*tee == 0) be_tee(ends[0], fd, path);
  const bool leads = *tee > 0 && dup2(ends[1], fd) >= 0;
  if (!leads) failed(why, "--logs: %s", strerror(errno));
  close(ends[0]);
  close(ends[1]);
  return leads;
}

bool rank_log_open(const char *dir, int rank, struct failure *why)
{
  char path[PATH_MAX], host[256] = "", now[64];
  time_t t = time(NULL);
  struct tm utc;
  if (access(TEE, X_OK) != 0) return failed(why, "--logs wants %s, of coreutils", TEE);
  if (!folder_make(dir, why)) return false;
  if (snprintf(path, sizeof path, "%s/rank%d.log", dir, rank) >= (int)sizeof path)
    return failed(why, "--logs: the name is too long");
  own = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (own < 0) return failed(why, "%s: cannot open: %s", path, strerror(errno));
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
  rank_log_tell("rank %d on %s, process %d, %s", rank, host, (int)getpid(), now);
  return lead(STDOUT_FILENO, path, &tees[0], why) && lead(STDERR_FILENO, path, &tees[1], why);
}

bool rank_log_is_open(void)
{
  return own >= 0;
}

void rank_log_tell(const char *format, ...)
{
  char line[1024];
  va_list arguments;
  if (own < 0) return;
  va_start(arguments, format);
  int n = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (n < 0) return;
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  line[n] = '\n';
  if (write(own, line, (size_t)n + 1) < 0) errno = 0; // a full disk ends no training
}

void rank_log_close(void)
{
  if (own < 0) return;
  fflush(NULL);
  close(STDOUT_FILENO);
  close(STDERR_FILENO);
  for (int i = 0; i < 2; i++)
    while (tees[i] > 0 && waitpid(tees[i], NULL, 0) < 0 && errno == EINTR) continue;
}
