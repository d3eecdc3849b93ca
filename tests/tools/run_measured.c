/* run_measured SECONDS REPORT COMMAND...: runs a command in its own process group and writes
   `STATUS MILLISECONDS KIB WORKED` to the file REPORT: its exit status (128 + n if signal n ended
   it, 124 if the time ran out and the whole group was killed), the elapsed time, the memory of the
   largest process in it, and the processor time of it and its children in milliseconds. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t child;
static volatile sig_atomic_t out_of_time;

static void on_alarm(int signal_number)
{
  (void)signal_number;
  out_of_time = 1;
  kill(-child, SIGKILL);
}

static long milliseconds(struct timeval t)
{
  return t.tv_sec * 1000L + t.tv_usec / 1000;
}

int main(int argc, char **argv)
{
  if (argc < 4) return 2;
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  child = fork();
  if (child < 0) return 2;
  if (child == 0) {
    setpgid(0, 0);
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    _exit(127);
  }
  setpgid(child, child);
  signal(SIGALRM, on_alarm);
  alarm((unsigned)atoi(argv[1]));
  int status = 0;
  struct rusage used = {0};
  while (wait4(child, &status, 0, &used) < 0 && errno == EINTR) continue;
  alarm(0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  kill(-child, SIGKILL); /* processes that it may have left */
  int code = out_of_time ? 124 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  FILE *report = fopen(argv[2], "w");
  if (!report) return 2;
  fprintf(report, "%d %ld %ld %ld\n", code,
          (end.tv_sec - begin.tv_sec) * 1000L + (end.tv_nsec - begin.tv_nsec) / 1000000L,
          used.ru_maxrss, milliseconds(used.ru_utime) + milliseconds(used.ru_stime));
  return fclose(report) ? 2 : 0;
}
