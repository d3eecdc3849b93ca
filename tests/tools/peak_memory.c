/* peak_memory FILE COMMAND...: runs the command and writes its peak memory in KiB to FILE. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  int status;
  struct rusage used;
  if (argc < 3) return 2;
  pid_t child = fork();
  if (child == 0) {
    execvp(argv[2], argv + 2);
    _exit(127);
  }
  if (child < 0 || wait4(child, &status, 0, &used) < 0) return 1;
  FILE *f = fopen(argv[1], "w");
  if (!f || fprintf(f, "%ld\n", used.ru_maxrss) < 0 || fclose(f)) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
