/* MPI for a single rank: a program that is linked with it starts in an instant. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t size_of(MPI_Datatype type)
{
  if (type == MPI_DOUBLE) return 8;
  return type == MPI_BYTE || type == MPI_CHAR ? 1 : type == MPI_UINT16_T ? 2 : 4;
}

static int copy(const void *from, void *to, int n, MPI_Datatype type)
{
  if (from != MPI_IN_PLACE) memcpy(to, from, (size_t)n * size_of(type));
  return MPI_SUCCESS;
}

static int put(int value, int *to)
{
  *to = value;
  return MPI_SUCCESS;
}

#define WITHOUT_USE(name, parameters)                                                              \
  int MPI_##name parameters                                                                        \
  {                                                                                                \
    return MPI_SUCCESS;                                                                            \
  }

#pragma GCC diagnostic ignored "-Wunused-parameter"
WITHOUT_USE(Init_thread, (int *argc, char ***argv, int expected, int *level))
WITHOUT_USE(Finalize, (void))
WITHOUT_USE(Bcast, (void *at, int n, MPI_Datatype type, int root, MPI_Comm comm))
WITHOUT_USE(Comm_create_errhandler, (MPI_Comm_errhandler_function * f, MPI_Errhandler *handler))
WITHOUT_USE(Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler))
WITHOUT_USE(Errhandler_free, (MPI_Errhandler * handler))
WITHOUT_USE(Comm_free, (MPI_Comm * comm))
WITHOUT_USE(Comm_split, (MPI_Comm comm, int colour, int key, MPI_Comm *made))
WITHOUT_USE(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made))
WITHOUT_USE(Op_create, (MPI_User_function * f, int commutes, MPI_Op *op))
WITHOUT_USE(Op_free, (MPI_Op * op))

int MPI_Abort(MPI_Comm comm, int status)
{
  fflush(NULL);
  _Exit(status);
}

int MPI_Error_string(int error, char *text, int *length)
{
  *text = 0;
  return put(0, length);
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
  return put(0, rank);
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
  return put(1, size);
}

int MPI_Type_size(MPI_Datatype type, int *size)
{
  return put((int)size_of(type), size);
}

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  return copy(from, to, n, type);
}

int MPI_Allgather(const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype other,
                  MPI_Comm comm)
{
  return copy(from, to, n, type);
}
