/* What a program of several ranks, each a process, is made of: the program that forks them
   (ranks.c) and the memory that they share (mpi.c). */
#ifndef RANKS_H
#define RANKS_H

/* Before the ranks are forked: memory for so many of them. */
void ranks_share(int n);
/* In a rank: which one it is. */
void ranks_become(int rank);
/* In the program that has forked them: one has ended, so that those who wait for it end, too. */
void ranks_lost(int rank);

#endif
