/* A small MPI for tests: the ranks of a program are processes that one program has forked, and talk
   through memory that they share. It has what the runtime and generated programs call, with MPI's
   names and meaning. Two ranks that call different collectives, or one with sizes that do not fit,
   end the job with a message: a real MPI may take that for good. So do ranks that all wait, and a
   message that nobody has received when the program ends. */
#ifndef LOCAL_MPI_H
#define LOCAL_MPI_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int MPI_Comm, MPI_Op, MPI_Datatype, MPI_Errhandler, MPI_Info, MPI_Fint, MPI_Group,
    MPI_Request;
typedef struct {
  int source;
} MPI_Status;
typedef void MPI_User_function(void *in, void *inout, int *n, MPI_Datatype *type);
typedef void MPI_Comm_errhandler_function(MPI_Comm *comm, int *error, ...);

enum {
  MPI_SUCCESS = 0,
  MPI_PROC_NULL = -2,
  MPI_ANY_SOURCE = -3,
  MPI_ANY_TAG = -4,
  MPI_THREAD_FUNNELED = 1,
  MPI_THREAD_MULTIPLE = 3,
  MPI_MAX_ERROR_STRING = 256
};
enum {
  MPI_UNDEFINED = -1,
  MPI_COMM_NULL = -1,
  MPI_COMM_WORLD = 0,
  MPI_COMM_SELF = -5,
  MPI_REQUEST_NULL = -1
};
enum { MPI_COMM_TYPE_SHARED = 1, MPI_INFO_NULL = 0, MPI_ERRHANDLER_NULL = 0 };
enum {
  MPI_CHAR = 1,
  MPI_BYTE,
  MPI_UNSIGNED_CHAR,
  MPI_UINT16_T,
  MPI_INT,
  MPI_INT32_T,
  MPI_UINT32_T,
  MPI_INT64_T,
  MPI_FLOAT,
  MPI_DOUBLE,
  MPI_INT8_T,
  MPI_UINT8_T,
  MPI_UINT64_T
};
enum { MPI_SUM = 1, MPI_MAX, MPI_MIN, MPI_PROD, MPI_BOR, MPI_BXOR };
#define MPI_IN_PLACE      ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int expected, int *given);
int MPI_Initialized(int *has);
int MPI_Finalized(int *has);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm comm, int status) __attribute__((noreturn));
int MPI_Error_string(int error, char *text, int *length);
int MPI_Type_size(MPI_Datatype type, int *bytes);
int MPI_Type_contiguous(int n, MPI_Datatype of, MPI_Datatype *made);
int MPI_Type_commit(MPI_Datatype *type);
int MPI_Type_free(MPI_Datatype *type);
int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op);
int MPI_Op_free(MPI_Op *op);

int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made);
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *made, MPI_Request *request);
int MPI_Comm_free(MPI_Comm *comm);
MPI_Comm MPI_Comm_f2c(MPI_Fint comm);
int MPI_Comm_group(MPI_Comm comm, MPI_Group *group);
int MPI_Group_translate_ranks(MPI_Group from, int n, const int *members, MPI_Group to, int *there);
int MPI_Group_free(MPI_Group *group);
int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *handler);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Errhandler_free(MPI_Errhandler *handler);

int MPI_Bcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Reduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm);
int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Allgather(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm);
int MPI_Allgatherv(const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
                   const int *first, MPI_Datatype type_out, MPI_Comm comm);
int MPI_Reduce_scatter_block(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm);
int MPI_Reduce_scatter(const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm);
int MPI_Alltoall(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                 MPI_Datatype type_out, MPI_Comm comm);
int MPI_Alltoallv(const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
                  const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm);
int MPI_Sendrecv(const void *in, int n, MPI_Datatype type, int to, int tag, void *out, int n_out,
                 MPI_Datatype type_out, int from, int tag_from, MPI_Comm comm, MPI_Status *status);
int MPI_Reduce_local(const void *in, void *inout, int n, MPI_Datatype type, MPI_Op op);

/* Collectives that need no wait are done as late as they may be, within MPI_Wait: a program that
   uses their bytes before that has other numbers. All ranks wait for them in one order. With
   LOCAL_MPI_LINK=BYTES of a second a collective takes the time that its bytes take over such a
   link, which a rank has for itself; one that needs no wait takes it from its beginning on.
   LOCAL_MPI_SLEPT=FILE tells for how long ranks have waited for their links. */
int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request);
int MPI_Iallgather(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                   MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request);
int MPI_Iallgatherv(const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
                    const int *first, MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request);
int MPI_Ireduce_scatter_block(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, MPI_Request *request);
int MPI_Ireduce_scatter(const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoall(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoallv(const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
                   const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm,
                   MPI_Request *request);
int MPI_Wait(MPI_Request *request, MPI_Status *status);
int MPI_Query_thread(int *given);
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *is_there, MPI_Status *status);

/* Messages of one tag are received in the order in which they are sent, those of other tags in any.
   A send is over when it is received. A message has as many bytes as its receive. */
int MPI_Isend(const void *from, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request);
int MPI_Issend(const void *from, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
               MPI_Request *request);
int MPI_Irecv(void *to, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request);
int MPI_Test(MPI_Request *request, int *is_over, MPI_Status *status);

#ifdef __cplusplus
}
#endif

#endif
