// SPDX-License-Identifier: MIT
// The functions of MPI that a program calls, for ranks that are processes of one machine: they talk
// through memory that they share (cpu/shared_memory/collectives.h), and no MPI is needed. Names and
// meaning are MPI's.
#ifndef CPU_SHARED_MPI_H
#define CPU_SHARED_MPI_H

#include "cpu/shared_memory/collectives.h"

typedef struct shared_group *MPI_Comm;
typedef int MPI_Op, MPI_Datatype, MPI_Info, MPI_Request;
typedef struct {
  int unused;
} MPI_Status;
typedef void MPI_User_function(void *in, void *inout, int *n, MPI_Datatype *type);
typedef void MPI_Comm_errhandler_function(MPI_Comm *comm, int *error, ...);
typedef MPI_Comm_errhandler_function *MPI_Errhandler;

enum { MPI_SUCCESS, MPI_ERR_OTHER };
enum {
  MPI_PROC_NULL = -2,
  MPI_THREAD_FUNNELED = 1,
  MPI_THREAD_MULTIPLE = 3,
  MPI_MAX_ERROR_STRING = 256
};
enum {
  MPI_COMM_TYPE_SHARED,
  MPI_INFO_NULL,
  MPI_REQUEST_NULL = 0,
  MPI_ANY_SOURCE = -1,
  MPI_ANY_TAG = -1
};
enum {
  MPI_CHAR = SHARED_CHAR,
  MPI_BYTE = SHARED_CHAR,
  MPI_UNSIGNED_CHAR = SHARED_CHAR,
  MPI_UINT16_T = SHARED_UINT16,
  MPI_INT = SHARED_INT32,
  MPI_INT32_T = SHARED_INT32,
  MPI_UINT32_T = SHARED_UINT32,
  MPI_INT64_T = SHARED_INT64,
  MPI_FLOAT = SHARED_FLOAT,
  MPI_DOUBLE = SHARED_DOUBLE
};
// And those of MPI_Op_create.
enum { MPI_SUM = SHARED_SUM, MPI_MAX = SHARED_MAX, MPI_MIN = SHARED_MIN, MPI_BXOR = SHARED_BXOR };

#define MPI_COMM_WORLD    shared_machine
#define MPI_COMM_SELF     ((MPI_Comm)0)
#define MPI_IN_PLACE      ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)

// As in any MPI each function has a second name, so that a program can put its own function in the
// place of the first.
#define MPI_FUNCTION(name, ...)                                                                    \
  int MPI_##name(__VA_ARGS__);                                                                     \
  int PMPI_##name(__VA_ARGS__);

MPI_FUNCTION(Init_thread, int *argc, char ***argv, int required, int *provided)
MPI_FUNCTION(Finalize, void)
MPI_FUNCTION(Abort, MPI_Comm comm, int status)
MPI_FUNCTION(Error_string, int error, char *text, int *length)

MPI_FUNCTION(Comm_rank, MPI_Comm comm, int *rank)
MPI_FUNCTION(Comm_size, MPI_Comm comm, int *size)
MPI_FUNCTION(Comm_split, MPI_Comm comm, int color, int key, MPI_Comm *made)
MPI_FUNCTION(Comm_split_type, MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made)
MPI_FUNCTION(Comm_free, MPI_Comm *comm)
MPI_FUNCTION(Comm_create_errhandler, MPI_Comm_errhandler_function *function,
             MPI_Errhandler *handler)
MPI_FUNCTION(Comm_set_errhandler, MPI_Comm comm, MPI_Errhandler handler)
MPI_FUNCTION(Errhandler_free, MPI_Errhandler *handler)

MPI_FUNCTION(Type_size, MPI_Datatype type, int *bytes)
MPI_FUNCTION(Op_create, MPI_User_function *function, int commutes, MPI_Op *op)
MPI_FUNCTION(Op_free, MPI_Op *op)

MPI_FUNCTION(Bcast, void *at, int n, MPI_Datatype type, int root, MPI_Comm comm)
MPI_FUNCTION(Allreduce, const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm)
MPI_FUNCTION(Reduce_scatter_block, const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm)
MPI_FUNCTION(Reduce_scatter, const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm)
MPI_FUNCTION(Allgather, const void *in, int n, MPI_Datatype type, void *out, int n_out,
             MPI_Datatype type_out, MPI_Comm comm)
MPI_FUNCTION(Allgatherv, const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
             const int *first, MPI_Datatype type_out, MPI_Comm comm)
MPI_FUNCTION(Alltoall, const void *in, int n, MPI_Datatype type, void *out, int n_out,
             MPI_Datatype type_out, MPI_Comm comm)
MPI_FUNCTION(Alltoallv, const void *in, const int *n, const int *first, MPI_Datatype type,
             void *out, const int *n_out, const int *first_out, MPI_Datatype type_out,
             MPI_Comm comm)
// Those that need no wait are complete when they return: through memory nothing goes on beside
// arithmetic.
MPI_FUNCTION(Query_thread, int *provided)
MPI_FUNCTION(Iprobe, int from, int tag, MPI_Comm comm, int *is_there, MPI_Status *status)
MPI_FUNCTION(Wait, MPI_Request *request, MPI_Status *status)
MPI_FUNCTION(Iallreduce, const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm, MPI_Request *request)
MPI_FUNCTION(Ireduce_scatter_block, const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm, MPI_Request *request)
MPI_FUNCTION(Ireduce_scatter, const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm, MPI_Request *request)
MPI_FUNCTION(Iallgather, const void *in, int n, MPI_Datatype type, void *out, int n_out,
             MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request)
MPI_FUNCTION(Iallgatherv, const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
             const int *first, MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request)
MPI_FUNCTION(Ialltoall, const void *in, int n, MPI_Datatype type, void *out, int n_out,
             MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request)
MPI_FUNCTION(Ialltoallv, const void *in, const int *n, const int *first, MPI_Datatype type,
             void *out, const int *n_out, const int *first_out, MPI_Datatype type_out,
             MPI_Comm comm, MPI_Request *request)
// All ranks of the group call it, those without a partner, too.
MPI_FUNCTION(Sendrecv, const void *in, int n, MPI_Datatype type, int to, int tag, void *out,
             int n_out, MPI_Datatype type_out, int from, int tag_from, MPI_Comm comm,
             MPI_Status *status)

#endif
