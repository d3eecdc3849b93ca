/* How ranks move bytes. Each ordered pair of ranks has a ring of bytes in shared memory: one rank
   writes, the other reads. A transfer begins with a header that names its call, so that mismatched
   calls are detected. A rank that waits sleeps until another one moves bytes to or from it. */
#ifndef RINGS_H
#define RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_RANKS = 64 };

extern int ranks_in_all, ranks_me;

/* Ends the rank with a message. */
_Noreturn void ranks_misuse(const char *call, const char *what, long a, long b);

/* The header of a transfer, equal on both sides: `call` is the first letters of its name after
   MPI_. */
struct head {
  char call[16];
  int context;
  size_t bytes;
};

struct transfer {
  bool sends;
  int peer; /* in the world */
  const char *from;
  char *to;
  size_t done; /* of its head and its bytes */
  struct head head, heard;
};

/* A transfer of MPI_`call` on the communicator of this context; `from` or `to` is NULL. */
struct transfer ranks_transfer(const char *call, int context, int peer, const void *from, void *to,
                               size_t bytes);
bool ranks_is_over(const struct transfer *t);

/* Moves what can be moved without waiting; whether that is any. Ends the rank if none is, and the
   peer has ended. */
bool ranks_move(struct transfer *t, const char *call);

bool ranks_has_ended(int peer);

/* How many bytes this rank has written for the peer so far, and how many of them it has read. */
size_t ranks_written(int peer);
size_t ranks_read(int peer);

/* A number that changes when another rank moves bytes to or from this one; and a wait, for a while,
   until it is no longer what it was. */
uint32_t ranks_news(void);
void ranks_sleep(uint32_t heard);

#endif
