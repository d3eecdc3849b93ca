/* The link over which collectives go: LOCAL_MPI_LINK. */
#ifndef LOCAL_MPI_DEFERRED_H
#define LOCAL_MPI_DEFERRED_H

#include <stddef.h>

/* Sleeps until so many bytes, of the collective that ends, have gone over this rank's link. */
void ranks_go_over_link(size_t bytes);

/* Adds a line to the file LOCAL_MPI_SLEPT, if there is one: the rank, and how many seconds it has
   slept so. */
void ranks_tell_slept(int rank);

#endif
