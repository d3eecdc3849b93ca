/* Ranks that talk as run.sh's do by --transport shared: the runtime has all but their start. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int ranks;

static void set_number(const char *variable, int n)
{
  char text[16];
  snprintf(text, sizeof text, "%d", n);
  setenv(variable, text, 1);
}

void ranks_share(int n)
{
  ranks = n;
  set_number("TPGEN_TOKEN", (int)getpid());
}

void ranks_become(int rank)
{
  set_number("RANK", rank);
  set_number("WORLD_SIZE", ranks);
}

/* With this process the system ends those that are left. */
void ranks_lost(int rank, int status)
{
  (void)rank;
  if (status) exit(status);
}
