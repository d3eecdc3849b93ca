/* What a program of several ranks, each a process, is made of: the program that forks them
   (ranks.c), or what lets those join that a launcher has started (joined.c), and how they talk:
   mpi.c, or the runtime's shared memory (shared.c). */
#ifndef RANKS_H
#define RANKS_H

/* Before the ranks are forked: memory for so many of them. */
void ranks_share(int n);
/* In a rank: which one it is. */
void ranks_become(int rank);
/* In a rank that a launcher has started: which of n it is. The ranks meet in the file at the path,
   which begins empty. */
void ranks_join(const char *path, int rank, int n);
/* In the program that has forked them: one has ended with this status, so that those who wait for
   it end, too. */
void ranks_lost(int rank, int status);

#endif
