// What stages of a pipeline send each other, by MPI.
#include "cpu_stages.h"

#include "program.h"

#include <stdbool.h>
#include <stdlib.h>

// What has been sent and not awaited: a program has few values that it sends, each in a slot of its
// micro-batch.
struct sending {
  const void *value;
  MPI_Request request;
  const struct place *at; // its action: a rank that waits for it says so
  int microbatch;
};
static _Thread_local struct sending *sending;
static _Thread_local int nsending, room;

// Whether the i-th has ended; then the last one is at its place.
static int test(int i, bool *ended)
{
  int over = 0, error = MPI_Test(&sending[i].request, &over, MPI_STATUS_IGNORE);
  *ended = over;
  if (over) sending[i] = sending[--nsending];
  return error;
}

// A rank that waits moves what it has sent, too.
static int test_all(void)
{
  int error = MPI_SUCCESS;
  for (int i = nsending; i-- > 0 && error == MPI_SUCCESS;) {
    bool ended;
    error = test(i, &ended);
  }
  return error;
}

// One that sends the value, or NULL; NULL: any value.
static const struct sending *find(const void *value)
{
  for (int i = 0; i < nsending; i++)
    if (!value || sending[i].value == value) return &sending[i];
  return NULL;
}

static int await(const void *value)
{
  const struct place *own = pending, *told = NULL;
  const int of = pending_microbatch;
  int error = MPI_SUCCESS, told_of = -1;
  for (const struct sending *s; error == MPI_SUCCESS && (s = find(value)); error = test_all()) {
    if (s->at == told && s->microbatch == told_of) continue;
    told = s->at;
    told_of = s->microbatch;
    begin_action_of(told, told_of);
  }
  if (told) begin_action_of(own, of);
  return error;
}

int await_sent(const void *value)
{
  return await(value);
}

int await_all_sent(void)
{
  return await(NULL);
}

int send_to(const void *value, int n, MPI_Datatype type, int to, int tag, MPI_Comm group)
{
  int error = await_sent(value);
  if (error != MPI_SUCCESS) return error;
  if (nsending == room) {
    room = room ? 2 * room : 8;
    struct sending *more = realloc(sending, (size_t)room * sizeof *more);
    if (!more) fail_call(__FILE__, __LINE__, "realloc", "no memory");
    sending = more;
  }
  struct sending *s = &sending[nsending++];
  s->value = value;
  s->at = pending;
  s->microbatch = pending_microbatch;
  return MPI_Isend(value, n, type, to, tag, group, &s->request);
}

int receive_from(void *value, int n, MPI_Datatype type, int from, int tag, MPI_Comm group)
{
  MPI_Request request;
  int there = 0;
  int error = MPI_Irecv(value, n, type, from, tag, group, &request);
  while (error == MPI_SUCCESS && !there) {
    error = MPI_Test(&request, &there, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS && !there) error = test_all();
  }
  return error;
}
