// SPDX-License-Identifier: MIT
// Ranks of several machines: those of one machine share memory; their functions have MPI's names
// and take precedence over MPI's own functions. MPI starts and ends the ranks, and makes the
// groups.
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>
#include "cpu/shared_memory/names.h"

// ---- groups -------------------------------------------------------------------------------------

enum { MOST_GROUPS = 128 };

// The groups whose ranks are all on this machine.
static struct near {
  MPI_Comm comm;
  struct shared_group *group;
} near[MOST_GROUPS];
static int nears;
static MPI_Comm machine; // its ranks

// Where the members are in this machine; false: not all are here.
static bool all_are_here(MPI_Comm comm, int n, int *places)
{
  MPI_Group its, here;
  bool all = true;
  int *members = malloc((size_t)n * sizeof *members);
  if (!members) fail_call(__FILE__, __LINE__, "malloc", "out of memory");
  for (int m = 0; m < n; m++) members[m] = m;
  CHECK_MPI(PMPI_Comm_group(comm, &its));
  CHECK_MPI(PMPI_Comm_group(machine, &here));
  CHECK_MPI(PMPI_Group_translate_ranks(its, n, members, here, places));
  CHECK_MPI(PMPI_Group_free(&its));
  CHECK_MPI(PMPI_Group_free(&here));
  for (int m = 0; m < n; m++) all &= places[m] != MPI_UNDEFINED;
  free(members);
  return all;
}

// All ranks call it for all groups, so that groups have the same numbers on all.
static void add_group(MPI_Comm comm)
{
  int n, *places;
  CHECK_MPI(PMPI_Comm_size(comm, &n));
  places = malloc((size_t)n * sizeof *places);
  if (!places) fail_call(__FILE__, __LINE__, "malloc", "out of memory");
  const bool is_near = all_are_here(comm, n, places);
  struct shared_group *group = shared_make_group(is_near ? n : 0, places);
  free(places);
  if (group && is_near && nears < MOST_GROUPS)
    near[nears++] = (struct near){comm, group};
  else
    shared_free_group(group);
}

static struct near *find(MPI_Comm comm)
{
  for (int i = 0; i < nears; i++)
    if (near[i].comm == comm) return &near[i];
  return NULL;
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *group)
{
  const int error = PMPI_Comm_split(comm, color, key, group);
  if (error == MPI_SUCCESS) add_group(*group);
  return error;
}

int MPI_Comm_free(MPI_Comm *comm)
{
  struct near *its = find(*comm);
  if (its) {
    shared_free_group(its->group);
    *its = near[--nears];
  }
  return PMPI_Comm_free(comm);
}

// ---- types and operations -----------------------------------------------------------------------

enum { MOST_MADE = 8 };

static struct {
  MPI_Op op;
  MPI_User_function *function;
} made[MOST_MADE];
static int mades;

static int find_type(MPI_Datatype type)
{
  const struct {
    MPI_Datatype mpi;
    enum shared_type shared;
  } types[] = {{MPI_CHAR, SHARED_CHAR},          {MPI_BYTE, SHARED_CHAR},
               {MPI_UNSIGNED_CHAR, SHARED_CHAR}, {MPI_UINT16_T, SHARED_UINT16},
               {MPI_INT, SHARED_INT32},          {MPI_INT32_T, SHARED_INT32},
               {MPI_UINT32_T, SHARED_UINT32},    {MPI_INT64_T, SHARED_INT64},
               {MPI_FLOAT, SHARED_FLOAT},        {MPI_DOUBLE, SHARED_DOUBLE}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].mpi == type) return (int)types[i].shared;
  return -1;
}

enum shared_type shared_type_of(MPI_Datatype type)
{
  return (enum shared_type)find_type(type);
}

// -1: none that is known here.
int shared_op_of(MPI_Op op)
{
  if (op == MPI_SUM) return SHARED_SUM;
  if (op == MPI_MAX) return SHARED_MAX;
  if (op == MPI_MIN) return SHARED_MIN;
  if (op == MPI_BXOR) return SHARED_BXOR;
  for (int i = 0; i < mades; i++)
    if (made[i].op == op) return SHARED_MADE + i;
  return -1;
}

int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op)
{
  const int error = PMPI_Op_create(function, commutes, op);
  if (error != MPI_SUCCESS || mades == MOST_MADE) return error;
  made[mades].op = *op;
  made[mades++].function = function;
  return MPI_SUCCESS;
}

// The made operations support only types with 16 bits, and ignore the type.
void shared_combine(int op, void *in, void *inout, int n, enum shared_type type)
{
  MPI_Datatype its_type = MPI_UINT16_T;
  (void)type;
  made[op - SHARED_MADE].function(in, inout, &n, &its_type);
}

// ---- what the collectives ask -------------------------------------------------------------------

struct shared_group *shared_group_of(MPI_Comm comm, MPI_Datatype type, MPI_Op op)
{
  const struct near *its = find(comm);
  return its && find_type(type) >= 0 && shared_op_of(op) >= 0 ? its->group : NULL;
}

int shared_tell(MPI_Comm comm, int error)
{
  static int code;
  if (error == 0) return MPI_SUCCESS;
  if (code == 0) CHECK_MPI(PMPI_Add_error_class(&code));
  PMPI_Add_error_string(code, shared_error_text());
  PMPI_Comm_call_errhandler(comm, code);
  return code;
}

// ---- the start ----------------------------------------------------------------------------------

// MPI may have something left to send, and does it only in calls.
static void let_mpi_go_on(void)
{
  int is_there;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &is_there, MPI_STATUS_IGNORE);
}

// The message of a machine's first rank to its others.
struct introduction {
  int process;
  char secret[33];
};

static bool introduce(struct introduction *me)
{
  unsigned char random[16];
  me->process = (int)getpid();
  if (getrandom(random, sizeof random, 0) != sizeof random) return false;
  for (size_t i = 0; i < sizeof random; i++) snprintf(me->secret + 2 * i, 3, "%02x", random[i]);
  return true;
}

static int share_memory(void)
{
  struct introduction first = {0};
  struct shared_ranks ranks = {.idle = let_mpi_go_on};
  PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  PMPI_Comm_size(machine, &ranks.n);
  PMPI_Comm_rank(machine, &ranks.me);
  PMPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  if (ranks.me == 0 && !introduce(&first)) return shared_error("no random numbers");
  PMPI_Bcast(&first, sizeof first, MPI_BYTE, 0, machine);
  ranks.first = first.process;
  ranks.job = first.secret;
  const int error = shared_start(&ranks);
  if (error == 0) add_group(MPI_COMM_WORLD);
  return error;
}

// An error ends the job: MPI's own errors do, too, until a handler is set.
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
  const int error = PMPI_Init_thread(argc, argv, required, provided);
  if (error != MPI_SUCCESS || share_memory() == 0) return error;
  fail_call(__FILE__, __LINE__, "shared memory", shared_error_text());
  return MPI_ERR_OTHER;
}
