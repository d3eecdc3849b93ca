// SPDX-License-Identifier: MIT
// Sends and receives between stages of a pipeline, by MPI.
#include "cpu/stages.h"

#include "base/program.h"

#include <stdbool.h>
#include <stdlib.h>

// The sends that are not awaited yet: a program sends few values, each in a slot of its
// micro-batch.
struct sending {
  const void *value;
  MPI_Request request;
  const struct place *at; // its action: a rank that waits for it says so
  int microbatch;
};
static _Thread_local struct sending *sending;
static _Thread_local int nsending, sending_room;

// A list of n, with room for one more.
static void *room_for_one(void *list, int n, int *room_of, size_t bytes)
{
  if (n < *room_of) return list;
  *room_of = *room_of ? 2 * *room_of : 8;
  void *more = realloc(list, (size_t)*room_of * bytes);
  if (!more) fail_call(__FILE__, __LINE__, "realloc", "no memory");
  return more;
}

// Whether the i-th has ended; then the last one is at its place.
static int test(int i, bool *ended)
{
  int over = 0, error = MPI_Test(&sending[i].request, &over, MPI_STATUS_IGNORE);
  *ended = over;
  if (over) sending[i] = sending[--nsending];
  return error;
}

// A rank that waits drives its own sends, too.
static int test_all(void)
{
  int error = MPI_SUCCESS;
  for (int i = nsending; i-- > 0 && error == MPI_SUCCESS;) {
    bool ended;
    error = test(i, &ended);
  }
  return error;
}

// One that sends a value that begins within these bytes, or NULL; at NULL: any value.
static const struct sending *find(const char *at, long bytes)
{
  for (int i = 0; i < nsending; i++) {
    const char *value = sending[i].value;
    if (!at || (value >= at && value < at + bytes)) return &sending[i];
  }
  return NULL;
}

static int await(const void *at, long bytes)
{
  const struct place *own = pending, *named = NULL;
  const int of = pending_microbatch;
  int error = MPI_SUCCESS, named_of = -1;
  for (const struct sending *s; error == MPI_SUCCESS && (s = find(at, bytes)); error = test_all()) {
    if (s->at == named && s->microbatch == named_of) continue;
    named = s->at;
    named_of = s->microbatch;
    begin_action_of(named, named_of);
  }
  if (named) begin_action_of(own, of);
  return error;
}

int await_sent(const void *value)
{
  return await(value, 1);
}

int await_sent_within(const void *begin, long bytes)
{
  return await(begin, bytes);
}

int await_all_sent(void)
{
  int error = await(NULL, 0);
#ifdef TPGEN_LIBRARY
  forget_transfers(); // the thread may end before the model
#endif
  return error;
}

int send_to(const void *value, int n, MPI_Datatype type, int to, int tag, MPI_Comm group)
{
  sending = room_for_one(sending, nsending, &sending_room, sizeof *sending);
  struct sending *s = &sending[nsending++];
  s->value = value;
  s->at = pending;
  s->microbatch = pending_microbatch;
  return MPI_Isend(value, n, type, to, tag, group, &s->request);
}

// The receives that are posted and not awaited.
struct receiving {
  const void *value;
  MPI_Request request;
};
static _Thread_local struct receiving *receiving;
static _Thread_local int nreceiving, receiving_room;

int post_receive(void *value, int n, MPI_Datatype type, int from, int tag, MPI_Comm group)
{
  receiving = room_for_one(receiving, nreceiving, &receiving_room, sizeof *receiving);
  struct receiving *r = &receiving[nreceiving++];
  r->value = value;
  return MPI_Irecv(value, n, type, from, tag, group, &r->request);
}

int await_received(const void *value)
{
  int i = 0, there = 0, error = MPI_SUCCESS;
  while (i < nreceiving && receiving[i].value != value) i++;
  if (i == nreceiving) fail_call(__FILE__, __LINE__, "await_received", "no receive was posted");
  while (error == MPI_SUCCESS && !there) {
    error = MPI_Test(&receiving[i].request, &there, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS && !there) error = test_all();
  }
  receiving[i] = receiving[--nreceiving];
  return error;
}

int receive_from(void *value, int n, MPI_Datatype type, int from, int tag, MPI_Comm group)
{
  int error = post_receive(value, n, type, from, tag, group);
  return error == MPI_SUCCESS ? await_received(value) : error;
}

void forget_transfers(void)
{
  free(sending);
  free(receiving);
  sending = NULL;
  receiving = NULL;
  nsending = sending_room = nreceiving = receiving_room = 0;
}
