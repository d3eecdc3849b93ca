/* ways.c: a candidate of --search whose gradients of several batches may be reduced each or as one
   sum (reductions.c): a process of its own evaluates the program that reduces each, and this one
   goes on with the other. The figures of the better one remain: the passes run twice, and once
   where whole sums cannot fit. */
#include "driver/driver.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
  struct evaluated *to; /* shared with the search; NULL: this is no candidate */
  struct decided decided;
  bool compares; /* this process has whole sums, and those figures are of reductions of each */
  int64_t limit; /* of the memory of a rank with whole sums */
} ways;

void begin_ways(struct evaluated *to)
{
  ways.to = to;
  ways.decided = to->decided;
  ways.compares = false;
}

struct decided *decided_of_candidate(void)
{
  return ways.to && !in_trial() ? &ways.decided : NULL;
}

bool goes_on_with_whole_sums(int64_t limit)
{
  ways.decided.gradients = REDUCED_EACH;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return false;
  }
  if (pid < 0) return false;
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  const struct evaluated *each = ways.to;
  if (each->is_there && each->least_with_whole_sums + each->reserve > limit) _exit(0);
  ways.decided.gradients = ADDED_UP_WHOLE;
  ways.compares = true;
  ways.limit = limit;
  return true;
}

void keep_better_way(const struct evaluated *e)
{
  if (ways.compares) {
    if (e->step.bytes + e->reserve > ways.limit) _exit(!ways.to->is_there);
    if (ways.to->is_there && ways.to->step.seconds <= e->step.seconds) return;
  }
  *ways.to = *e;
  ways.to->decided = ways.decided;
}
