/* A rank that torchrun has started joins the others before its main begins. RANKS_FOLDER is where
   they meet: each start of all ranks by a file of its own. */
#include <stdio.h>
#include <stdlib.h>

#include "ranks.h"

static const char *value_of(const char *variable)
{
  const char *value = getenv(variable);
  if (value) return value;
  fprintf(stderr, "local MPI: %s is not set\n", variable);
  exit(EXIT_FAILURE);
}

__attribute__((constructor)) static void join_others(void)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/ranks.%s.%s", value_of("RANKS_FOLDER"), value_of("MASTER_PORT"),
           value_of("TORCHELASTIC_RESTART_COUNT"));
  ranks_join(path, atoi(value_of("RANK")), atoi(value_of("WORLD_SIZE")));
}
