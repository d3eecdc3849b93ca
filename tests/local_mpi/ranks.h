/* What a program of several ranks, each a process, is made of: the program that forks them
   (ranks.c) and how they talk: mpi.c, or the runtime's shared memory (shared.c). */
#ifndef RANKS_H
#define RANKS_H

/* Before the ranks are forked: memory for so many of them. */
void ranks_share(int n);
/* In a rank: which one it is. */
void ranks_become(int rank);
/* In the program that has forked them: one has ended with this status, so that those who wait for
   it end, too. */
void ranks_lost(int rank, int status);

#endif
