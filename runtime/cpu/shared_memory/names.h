// SPDX-License-Identifier: MIT
// MPI's names for the collectives of cpu/shared_memory/collectives.h.
// cpu/shared_memory/without_mpi.c answers where there is no MPI, cpu/shared_memory/beside_mpi.c
// where ranks are on several machines (TPGEN_MIXED): there a group whose ranks are all on one
// machine talks through its memory, and any other by MPI.
#ifndef CPU_SHARED_NAMES_H
#define CPU_SHARED_NAMES_H

#include "base/program.h"
#include "cpu/shared_memory/collectives.h"

// The group that can do this collective through memory; NULL: it must go by MPI.
struct shared_group *shared_group_of(MPI_Comm comm, MPI_Datatype type, MPI_Op op);
enum shared_type shared_type_of(MPI_Datatype type);
int shared_op_of(MPI_Op op);

// MPI's error for an error of a shared collective, passed to the handler of `comm`; 0 stays 0.
int shared_tell(MPI_Comm comm, int error);

#endif
