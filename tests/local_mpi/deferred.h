/* The link over which collectives go: LOCAL_MPI_LINK. */
#ifndef LOCAL_MPI_DEFERRED_H
#define LOCAL_MPI_DEFERRED_H

#include <stddef.h>

/* Sleeps until so many bytes, of the collective that ends, have gone over this rank's link. */
void ranks_go_over_link(size_t bytes);

#endif
