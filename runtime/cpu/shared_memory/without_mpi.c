// SPDX-License-Identifier: MIT
// The MPI functions that a program calls and that are no collectives, for programs without MPI:
// run.sh has started the ranks, all on this machine (RANK, WORLD_SIZE, TPGEN_RANK0: the process of
// rank 0, TPGEN_TOKEN).
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cpu/shared_memory/names.h"

static MPI_Errhandler handler; // of all groups

// ---- what the collectives ask -------------------------------------------------------------------

struct shared_group *shared_group_of(MPI_Comm comm, MPI_Datatype type, MPI_Op op)
{
  (void)type, (void)op;
  return comm;
}

enum shared_type shared_type_of(MPI_Datatype type)
{
  return (enum shared_type)type;
}

int shared_op_of(MPI_Op op)
{
  return op;
}

int shared_tell(MPI_Comm comm, int error)
{
  if (error == 0) return MPI_SUCCESS;
  error = MPI_ERR_OTHER;
  if (handler) handler(&comm, &error);
  return error;
}

// ---- operations ---------------------------------------------------------------------------------

enum { MOST_MADE = 8 };

static MPI_User_function *made[MOST_MADE];

void shared_combine(int op, void *in, void *inout, int n, enum shared_type type)
{
  MPI_Datatype its_type = (MPI_Datatype)type;
  made[op - SHARED_MADE](in, inout, &n, &its_type);
}

int PMPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op)
{
  (void)commutes;
  for (int i = 0; i < MOST_MADE; i++) {
    if (made[i]) continue;
    made[i] = function;
    *op = SHARED_MADE + i;
    return MPI_SUCCESS;
  }
  return MPI_ERR_OTHER;
}

int PMPI_Op_free(MPI_Op *op)
{
  made[*op - SHARED_MADE] = NULL;
  return MPI_SUCCESS;
}

int PMPI_Type_size(MPI_Datatype type, int *bytes)
{
  *bytes = (int)shared_size(shared_type_of(type));
  return MPI_SUCCESS;
}

// ---- the start and the end ----------------------------------------------------------------------

static int number_of(const char *variable, int otherwise)
{
  const char *value = getenv(variable);
  return value ? atoi(value) : otherwise;
}

int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
  const char *token = getenv("TPGEN_TOKEN");
  struct shared_ranks ranks = {.n = number_of("WORLD_SIZE", 1),
                               .me = number_of("RANK", 0),
                               .first = number_of("TPGEN_RANK0", 0),
                               .job = token ? token : ""};
  (void)argc, (void)argv;
  *provided = required;
  ranks.rank = ranks.me;
  if (ranks.me > 0 && ranks.first == 0)
    return shared_tell(NULL, shared_error("ranks that share memory are started by run.sh"));
  return shared_tell(NULL, shared_start(&ranks));
}

// All meet: none takes another's end for its loss.
int PMPI_Finalize(void)
{
  return shared_tell(shared_machine, shared_barrier(shared_machine));
}

int PMPI_Abort(MPI_Comm comm, int status)
{
  (void)comm;
  _exit(status);
}

// ---- errors -------------------------------------------------------------------------------------

int PMPI_Error_string(int error, char *text, int *length)
{
  (void)error;
  *length = snprintf(text, MPI_MAX_ERROR_STRING, "%s", shared_error_text());
  return MPI_SUCCESS;
}

int PMPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *created)
{
  *created = function;
  return MPI_SUCCESS;
}

int PMPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler its)
{
  (void)comm;
  handler = its;
  return MPI_SUCCESS;
}

int PMPI_Errhandler_free(MPI_Errhandler *its)
{
  *its = NULL;
  return MPI_SUCCESS;
}

// ---- groups -------------------------------------------------------------------------------------

int PMPI_Comm_rank(MPI_Comm comm, int *place)
{
  *place = shared_place_in(comm);
  return MPI_SUCCESS;
}

int PMPI_Comm_size(MPI_Comm comm, int *size)
{
  *size = shared_members(comm);
  return MPI_SUCCESS;
}

// Those of one color, by key; `comm` is MPI_COMM_WORLD.
int PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *group)
{
  int mine[2] = {color, key}, all[2 * SHARED_RANKS], members[SHARED_RANKS], n = 0;
  const int error = PMPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, comm);
  if (error != MPI_SUCCESS) return error;
  for (int i = 0; i < shared_members(comm); i++) {
    if (all[2 * i] != color) continue;
    int to = n++;
    for (; to > 0 && all[2 * members[to - 1] + 1] > all[2 * i + 1]; to--)
      members[to] = members[to - 1];
    members[to] = i;
  }
  *group = shared_make_group(n, members);
  return shared_tell(comm, *group ? 0 : -1);
}

int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *group)
{
  (void)info;
  return PMPI_Comm_split(comm, type, key, group);
}

int PMPI_Comm_free(MPI_Comm *comm)
{
  shared_free_group(*comm);
  *comm = NULL;
  return MPI_SUCCESS;
}

// ---- the first names ----------------------------------------------------------------------------

#define FIRST_NAME(name) __attribute__((weak, alias("PMPI_" #name)))

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) FIRST_NAME(Init_thread);
int MPI_Finalize(void) FIRST_NAME(Finalize);
int MPI_Abort(MPI_Comm comm, int status) FIRST_NAME(Abort);
int MPI_Error_string(int error, char *text, int *length) FIRST_NAME(Error_string);
int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *created)
    FIRST_NAME(Comm_create_errhandler);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler its) FIRST_NAME(Comm_set_errhandler);
int MPI_Errhandler_free(MPI_Errhandler *its) FIRST_NAME(Errhandler_free);
int MPI_Comm_rank(MPI_Comm comm, int *place) FIRST_NAME(Comm_rank);
int MPI_Comm_size(MPI_Comm comm, int *size) FIRST_NAME(Comm_size);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *group) FIRST_NAME(Comm_split);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *group)
    FIRST_NAME(Comm_split_type);
int MPI_Comm_free(MPI_Comm *comm) FIRST_NAME(Comm_free);
int MPI_Type_size(MPI_Datatype type, int *bytes) FIRST_NAME(Type_size);
int MPI_Query_thread(int *provided) FIRST_NAME(Query_thread);
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *is_there, MPI_Status *status)
    FIRST_NAME(Iprobe);
int MPI_Wait(MPI_Request *request, MPI_Status *status) FIRST_NAME(Wait);
int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op) FIRST_NAME(Op_create);
int MPI_Op_free(MPI_Op *op) FIRST_NAME(Op_free);

// ---- collectives that need no wait --------------------------------------------------------------

int PMPI_Query_thread(int *provided)
{
  *provided = MPI_THREAD_FUNNELED;
  return MPI_SUCCESS;
}

int PMPI_Iprobe(int from, int tag, MPI_Comm comm, int *is_there, MPI_Status *status)
{
  (void)from, (void)tag, (void)comm, (void)status;
  *is_there = 0;
  return MPI_SUCCESS;
}

int PMPI_Wait(MPI_Request *request, MPI_Status *status)
{
  (void)status;
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

#define AT_ONCE(name, parameters, call)                                                            \
  int PMPI_##name parameters                                                                       \
  {                                                                                                \
    *request = MPI_REQUEST_NULL;                                                                   \
    return call;                                                                                   \
  }                                                                                                \
  int MPI_##name parameters FIRST_NAME(name);

AT_ONCE(Iallreduce,
        (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         MPI_Request *request),
        MPI_Allreduce(in, out, n, type, op, comm))
AT_ONCE(Ireduce_scatter_block,
        (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         MPI_Request *request),
        MPI_Reduce_scatter_block(in, out, n, type, op, comm))
AT_ONCE(Ireduce_scatter,
        (const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         MPI_Request *request),
        MPI_Reduce_scatter(in, out, n, type, op, comm))
AT_ONCE(Iallgather,
        (const void *in, int n, MPI_Datatype type, void *out, int n_out, MPI_Datatype type_out,
         MPI_Comm comm, MPI_Request *request),
        MPI_Allgather(in, n, type, out, n_out, type_out, comm))
AT_ONCE(Iallgatherv,
        (const void *in, int n, MPI_Datatype type, void *out, const int *n_out, const int *first,
         MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request),
        MPI_Allgatherv(in, n, type, out, n_out, first, type_out, comm))
AT_ONCE(Ialltoall,
        (const void *in, int n, MPI_Datatype type, void *out, int n_out, MPI_Datatype type_out,
         MPI_Comm comm, MPI_Request *request),
        MPI_Alltoall(in, n, type, out, n_out, type_out, comm))
AT_ONCE(Ialltoallv,
        (const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
         const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm,
         MPI_Request *request),
        MPI_Alltoallv(in, n, first, type, out, n_out, first_out, type_out, comm))
