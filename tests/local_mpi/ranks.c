/* All ranks of a generated program in one: it forks them, and ends when all have ended, with the
   status of the first that has failed. It takes the arguments of a rank's program. The table of
   the ranks (each rank's own `this_rank`) comes from what the test links.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "base/program.h"
#include "ranks.h"

/* The program sees a constant. It is made here, for each rank, before its own main begins. */
struct rank this_rank;

extern const struct rank *const all_ranks[];
extern const int number_of_ranks;
int main_of_rank(int argc, char **argv);
void target_prepare(char **argv) __attribute__((weak)); /* not in a library */

static void set_number(const char *variable, int n)
{
  char text[16];
  snprintf(text, sizeof text, "%d", n);
  setenv(variable, text, 1);
}

static _Noreturn void run_rank(int i, int argc, char **argv)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ranks_become(i);
  set_number("OMPI_COMM_WORLD_RANK", i);
  set_number("OMPI_COMM_WORLD_LOCAL_RANK", i);
  set_number("OMPI_COMM_WORLD_SIZE", number_of_ranks);
  set_number("OMPI_COMM_WORLD_LOCAL_SIZE", number_of_ranks);
  this_rank = *all_ranks[i];
  exit(main_of_rank(argc, argv));
}

int main(int argc, char **argv)
{
  pid_t *pids = calloc((size_t)number_of_ranks, sizeof *pids);
  int result = 0, status;
  if (!pids) return EXIT_FAILURE;
  if (target_prepare) target_prepare(argv); /* a rank that starts again would start all */
  ranks_share(number_of_ranks);
  for (int i = 0; i < number_of_ranks; i++) {
    pids[i] = fork();
    if (pids[i] < 0) return perror("fork"), EXIT_FAILURE;
    if (pids[i] == 0) {
      free(pids);
      run_rank(i, argc, argv);
    }
    if (i == 0) set_number("TPGEN_RANK0", pids[0]);
  }
  for (int left = number_of_ranks; left > 0; left--) {
    const pid_t ended = wait(&status);
    const int how = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFSIGNALED(status)) fprintf(stderr, "a rank was killed by signal %d\n", WTERMSIG(status));
    for (int i = 0; i < number_of_ranks; i++)
      if (pids[i] == ended) ranks_lost(i, how);
    if (!result) result = how;
  }
  free(pids);
  return result;
}
