/* What goes through the rings. A part of a collective is sent at once. A message waits until the
   other rank has posted its receive: so a send is over no sooner than its receive has begun, as it
   may be of any MPI, and none depends on room for messages under way. */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One that this rank sends or receives, equal on both sides: `call` is the first letters of the
   call's name after MPI_. Parts of collectives of one communicator match in their order, messages
   of one communicator and tag in theirs. */
struct message {
  struct message *next; /* in a list of its peer */
  bool is_part, sends, over;
  char call[16];
  int context, tag, peer; /* peer: in the world */
  size_t bytes;
  const char *from;
  char *to;
};

/* Begins it: what is not said here is 0. */
void ranks_begin_message(struct message *m);

/* Moves of all messages what can be moved without waiting; whether that is any. */
bool ranks_progress(void);

/* After ranks_progress has moved nothing: ends the rank if the message's peer has ended, which
   `peer_had_ended` says of the time before. */
void ranks_expect(const char *call, const struct message *m, bool peer_had_ended);

/* Waits for news since `heard`; ends the rank with what its messages are if there will be none. */
void ranks_wait_for_news(const char *call, uint32_t heard);

/* Ends the rank if it has begun a message that is not over, or was sent one that it has not
   received. */
void ranks_expect_no_messages(const char *call);

#endif
