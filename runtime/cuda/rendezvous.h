// SPDX-License-Identifier: MIT
// The rendezvous of a job's ranks over TCP, without MPI: a star around rank 0.
//
// Rank 0 listens at MASTER_ADDR on the port after MASTER_PORT (29500 + 1 if it is not set; the port
// itself is torchrun's own). Each other rank connects and sends the plan's hash, its rank and the
// job's token; rank 0 refuses callers that are not of this job, and answers the others with the
// token's other half. The connections stay open for the agreements below.
//
// The token is TPGEN_TOKEN, the same for all ranks. If it is not set, it is the job's name in
// torchrun or Slurm: that keeps two jobs apart, but is no secret.
#ifndef RENDEZVOUS_H
#define RENDEZVOUS_H

#include "base/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct meeting {
  int size, rank;
  int *peers;  // sockets: on rank 0 one for each rank, elsewhere only peers[0]
  int timeout; // the most seconds that an agreement waits for another rank; 0: forever
};

// Collective. Waits at most `seconds` for the others. False, and why, if one is missing or of
// another program, or MASTER_ADDR and MASTER_PORT are no address; then nothing is left open. The
// agreements below may wait as long, unless `timeout` is set to something else.
bool meet_start(struct meeting *meeting, const struct identity *me, const char *hash, int seconds,
                struct failure *why);

// Collective. The minimum over all ranks. False if a rank has left.
bool meet_lowest(const struct meeting *meeting, int value, int *lowest, struct failure *why);

// Collective. Copies rank 0's bytes to all ranks.
bool meet_share(const struct meeting *meeting, void *bytes, size_t count, struct failure *why);

// Collective. Gathers `count` bytes of each rank on all ranks, in the order of the ranks.
bool meet_gather(const struct meeting *meeting, const void *given, size_t count, void *all,
                 struct failure *why);

// A rank whose connection is closed, or -1: rank 0 checks all others, the others rank 0. May be
// called while another thread is in a collective.
int meet_lost(const struct meeting *meeting);

void meet_stop(struct meeting *meeting);

#ifdef __cplusplus
}
#endif

#endif
