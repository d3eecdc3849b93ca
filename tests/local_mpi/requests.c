/* Messages that a rank does not wait for at once. Those between two ranks share a ring: each waits
   for those before it. */
#include "mpi.h"

#include <stdio.h>
#include <stdlib.h>

#include "comms.h"
#include "rings.h"

enum { SEND, RECEIVE };

struct request {
  bool open, until_read; /* until_read: it is over when the peer has all of it */
  struct transfer transfer;
  size_t place; /* how many messages of its ring are before it */
  size_t end;   /* what the ring has written with it */
};

static struct request *requests;
static int nrequests, nopen;
static size_t begun[2][MOST_RANKS], over[2][MOST_RANKS];

static struct request *new_request(MPI_Request *number)
{
  int i = 0;
  while (i < nrequests && requests[i].open) i++;
  if (i == nrequests) {
    requests = realloc(requests, (size_t)++nrequests * sizeof *requests);
    if (!requests) ranks_misuse("a request", "no memory", nrequests, 0);
  }
  nopen++;
  *number = i;
  return &requests[i];
}

int ranks_open_requests(const struct comm *with)
{
  int n = 0;
  for (int i = 0; i < nrequests; i++)
    for (int m = 0; m < with->n && requests[i].open; m++)
      n += with->world[m] == requests[i].transfer.peer;
  return n;
}

static int start(int which, const void *from, void *to, int n, MPI_Datatype type, int peer, int tag,
                 MPI_Comm comm, bool until_read, MPI_Request *number)
{
  static const char none;
  char call[16];
  const struct comm *in = ranks_comm("a message", comm);
  struct request *r = new_request(number);
  snprintf(call, sizeof call, "message, tag %d", tag);
  const int world = in->world[peer];
  *r = (struct request){.open = true, .until_read = until_read};
  r->transfer = ranks_transfer(call, in->context, world, which == SEND && !from ? &none : from, to,
                               (size_t)n * ranks_bytes_of(type));
  r->place = begun[which][world]++;
  return MPI_SUCCESS;
}

int MPI_Isend(const void *from, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
  return start(SEND, from, NULL, n, type, peer, tag, comm, false, request);
}

int MPI_Issend(const void *from, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
               MPI_Request *request)
{
  return start(SEND, from, NULL, n, type, peer, tag, comm, true, request);
}

int MPI_Irecv(void *to, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
  return start(RECEIVE, NULL, to, n, type, peer, tag, comm, false, request);
}

/* Whether the request has come to its end, or at least has moved. */
static bool progresses(struct request *r)
{
  struct transfer *t = &r->transfer;
  const int which = t->sends ? SEND : RECEIVE;
  if (ranks_is_over(t)) {
    const bool lost = ranks_has_ended(t->peer); /* asked first: it may have read all and ended */
    if (ranks_read(t->peer) >= r->end) return true;
    if (lost) ranks_misuse("MPI_Test", "a rank has ended", t->peer, 0);
    return false;
  }
  if (over[which][t->peer] != r->place || !ranks_move(t, "MPI_Test")) return false;
  if (ranks_is_over(t)) {
    over[which][t->peer]++;
    r->end = t->sends && r->until_read ? ranks_written(t->peer) : 0;
  }
  return true;
}

/* A program asks for each of its requests in turn. If none has moved since the last news, it sleeps
   here until there are some. */
int MPI_Test(MPI_Request *request, int *is_there, MPI_Status *status)
{
  static uint32_t heard;
  static int vain;
  (void)status;
  *is_there = *request == MPI_REQUEST_NULL;
  if (*is_there) return MPI_SUCCESS;
  struct request *r = &requests[*request];
  const uint32_t news = ranks_news();
  if (progresses(r) || news != heard) vain = 0, heard = news;
  *is_there = ranks_is_over(&r->transfer) && ranks_read(r->transfer.peer) >= r->end;
  if (*is_there) {
    r->open = false, nopen--;
    *request = MPI_REQUEST_NULL;
  } else if (++vain > 2 * nopen) {
    ranks_sleep(heard);
  }
  return MPI_SUCCESS;
}
