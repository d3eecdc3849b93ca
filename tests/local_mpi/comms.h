/* What the files of this MPI share about communicators and types. */
#ifndef COMMS_H
#define COMMS_H

#include <stddef.h>

#include "mpi.h"
#include "rings.h"

struct comm {
  int context, n, me; /* me: my index in it */
  int world[MOST_RANKS];
};

/* Ends the rank if there is no such communicator, or type. */
struct comm *ranks_comm(const char *call, MPI_Comm comm);
size_t ranks_bytes_of(MPI_Datatype type);

#endif
