// SPDX-License-Identifier: MIT
// The functions of cpu/collectives.c if ranks are on several machines (TPGEN_MIXED): the names
// without _by_mpi are those of cpu/shared_memory/mpi.c, which also knows groups that share memory.
#ifndef CPU_COLLECTIVES_BY_MPI_H
#define CPU_COLLECTIVES_BY_MPI_H

#include "base/program.h"

int reduce_scatter_by_mpi(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm group);
int gather_segments_by_mpi(const void *own, void *room, int n, const struct segment *p,
                           MPI_Datatype type, MPI_Comm group);
int reduce_segments_by_mpi(void *room, void *own, int n, const struct segment *p, MPI_Datatype type,
                           MPI_Op op, MPI_Comm group);
int alltoall_rows_by_mpi(const void *in, const int *n, const int *first, void *out,
                         const int *n_out, const int *first_out, long bytes, MPI_Comm group);

#endif
