/* How ranks move bytes. Each ordered pair of ranks has a ring of bytes in shared memory: one rank
   writes, the other reads. A rank that waits sleeps until another one moves bytes to or from it. */
#ifndef RINGS_H
#define RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_RANKS = 64 };

extern int ranks_in_all, ranks_me;

/* Ends the rank with a message. */
_Noreturn void ranks_misuse(const char *call, const char *what, long a, long b);

/* Write to a rank, or read from it, what can be without waiting: how many bytes. */
size_t ranks_write(int peer, const void *from, size_t bytes);
size_t ranks_read(int peer, void *to, size_t bytes);

bool ranks_has_ended(int peer);

/* A number that changes when another rank moves bytes to or from this one; and a wait, for a while,
   until it is no longer what it was. The wait returns whether all ranks have waited for so long
   that none will ever move. */
uint32_t ranks_news(void);
bool ranks_sleep(uint32_t heard);

#endif
