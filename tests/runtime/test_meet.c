// Ranks that meet over TCP: processes of this test, on a port of this machine.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/wait.h>
#include "../../runtime/meet.c"

enum { SECONDS = 20 };
static const char HASH[] = "0123456789abcdef";

// A port that nobody listens on; MASTER_PORT is the one before it.
static int free_port(void)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

static void set_place(void)
{
  char port[8];
  snprintf(port, sizeof port, "%d", free_port() - 1);
  setenv("MASTER_ADDR", "localhost", 1);
  setenv("MASTER_PORT", port, 1);
}

static struct identity identity(int rank, int size)
{
  return (struct identity){.launcher = "torchrun", .rank = rank, .size = size};
}

// A rank's life: meets, agrees three times, and says by its status whether all was right.
static int live(int rank, int size)
{
  struct meeting meeting;
  struct failure why;
  struct identity me = identity(rank, size);
  char id[128] = "";
  int lowest;
  if (!meet_start(&meeting, &me, HASH, SECONDS, &why)) return 1;
  if (rank == 0) memset(id, 'x', sizeof id);
  if (!meet_share(&meeting, id, sizeof id, &why) || id[0] != 'x' || id[127] != 'x') return 2;
  if (!meet_lowest(&meeting, 100 + (rank + 2) % size, &lowest, &why) || lowest != 100) return 3;
  if (!meet_lowest(&meeting, -rank, &lowest, &why) || lowest != 1 - size) return 4;
  long mine = 10 * rank, all[8];
  if (!meet_gather(&meeting, &mine, sizeof mine, all, &why)) return 5;
  for (int r = 0; r < size; r++)
    if (all[r] != 10 * r) return 6;
  meet_stop(&meeting);
  return 0;
}

static pid_t start(int rank, int size)
{
  pid_t child = fork();
  if (child == 0) _exit(live(rank, size));
  return child;
}

static void wait_for(pid_t child, int status)
{
  int got;
  assert_int_equal(waitpid(child, &got, 0), child);
  assert_true(WIFEXITED(got));
  assert_int_equal(WEXITSTATUS(got), status);
}

static void all_meet(void **state)
{
  (void)state;
  for (int size = 1; size <= 5; size++) {
    pid_t children[5];
    set_place();
    for (int r = size - 1; r >= 0; r--) children[r] = start(r, size); // rank 0 last
    for (int r = 0; r < size; r++) wait_for(children[r], 0);
  }
}

// A stale program, a rank of another job, and bytes that are no greeting: turned away, each with a
// reason, while the job itself meets.
static void strangers_are_turned_away(void **state)
{
  (void)state;
  struct place place;
  struct meeting meeting;
  struct failure why;
  struct identity second = identity(1, 2), far = identity(7, 9);
  set_place();
  pid_t first = start(0, 2);
  assert_true(find_place(&place, &why));

  assert_false(meet_start(&meeting, &second, "fedcba9876543210", SECONDS, &why));
  assert_non_null(strstr(why.text, "rank 1 carries the program fedcba9876543210, but rank 0 "
                                   "carries 0123456789abcdef"));
  assert_false(meet_start(&meeting, &far, HASH, SECONDS, &why));
  assert_non_null(strstr(why.text, "rank 7 of 9 is not of this job of 2"));
  int fd = connect_to(&place, now_ms() + 5000, &why);
  char noise[MESSAGE];
  memset(noise, '%', sizeof noise);
  assert_true(transmit(fd, noise, sizeof noise));
  assert_false(receive(fd, noise, 1, now_ms() + 5000)); // closed without a word
  close(fd);

  assert_int_equal(live(1, 2), 0);
  wait_for(first, 0);
}

static void deadlines(void **state)
{
  (void)state;
  struct meeting meeting;
  struct failure why;
  struct identity first = identity(0, 3), second = identity(1, 3);
  set_place();
  assert_false(meet_start(&meeting, &first, HASH, 1, &why));
  assert_non_null(strstr(why.text, "these ranks have not come: 1, 2"));
  assert_false(meet_start(&meeting, &second, HASH, 1, &why));
  assert_non_null(strstr(why.text, "cannot reach rank 0 at localhost"));
}

static void the_dead_are_noticed(void **state)
{
  (void)state;
  struct meeting meeting;
  struct failure why;
  struct identity first = identity(0, 2);
  int lowest;
  set_place();
  pid_t child = fork();
  if (child == 0) {
    struct identity second = identity(1, 2);
    bool met = meet_start(&meeting, &second, HASH, SECONDS, &why);
    _exit(met && meet_share(&meeting, &lowest, sizeof lowest, &why) ? 0 : 1); // hears, then dies
  }
  assert_true(meet_start(&meeting, &first, HASH, SECONDS, &why));
  assert_int_equal(meet_lost(&meeting), -1);
  assert_true(meet_share(&meeting, &(int){1}, sizeof lowest, &why));
  for (int i = 0; i < 500 && meet_lost(&meeting) < 0; i++) usleep(10000);
  assert_int_equal(meet_lost(&meeting), 1);
  assert_false(meet_lowest(&meeting, 0, &lowest, &why));
  assert_non_null(strstr(why.text, "rank 1 has gone away"));
  meet_stop(&meeting);
  wait_for(child, 0);
}

static void bad_places(void **state)
{
  (void)state;
  static const char *const ports[] = {"x", "0", "65535", "-1", "1x", "99999999999"};
  struct meeting meeting;
  struct failure why;
  struct identity first = identity(0, 2);
  setenv("MASTER_ADDR", "localhost", 1);
  for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
    setenv("MASTER_PORT", ports[i], 1);
    assert_false(meet_start(&meeting, &first, HASH, 1, &why));
    assert_non_null(strstr(why.text, "MASTER_PORT is"));
  }
  unsetenv("MASTER_ADDR");
  assert_false(meet_start(&meeting, &first, HASH, 1, &why));
  assert_non_null(strstr(why.text, "MASTER_ADDR is not set"));
}

static void port_in_use(void **state)
{
  (void)state;
  struct meeting meeting;
  struct failure why;
  struct place place;
  struct identity first = identity(0, 2);
  set_place();
  assert_true(find_place(&place, &why));
  int fd = listen_on(place.port, 1, &why);
  assert_true(fd >= 0);
  assert_false(meet_start(&meeting, &first, HASH, 1, &why));
  assert_non_null(strstr(why.text, "set MASTER_PORT to another"));
  close(fd);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_meet),   cmocka_unit_test(strangers_are_turned_away),
      cmocka_unit_test(deadlines),  cmocka_unit_test(the_dead_are_noticed),
      cmocka_unit_test(bad_places), cmocka_unit_test(port_in_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
