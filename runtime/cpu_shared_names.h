// SPDX-License-Identifier: MIT
// MPI's names for the collectives of cpu_shared_collectives.h. cpu_without_mpi.c answers where
// there is no MPI, cpu_beside_mpi.c where ranks are on several machines (TPGEN_MIXED): there a
// group whose ranks are all on one machine talks through its memory, and any other by MPI.
#ifndef CPU_SHARED_NAMES_H
#define CPU_SHARED_NAMES_H

#include "cpu_shared_collectives.h"
#include "program.h"

// The group that can do this collective through memory; NULL: it must go by MPI.
struct shared_group *shared_group_of(MPI_Comm comm, MPI_Datatype type, MPI_Op op);
enum shared_type shared_type_of(MPI_Datatype type);
int shared_op_of(MPI_Op op);

// MPI's error for an error of a shared collective, passed to the handler of `comm`; 0 stays 0.
int shared_tell(MPI_Comm comm, int error);

#ifdef TPGEN_MIXED
// What cpu_collectives.c has.
int reduce_scatter_by_mpi(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm group);
int gather_segments_by_mpi(const void *own, void *room, int n, const struct segment *p,
                           MPI_Datatype type, MPI_Comm group);
int reduce_segments_by_mpi(void *room, void *own, int n, const struct segment *p, MPI_Datatype type,
                           MPI_Op op, MPI_Comm group);
int alltoall_rows_by_mpi(const void *in, const int *n, const int *first, void *out,
                         const int *n_out, const int *first_out, long bytes, MPI_Comm group);
#endif

#endif
