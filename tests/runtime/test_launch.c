// A rank's identity, by the variables of every launcher; and the refusals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/launch.h"

static const char *const known[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PMIX_RANK",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
};

// Sets the variables "NAME=value NAME=value", and no other of those above.
static void set_environment(const char *text)
{
  char copy[400];
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) unsetenv(known[i]);
  snprintf(copy, sizeof copy, "%s", text);
  for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
    char *equals = strchr(word, '=');
    *equals = 0;
    setenv(word, equals + 1, 1);
  }
}

static void identities(void **state)
{
  (void)state;
  static const struct {
    const char *environment, *launcher;
    int rank, size, local_rank, local_size;
    bool mpi;
  } rows[] = {
      {"", NULL, 0, 1, -1, -1, false},
      {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "torchrun", 3, 8, 1, 2, false},
      {"RANK=3 WORLD_SIZE=8", "torchrun", 3, 8, -1, -1, false},
      {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=2",
       "Open MPI", 1, 2, 1, 2, true},
      {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=4", "MPICH or Intel MPI", 0, 4, 0,
       4, true},
      {"PMI_RANK=2 PMI_SIZE=4", "MPICH or Intel MPI", 2, 4, -1, -1, true},
      {"PMIX_RANK=5 SLURM_NTASKS=6 SLURM_LOCALID=2 SLURM_PROCID=5", "PMIx", 5, 6, 2, -1, true},
      {"SLURM_PROCID=7 SLURM_NTASKS=16 SLURM_LOCALID=3", "Slurm", 7, 16, 3, -1, false},
      // torchrun under Slurm, Open MPI under Slurm: the inner launcher is believed.
      {"RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=1", "torchrun", 1, 2, -1, -1, false},
      {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1 SLURM_PROCID=0 SLURM_NTASKS=1",
       "Open MPI", 1, 2, -1, -1, true},
      // An empty variable is not set.
      {"RANK= SLURM_PROCID=1 SLURM_NTASKS=2", "Slurm", 1, 2, -1, -1, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct identity me;
    struct failure why = {""};
    set_environment(rows[i].environment);
    if (!launch_identity(&me, &why)) fail_msg("%s: %s", rows[i].environment, why.text);
    assert_int_equal(me.rank, rows[i].rank);
    assert_int_equal(me.size, rows[i].size);
    assert_int_equal(me.local_rank, rows[i].local_rank);
    assert_int_equal(me.local_size, rows[i].local_size);
    assert_int_equal(me.mpi, rows[i].mpi);
    assert_int_equal(me.launcher == NULL, rows[i].launcher == NULL);
    if (me.launcher) assert_string_equal(me.launcher, rows[i].launcher);
  }
}

static void bad_environments(void **state)
{
  (void)state;
  static const struct {
    const char *environment, *says;
  } rows[] = {
      {"RANK=0", "WORLD_SIZE is not"},
      {"RANK=x WORLD_SIZE=2", "RANK is \"x\""},
      {"RANK=-1 WORLD_SIZE=2", "RANK is \"-1\""},
      {"RANK=+1 WORLD_SIZE=2", "RANK is \"+1\""},
      {"RANK=1x WORLD_SIZE=2", "RANK is \"1x\""},
      {"RANK=0x1 WORLD_SIZE=2", "RANK is \"0x1\""},
      {"RANK=2 WORLD_SIZE=2", "RANK is 2: it should be below 2"},
      {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is 0"},
      {"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE is \"99999999999999999999\""},
      {"RANK=0 WORLD_SIZE=100000000", "WORLD_SIZE is 100000000"},
      {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2", "LOCAL_RANK is 2"},
      {"RANK=0 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is 3"},
      {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE is 3"},
      {"PMIX_RANK=0", "SLURM_NTASKS is not"},
      {"SLURM_PROCID=1\033[2J SLURM_NTASKS=2", "SLURM_PROCID is \"1?[2J\""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct identity me;
    struct failure why = {""};
    set_environment(rows[i].environment);
    if (launch_identity(&me, &why)) fail_msg("%s was taken", rows[i].environment);
    if (!strstr(why.text, rows[i].says)) fail_msg("%s: said: %s", rows[i].environment, why.text);
  }
}

static void misfits(void **state)
{
  (void)state;
  static const struct {
    const char *environment;
    int world, id;
    const char *says; // NULL: it fits
  } rows[] = {
      {"", 1, 0, NULL},
      {"", 2, 0, "run.sh"},
      {"RANK=1 WORLD_SIZE=2", 2, 1, NULL},
      {"RANK=1 WORLD_SIZE=2", 4, 1,
       "torchrun started 2 ranks (WORLD_SIZE), but this program was "
       "generated for 4"},
      {"RANK=1 WORLD_SIZE=2", 2, 0, "the program of rank 0, but torchrun started it as rank 1"},
      {"SLURM_PROCID=0 SLURM_NTASKS=1", 2, 0, "Slurm started 1 rank (SLURM_NTASKS)"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct identity me;
    struct failure why = {""};
    set_environment(rows[i].environment);
    assert_true(launch_identity(&me, &why));
    bool fits = launch_fits(&me, rows[i].world, rows[i].id, &why);
    assert_int_equal(fits, rows[i].says == NULL);
    if (!fits && !strstr(why.text, rows[i].says)) fail_msg("said: %s", why.text);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(identities),
      cmocka_unit_test(bad_environments),
      cmocka_unit_test(misfits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
