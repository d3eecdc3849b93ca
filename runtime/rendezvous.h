// How the ranks of a job meet over TCP, where there is no MPI: as a star around rank 0.
//
// Rank 0 listens at MASTER_ADDR on the port after MASTER_PORT (29500 + 1 where it is not set; the
// port itself is torchrun's own). Each other rank connects and greets with the plan's hash, its
// rank and the job's token; rank 0 turns away whoever is not of this job, and answers the others
// with the token's other half. The connections stay for the agreements below.
//
// The token is TPGEN_TOKEN, the same for all ranks. Where it is not set it is the name that
// torchrun or Slurm has for the job: that keeps two jobs apart, but is no secret.
#ifndef RENDEZVOUS_H
#define RENDEZVOUS_H

#include "launch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct meeting {
  int size, rank;
  int *peers;   // sockets: on rank 0 one for each rank, elsewhere peers[0] alone
  int patience; // how many seconds an agreement may wait for another rank; 0: for ever
};

// Collective. Waits at most `seconds` for the others. False, and why, where one is missing, is
// of another program, or MASTER_ADDR and MASTER_PORT are no address; then nothing is left open.
// The agreements below may wait as long, unless `patience` is set to something else.
bool meet_start(struct meeting *meeting, const struct identity *me, const char *hash, int seconds,
                struct failure *why);

// Collective. The lowest value of all ranks, to each. False where a rank has gone away.
bool meet_lowest(const struct meeting *meeting, int value, int *lowest, struct failure *why);

// Collective. Rank 0's bytes, to each.
bool meet_share(const struct meeting *meeting, void *bytes, size_t count, struct failure *why);

// Collective. What each rank gives, `count` bytes, to all: in the order of the ranks.
bool meet_gather(const struct meeting *meeting, const void *given, size_t count, void *all,
                 struct failure *why);

// A rank whose connection is closed, or -1: rank 0 knows of each, the others of rank 0. It may be
// called while another thread meets.
int meet_lost(const struct meeting *meeting);

void meet_stop(struct meeting *meeting);

#ifdef __cplusplus
}
#endif

#endif
