// SPDX-License-Identifier: MIT
// MPI's collectives, and the program's own, for ranks that share memory (see
// cpu/shared_memory/names.h).
#include "cpu/shared_memory/names.h"

// Without MPI each of its functions has a second name, as in any MPI, so that a program can put its
// own function in the place of the first. Beside MPI the second name is MPI's own function.
#ifdef TPGEN_MIXED
#include "cpu/collectives_by_mpi.h"
#define MPI_NAMED(name, parameters, comm, type, op, through_memory, by_mpi)                        \
  int MPI_##name parameters                                                                        \
  {                                                                                                \
    struct shared_group *near = shared_group_of(comm, type, op);                                   \
    return near ? shared_tell(comm, through_memory) : PMPI_##name by_mpi;                          \
  }
#define OURS(name, parameters, comm, type, op, through_memory, by_mpi)                             \
  int name parameters                                                                              \
  {                                                                                                \
    struct shared_group *near = shared_group_of(comm, type, op);                                   \
    return near ? shared_tell(comm, through_memory) : name##_by_mpi by_mpi;                        \
  }
#else
#define THROUGH_MEMORY(name, parameters, comm, type, op, through_memory)                           \
  int name parameters                                                                              \
  {                                                                                                \
    struct shared_group *near = shared_group_of(comm, type, op);                                   \
    return shared_tell(comm, through_memory);                                                      \
  }
#define MPI_NAMED(name, parameters, comm, type, op, through_memory, by_mpi)                        \
  THROUGH_MEMORY(PMPI_##name, parameters, comm, type, op, through_memory)                          \
  int MPI_##name parameters __attribute__((weak, alias("PMPI_" #name)));
#define OURS(name, parameters, comm, type, op, through_memory, by_mpi)                             \
  THROUGH_MEMORY(name, parameters, comm, type, op, through_memory)
#endif

// The operation of a collective that does not compute.
#define NO_OP MPI_SUM

#define EACH(count)        ((struct shared_parts){.each = (count)})
#define PARTS(counts, at)  ((struct shared_parts){.n = (counts), .first = (at)})
#define UNLESS_IN_PLACE(x) (in == MPI_IN_PLACE ? (x) : in)

MPI_NAMED(Bcast, (void *at, int n, MPI_Datatype type, int root, MPI_Comm comm), comm, type, NO_OP,
          shared_bcast(at, n, shared_type_of(type), root, near), (at, n, type, root, comm))

MPI_NAMED(Allreduce,
          (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm), comm,
          type, op,
          shared_allreduce(UNLESS_IN_PLACE(out), out, n, shared_type_of(type), shared_op_of(op),
                           near),
          (in, out, n, type, op, comm))

MPI_NAMED(Reduce_scatter_block,
          (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm), comm,
          type, op,
          shared_reduce_scatter(UNLESS_IN_PLACE(out), out, EACH(n), shared_type_of(type),
                                shared_op_of(op), near),
          (in, out, n, type, op, comm))

MPI_NAMED(Reduce_scatter,
          (const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
          comm, type, op,
          shared_reduce_scatter(UNLESS_IN_PLACE(out), out, PARTS(n, NULL), shared_type_of(type),
                                shared_op_of(op), near),
          (in, out, n, type, op, comm))

MPI_NAMED(Allgather,
          (const void *in, int n, MPI_Datatype type, void *out, int n_out, MPI_Datatype type_out,
           MPI_Comm comm),
          comm, type_out, NO_OP,
          ((void)n, (void)type,
           shared_allgather(UNLESS_IN_PLACE(NULL), out, EACH(n_out), shared_type_of(type_out),
                            near)),
          (in, n, type, out, n_out, type_out, comm))

MPI_NAMED(Allgatherv,
          (const void *in, int n, MPI_Datatype type, void *out, const int *n_out, const int *first,
           MPI_Datatype type_out, MPI_Comm comm),
          comm, type_out, NO_OP,
          ((void)n, (void)type,
           shared_allgather(UNLESS_IN_PLACE(NULL), out, PARTS(n_out, first),
                            shared_type_of(type_out), near)),
          (in, n, type, out, n_out, first, type_out, comm))

MPI_NAMED(Alltoall,
          (const void *in, int n, MPI_Datatype type, void *out, int n_out, MPI_Datatype type_out,
           MPI_Comm comm),
          comm, type, NO_OP,
          ((void)type_out,
           shared_alltoall(in, EACH(n), out, EACH(n_out), shared_type_of(type), near)),
          (in, n, type, out, n_out, type_out, comm))

MPI_NAMED(Alltoallv,
          (const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
           const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm),
          comm, type, NO_OP,
          ((void)type_out, shared_alltoall(in, PARTS(n, first), out, PARTS(n_out, first_out),
                                           shared_type_of(type), near)),
          (in, n, first, type, out, n_out, first_out, type_out, comm))

MPI_NAMED(Sendrecv,
          (const void *in, int n, MPI_Datatype type, int to, int tag, void *out, int n_out,
           MPI_Datatype type_out, int from, int tag_from, MPI_Comm comm, MPI_Status *status),
          comm, type, NO_OP,
          ((void)tag, (void)tag_from, (void)type_out, (void)status,
           shared_sendrecv(in, out,
                           (struct shared_pair){.to = to == MPI_PROC_NULL ? -1 : to,
                                                .from = from == MPI_PROC_NULL ? -1 : from,
                                                .given = n,
                                                .taken = n_out},
                           shared_type_of(type), near)),
          (in, n, type, to, tag, out, n_out, type_out, from, tag_from, comm, status))

OURS(reduce_scatter,
     (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm), comm, type,
     op,
     shared_reduce_scatter(UNLESS_IN_PLACE(out), out, EACH(n), shared_type_of(type),
                           shared_op_of(op), near),
     (in, out, n, type, op, comm))

OURS(gather_segments,
     (const void *own, void *room, int n, const struct segment *p, MPI_Datatype type,
      MPI_Comm comm),
     comm, type, NO_OP, ((void)room, shared_gather_segments(own, n, p, shared_type_of(type), near)),
     (own, room, n, p, type, comm))

OURS(reduce_segments,
     (void *room, void *own, int n, const struct segment *p, MPI_Datatype type, MPI_Op op,
      MPI_Comm comm),
     comm, type, op,
     ((void)room, shared_reduce_segments(own, n, p, shared_type_of(type), shared_op_of(op), near)),
     (room, own, n, p, type, op, comm))

OURS(alltoall_rows,
     (const void *in, const int *n, const int *first, void *out, const int *n_out,
      const int *first_out, long bytes, MPI_Comm comm),
     comm, MPI_BYTE, NO_OP,
     shared_alltoall_rows(in, PARTS(n, first), out, PARTS(n_out, first_out), bytes, near),
     (in, n, first, out, n_out, first_out, bytes, comm))
