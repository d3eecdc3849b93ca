/* The small MPI of the tests (local_mpi): messages match by their tags, in whatever order they are
   sent, beside collectives; and ranks that do not fit each other end with a message. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mpi.h"
#include "ranks.h"

enum { RANKS = 3, MANY = 100000 };

static int rank;

static void wait_for(MPI_Request *request)
{
  int is_over = 0;
  while (!is_over) MPI_Test(request, &is_over, MPI_STATUS_IGNORE);
}

static MPI_Request send(const void *from, int n, int to, int tag)
{
  MPI_Request r;
  MPI_Isend(from, n, MPI_INT, to, tag, MPI_COMM_WORLD, &r);
  return r;
}

static MPI_Request receive(void *to, int n, int from, int tag)
{
  MPI_Request r;
  MPI_Irecv(to, n, MPI_INT, from, tag, MPI_COMM_WORLD, &r);
  return r;
}

static int all_sum(int mine)
{
  int sum;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

/* Ends with status 7 if it does not hold. */
static void hold(int fact)
{
  if (!fact) _exit(7);
}

/* --------------------------------------------------------------------------- what must succeed */

/* Large messages of two tags, the later one first; a collective between. */
static void two_tags(void)
{
  static int a[MANY], b[MANY];
  MPI_Request r[2];
  for (int i = 0; i < MANY; i++) a[i] = rank == 0 ? i : 0, b[i] = rank == 0 ? -i : 0;
  if (rank == 0) {
    r[0] = send(a, MANY, 1, 5);
    r[1] = send(b, MANY, 1, 6);
    hold(all_sum(rank) == 3);
  } else if (rank == 1) {
    r[0] = receive(b, MANY, 0, 6);
    hold(all_sum(rank) == 3);
    wait_for(&r[0]);
    for (int i = 0; i < MANY; i++) hold(a[i] == 0 && b[i] == -i);
    r[0] = MPI_REQUEST_NULL;
    r[1] = receive(a, MANY, 0, 5);
  } else {
    hold(all_sum(rank) == 3);
    return;
  }
  wait_for(&r[0]);
  wait_for(&r[1]);
  for (int i = 0; i < MANY; i++) hold(a[i] == i && b[i] == -i);
}

/* Two of one tag come in their order. A rank sends to itself. A group of its own has tags of its
   own. */
static void one_tag(void)
{
  int one = 1, two = 2, got[3] = {0}, from = (rank + RANKS - 1) % RANKS, to = (rank + 1) % RANKS;
  MPI_Comm other;
  MPI_Request r[6];
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Isend(&rank, 1, MPI_INT, to, 9, other, &r[0]);
  r[1] = send(&one, 1, to, 9);
  r[2] = send(&two, 1, to, 9);
  r[3] = receive(&got[0], 1, from, 9);
  r[4] = receive(&got[1], 1, from, 9);
  MPI_Irecv(&got[2], 1, MPI_INT, from, 9, other, &r[5]);
  for (int i = 6; i-- > 0;) wait_for(&r[i]);
  hold(got[0] == 1 && got[1] == 2 && got[2] == from);
  r[0] = send(&two, 1, rank, 1);
  r[1] = receive(&got[0], 1, rank, 1);
  wait_for(&r[0]);
  wait_for(&r[1]);
  hold(got[0] == 2 && all_sum(1) == RANKS);
}

/* ---------------------------------------------------------------------------- what must not be */

static void other_tag(void)
{
  int x = 0;
  MPI_Request r = rank == 0 ? send(&x, 1, 1, 5) : rank == 1 ? receive(&x, 1, 0, 6) : -1;
  wait_for(&r);
}

static void other_count(void)
{
  int x[2] = {0};
  MPI_Request r = rank == 0 ? send(x, 2, 1, 5) : rank == 1 ? receive(x, 1, 0, 5) : -1;
  wait_for(&r);
}

static void unreceived(void)
{
  static int x;
  if (rank == 0) send(&x, 1, 1, 5);
}

static void unsent(void)
{
  static int x;
  if (rank == 1) receive(&x, 1, 0, 5);
}

static void waits_for_the_end(void)
{
  int x;
  MPI_Request r = receive(&x, 1, 0, 5);
  if (rank == 0) _exit(0);
  wait_for(&r);
}

/* Sends that wait for their receives, around. */
static void around(void)
{
  int x = 0;
  MPI_Request r = send(&x, 1, (rank + 1) % RANKS, 5);
  wait_for(&r);
  r = receive(&x, 1, (rank + RANKS - 1) % RANKS, 5);
  wait_for(&r);
}

static void other_collective(void)
{
  int x = 0, all[RANKS];
  if (rank == 2)
    MPI_Allgather(&x, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  else
    all_sum(0);
}

static void message_and_collective(void)
{
  int x = 0;
  MPI_Request r = rank == 1 ? receive(&x, 1, 0, 5) : -1;
  if (rank == 1)
    wait_for(&r);
  else
    all_sum(0);
}

/* ------------------------------------------------------------------------------------ the ranks */

static _Noreturn void run_rank(int i, void (*body)(void))
{
  ranks_become(rank = i);
  alarm(60);
  MPI_Init(NULL, NULL);
  body();
  MPI_Finalize();
  _exit(0);
}

/* Runs the ranks; returns the first status that is not 0, with what they wrote. */
static int run(void (*body)(void), char *said, size_t room)
{
  int ends[2], status, first = 0;
  pid_t of[RANKS];
  assert_int_equal(pipe(ends), 0);
  ranks_share(RANKS);
  for (int i = 0; i < RANKS; i++) {
    of[i] = fork();
    assert_true(of[i] >= 0);
    if (of[i] > 0) continue;
    dup2(ends[1], STDERR_FILENO);
    run_rank(i, body);
  }
  close(ends[1]);
  for (int left = RANKS; left > 0; left--) {
    const pid_t ended = wait(&status);
    const int how = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    for (int i = 0; i < RANKS; i++)
      if (of[i] == ended) ranks_lost(i, how);
    if (!first) first = how;
  }
  size_t n = 0;
  for (ssize_t got; n < room - 1 && (got = read(ends[0], said + n, room - 1 - n)) > 0;)
    n += (size_t)got;
  said[n] = '\0';
  close(ends[0]);
  return first;
}

static void test_right(void **state)
{
  char said[4096];
  (void)state;
  for (int i = 0; i < 20; i++) {
    assert_int_equal(run(two_tags, said, sizeof said), 0);
    assert_int_equal(run(one_tag, said, sizeof said), 0);
    assert_string_equal(said, "");
  }
}

static void refused(void (*body)(void), const char *with)
{
  char said[4096];
  if (run(body, said, sizeof said) != EXIT_FAILURE || !strstr(said, with))
    fail_msg("not '%s', but: %s", with, said);
}

static void test_wrong(void **state)
{
  (void)state;
  refused(other_tag, "it waits for a message, tag 6, 4 bytes, from rank 0 on group 0; it has not "
                     "asked for a message, tag 5, 4 bytes, from rank 0 on group 0");
  refused(other_count, "has 4 bytes from rank 0, which calls MPI_message on group 0 with 8 bytes");
  refused(unreceived, "messages are not over; it sends a message, tag 5, 4 bytes, to rank 1");
  refused(unreceived, "messages are not over; it has not asked for a message, tag 5");
  refused(unsent, "messages are not over; it waits for a message, tag 5, 4 bytes, from rank 0");
  refused(waits_for_the_end, "rank 0 has ended; it waits for a message, tag 5");
  refused(around, "all ranks wait; ");
  refused(other_collective, "which calls MPI_All");
  refused(message_and_collective, "all ranks wait");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_wrong)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
