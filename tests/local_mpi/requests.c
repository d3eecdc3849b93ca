/* Messages that a rank does not wait for at once. */
#include "mpi.h"

#include <stdio.h>
#include <stdlib.h>

#include "comms.h"
#include "messages.h"
#include "rings.h"

static struct message **requests; /* NULL: not in use */
static int nrequests, nopen;

static struct message *new_request(MPI_Request *number)
{
  int i = 0;
  while (i < nrequests && requests[i]) i++;
  if (i == nrequests) requests = realloc(requests, (size_t)++nrequests * sizeof(*requests));
  if (!requests || !(requests[i] = calloc(1, sizeof **requests)))
    ranks_misuse("a request", "no memory", nrequests, 0);
  nopen++;
  *number = i;
  return requests[i];
}

static int start(bool sends, const void *from, void *to, int n, MPI_Datatype type, int peer,
                 int tag, MPI_Comm comm, MPI_Request *number)
{
  const struct comm *in = ranks_comm("a message", comm);
  struct message *m = new_request(number);
  *m = (struct message){.sends = sends,
                        .call = "message",
                        .context = in->context,
                        .tag = tag,
                        .peer = in->world[peer],
                        .bytes = (size_t)n * ranks_bytes_of(type),
                        .from = from,
                        .to = to};
  ranks_begin_message(m);
  return MPI_SUCCESS;
}

int MPI_Isend(const void *from, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
  return start(true, from, NULL, n, type, peer, tag, comm, request);
}

int MPI_Issend(const void *from, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
               MPI_Request *request)
{
  return start(true, from, NULL, n, type, peer, tag, comm, request);
}

int MPI_Irecv(void *to, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
  return start(false, NULL, to, n, type, peer, tag, comm, request);
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
  struct message *m = requests[*request];
  const uint32_t news = ranks_news();
  const bool had_ended = ranks_has_ended(m->peer);
  const bool moved = ranks_progress();
  if (moved || m->over || news != heard) vain = 0, heard = news;
  if (!moved) ranks_expect("MPI_Test", m, had_ended);
  if ((*is_there = m->over)) {
    free(m);
    requests[*request] = NULL;
    nopen--;
    *request = MPI_REQUEST_NULL;
  } else if (++vain > 2 * nopen) {
    ranks_wait_for_news("MPI_Test", heard);
  }
  return MPI_SUCCESS;
}
