// Ranks that meet over TCP: processes of this test, on a port of this machine.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/wait.h>
#include "../../runtime/cuda/rendezvous.c"

enum { SECONDS = 20 };
static const char HASH[] = "0123456789abcdef";

// A port that nobody listens on, and that the system deals out to nobody; MASTER_PORT is the one
// before it.
static int free_port(void)
{
  static int tried;
  for (;;) {
    int port = 20001 + (getpid() * 16 + tried++) % 12000;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool is_free = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    if (is_free) return port;
  }
}

static void set_place(void)
{
  char port[8];
  snprintf(port, sizeof port, "%d", free_port() - 1);
  setenv("MASTER_ADDR", "localhost", 1);
  setenv("MASTER_PORT", port, 1);
}

// Somebody else who listens there.
static int listen_there(const struct place *place)
{
  struct failure why;
  struct addrinfo *all = look_up("127.0.0.1", place->port, &why);
  assert_non_null(all);
  int fd = listen_at(all);
  freeaddrinfo(all);
  return fd;
}

static struct identity identity(int rank, int size)
{
  return (struct identity){
      .launcher = "torchrun", .rank = rank, .size = size, .local_rank = rank, .local_size = size};
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
  assert_true(transmit(fd, noise, sizeof noise, now_ms() + 5000));
  assert_false(receive(fd, noise, 1, now_ms() + 5000)); // closed without a word
  close(fd);

  assert_int_equal(live(1, 2), 0);
  wait_for(first, 0);
}

// Says this where the job is to meet; gives the socket, and the answer: "" where there is none.
static int say(const char *greeting, char answer[MESSAGE])
{
  struct place place;
  struct failure why;
  char message[MESSAGE] = "";
  assert_true(find_place(&place, &why));
  int fd = connect_to(&place, now_ms() + SECONDS * 1000, &why);
  assert_true(fd >= 0);
  snprintf(message, sizeof message, "%s", greeting);
  assert_true(transmit(fd, message, MESSAGE, now_ms() + SECONDS * 1000));
  if (!receive(fd, answer, MESSAGE, now_ms() + SECONDS * 1000)) *answer = 0;
  return fd;
}

// Greetings that are all but right; the second one of a rank; and somebody who says nothing, for
// whom nobody waits for ever.
#define STRANGE " this job's token (TPGEN_TOKEN)"
static void odd_greetings(void **state)
{
  (void)state;
  static const struct {
    const char *greeting, *answer;
  } odd[] = {
      {"tpgen 1 0123456789abcdef 1 3", ""},
      {"tpgen 2 0123456789abcdef 1", ""},
      {"tpgen 2 0123456789abcdef 1 3", "who says to be rank 1 has not" STRANGE},
      {"tpgen 2 0123456789abcdef 1 3 =", "who says to be rank 1 has not" STRANGE},
      {"tpgen 2 0123456789abcdef 1 3 =0pen", "who says to be rank 1 has not" STRANGE},
      {"tpgen 2 0123456789abcdef 1 3 =open", "who says to be rank 1 has not" STRANGE},
      {"tpgen 2 0123456789abcdef 1 3 =opensesame", "who says to be rank 1 has not" STRANGE},
      {"tpgen 2 fedcba9876543210 1 3 =sesame", "who says to be rank 1 has not" STRANGE},
      {"tpgen 2 0123456789abcdef 0 3 =opens", "rank 0 of 3 is not of this job of 3"},
      {"tpgen 2 0123456789abcdef -1 3 =opens", "rank -1 of 3 is not of this job of 3"},
      {"tpgen 2 0123456789abcdef 3 3 =opens", "rank 3 of 3 is not of this job of 3"},
      {"tpgen 2 0123456789abcdef 1 2 =opens", "rank 1 of 2 is not of this job of 3"},
      {"tpgen 2 0123456789abcdef 1 3 =opens", "welcome =esame"},
      {"tpgen 2 0123456789abcdef 1 3 =opens",
       "rank 1 is here already: is another job on this port?"},
  };
  enum { ODD = sizeof odd / sizeof *odd };
  struct place place;
  struct failure why;
  char answer[MESSAGE], id[128];
  int fd[ODD], lowest;
  set_place();
  setenv("TPGEN_TOKEN", "opensesame", 1);
  pid_t first = start(0, 3);
  assert_true(find_place(&place, &why));
  int silent = connect_to(&place, now_ms() + SECONDS * 1000, &why);
  for (int i = 0; i < ODD; i++) {
    fd[i] = say(odd[i].greeting, answer);
    assert_string_equal(answer, odd[i].answer);
  }
  pid_t third = start(2, 3);
  int rank1 = fd[ODD - 2]; // what live() does of it
  assert_true(receive(rank1, id, sizeof id, now_ms() + SECONDS * 1000));
  for (int i = 0; i < 2; i++) {
    assert_true(transmit(rank1, &(int){i ? -1 : 100}, sizeof lowest, -1));
    assert_true(receive(rank1, &lowest, sizeof lowest, now_ms() + SECONDS * 1000));
    assert_int_equal(lowest, i ? -2 : 100);
  }
  long mine = 10, all[3];
  assert_true(transmit(rank1, &mine, sizeof mine, -1));
  assert_true(receive(rank1, all, sizeof all, now_ms() + SECONDS * 1000));
  wait_for(first, 0);
  wait_for(third, 0);
  for (int i = 0; i < ODD; i++) close(fd[i]);
  close(silent);
  unsetenv("TPGEN_TOKEN");
}

// More who say nothing than are heard at once: they keep nobody out, and take none of the time.
static void silent_strangers(void **state)
{
  (void)state;
  enum { STRANGERS = CALLERS + 20 };
  struct place place;
  struct failure why;
  int fd[STRANGERS];
  set_place();
  pid_t first = start(0, 2);
  assert_true(find_place(&place, &why));
  long long began = now_ms();
  for (int i = 0; i < STRANGERS; i++) {
    fd[i] = connect_to(&place, now_ms() + SECONDS * 1000, &why);
    assert_true(fd[i] >= 0);
  }
  assert_int_equal(live(1, 2), 0);
  assert_true(now_ms() - began < SECONDS * 1000 / 2); // one after the other it would be 168 s
  wait_for(first, 0);
  for (int i = 0; i < STRANGERS; i++) close(fd[i]);
}

// Somebody who says nothing is sent away while rank 0 waits for the others.
static void silent_ones_are_sent_away(void **state)
{
  (void)state;
  struct place place;
  struct failure why;
  char word;
  set_place();
  pid_t first = start(0, 2);
  assert_true(find_place(&place, &why));
  int fd = connect_to(&place, now_ms() + SECONDS * 1000, &why);
  assert_true(fd >= 0);
  assert_false(receive(fd, &word, 1, now_ms() + SECONDS * 1000 / 2));
  assert_int_equal(errno, ECONNRESET);
  close(fd);
  assert_int_equal(live(1, 2), 0);
  wait_for(first, 0);
}

// A rank that was hung up on without a word, by what had the port before, asks again.
static void asks_once_more(void **state)
{
  (void)state;
  struct place place;
  struct failure why;
  set_place();
  assert_true(find_place(&place, &why));
  pid_t second = start(1, 2); // which does not inherit the listener
  int listener = listen_there(&place);
  assert_true(ready(listener, POLLIN, now_ms() + SECONDS * 1000));
  close(accept(listener, NULL, NULL));
  close(listener);
  assert_int_equal(live(0, 2), 0);
  wait_for(second, 0);
}

// Who listens in rank 0's place, and says what a rank has said to it, is not believed.
static void wrong_rank_0(void **state)
{
  (void)state;
  static const char *const answers[] = {"welcome", "welcome =", "welcome =opens",
                                        "welcome =opensesame"};
  struct place place;
  struct meeting meeting;
  struct failure why;
  struct identity second = identity(1, 2);
  setenv("TPGEN_TOKEN", "opensesame", 1);
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    set_place();
    assert_true(find_place(&place, &why));
    int listener = listen_there(&place);
    pid_t child = fork();
    if (child == 0) {
      char text[MESSAGE] = "";
      bool came = ready(listener, POLLIN, now_ms() + SECONDS * 1000);
      int fd = accept(listener, NULL, NULL);
      bool greeted = came && receive(fd, text, MESSAGE, now_ms() + SECONDS * 1000);
      bool knows = strstr(text, "esame"); // the half that is an answer
      snprintf(text, sizeof text, "%s", answers[i]);
      _exit(greeted && !knows && transmit(fd, text, MESSAGE, -1) ? 0 : 1);
    }
    assert_false(meet_start(&meeting, &second, HASH, SECONDS, &why));
    assert_non_null(strstr(why.text, "has not this job's token (TPGEN_TOKEN)"));
    wait_for(child, 0);
    close(listener);
  }
  unsetenv("TPGEN_TOKEN");
}

// What stands for the token where there is none.
static void tokens(void **state)
{
  (void)state;
  char longest[2 * HALF + 2];
  struct token token;
  struct failure why;
  memset(longest, 'x', sizeof longest);
  longest[2 * HALF] = 0;
  setenv("TPGEN_TOKEN", longest, 1);
  assert_true(find_token(&token, &why));
  assert_int_equal(strlen(token.first) + strlen(token.second), 2 * HALF);
  static const char *const bad[] = {"a b", "a\n", "\303\244"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    setenv("TPGEN_TOKEN", bad[i], 1);
    assert_false(find_token(&token, &why));
  }
  longest[2 * HALF] = 'x';
  longest[2 * HALF + 1] = 0;
  setenv("TPGEN_TOKEN", longest, 1);
  assert_false(find_token(&token, &why));
  assert_non_null(strstr(why.text, "TPGEN_TOKEN should have at most 128 letters"));
  setenv("TPGEN_TOKEN", "", 1);
  assert_true(find_token(&token, &why));
  assert_string_equal(token.first, "");
  setenv("SLURM_JOB_ID", "1234", 1);
  setenv("SLURM_STEP_ID", "5", 1);
  assert_true(find_token(&token, &why));
  assert_string_equal(token.first, "123");
  assert_string_equal(token.second, "4.5");
  setenv("TORCHELASTIC_RUN_ID", "my run", 1);
  assert_true(find_token(&token, &why));
  assert_string_equal(token.first, "my_");
  unsetenv("TORCHELASTIC_RUN_ID");
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_STEP_ID");
  unsetenv("TPGEN_TOKEN");
}

// A rank that has met and says nothing more is not waited for without end.
static void agreements_end(void **state)
{
  (void)state;
  struct meeting meeting;
  struct failure why;
  struct identity first = identity(0, 2);
  int lowest, all[2];
  set_place();
  pid_t child = fork();
  if (child == 0) {
    struct identity second = identity(1, 2);
    if (!meet_start(&meeting, &second, HASH, SECONDS, &why)) _exit(1);
    _exit(receive(meeting.peers[0], &lowest, sizeof lowest, now_ms() + SECONDS * 1000) ? 1 : 0);
  }
  assert_true(meet_start(&meeting, &first, HASH, SECONDS, &why));
  assert_int_equal(meeting.timeout, SECONDS);
  meeting.timeout = 1;
  assert_false(meet_lowest(&meeting, 0, &lowest, &why));
  assert_non_null(strstr(why.text, "rank 1 has not answered for 1 s"));
  assert_false(meet_gather(&meeting, &lowest, sizeof lowest, all, &why));
  assert_non_null(strstr(why.text, "rank 1 has not answered for 1 s"));
  meet_stop(&meeting);
  wait_for(child, 0);
}

// Rank 0 says it at once where a rank has come and gone again.
static void gone_before_all_have_come(void **state)
{
  (void)state;
  struct meeting meeting;
  struct failure why;
  struct identity first = identity(0, 3);
  set_place();
  pid_t child = fork();
  if (child == 0) {
    struct identity second = identity(1, 3);
    _exit(meet_start(&meeting, &second, HASH, SECONDS, &why) ? 0 : 1);
  }
  long long began = now_ms();
  assert_false(meet_start(&meeting, &first, HASH, 10 * SECONDS, &why));
  assert_non_null(strstr(why.text, "rank 1 has gone away while others were awaited"));
  assert_true(now_ms() - began < 5 * SECONDS * 1000);
  wait_for(child, 0);
}

// At which addresses rank 0 can be reached: those that MASTER_ADDR names, and no others.
static bool is_reached(const char *host, const struct place *place)
{
  struct failure why;
  struct addrinfo *all = look_up(host, place->port, &why);
  int fd = all ? try_address(all, now_ms() + 1000) : -1;
  if (all) freeaddrinfo(all);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static void listens_at_the_given_address(void **state)
{
  (void)state;
  static const struct {
    const char *given;
    bool alone, elsewhere;
  } doors[] = {{"localhost", true, false},
               {"localhost", false, false},
               {"127.0.0.1", false, false},
               {"203.0.113.77", true, true} /* of no machine: an address that is translated */};
  struct place place;
  struct failure why;
  for (size_t i = 0; i < sizeof doors / sizeof *doors; i++) {
    struct meeting meeting = {.size = 2};
    struct door door = {.meeting = &meeting};
    set_place();
    setenv("MASTER_ADDR", doors[i].given, 1);
    assert_true(find_place(&place, &why));
    assert_true(open_door(&door, &place, doors[i].alone, &why));
    assert_true(is_reached("127.0.0.1", &place));
    assert_int_equal(is_reached("127.0.0.2", &place), doors[i].elsewhere);
    close_door(&door);
  }
}

static void deadlines(void **state)
{
  (void)state;
  struct meeting meeting;
  struct failure why;
  struct place place;
  struct identity first = identity(0, 3), second = identity(1, 3);
  int before = dup(0); // the next one that is free
  close(before);
  set_place();
  assert_false(meet_start(&meeting, &first, HASH, 1, &why));
  assert_non_null(strstr(why.text, "these ranks have not come: 1, 2"));
  assert_null(strstr(why.text, "turned away"));
  assert_false(meet_start(&meeting, &second, HASH, 1, &why));
  assert_non_null(strstr(why.text, "cannot reach rank 0 at localhost"));

  assert_true(find_place(&place, &why));
  int silent = listen_there(&place); // the system lets callers in, and nobody answers
  assert_int_equal(silent, before);
  assert_false(meet_start(&meeting, &second, HASH, 1, &why));
  assert_non_null(strstr(why.text, "does not answer as rank 0"));
  close(silent);
  int after = dup(0);
  assert_int_equal(after, before); // nothing is left open
  close(after);
}

// Whoever waits in vain says whom it has turned away.
static void refusals_are_reported(void **state)
{
  (void)state;
  struct meeting meeting;
  struct failure why;
  struct identity first = identity(0, 2), second = identity(1, 2);
  set_place();
  pid_t child = fork();
  if (child == 0) _exit(meet_start(&meeting, &second, "fedcba9876543210", SECONDS, &why) ? 1 : 0);
  assert_false(meet_start(&meeting, &first, HASH, 1, &why));
  assert_non_null(strstr(why.text, "these ranks have not come: 1; turned away: rank 1 carries"));
  wait_for(child, 0);
}

// The deadline is for connecting: what one sends and another does not take yet is no reason to give
// up, as long as it takes.
static void no_deadline_once_connected(void **state)
{
  (void)state;
  enum { LARGE = 1 << 24, LIMIT_MS = 200 }; // more than sockets keep
  static char bytes[LARGE];
  struct place place;
  struct failure why;
  set_place();
  assert_true(find_place(&place, &why));
  int listener = listen_there(&place), little = 4096;
  setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
  pid_t child = fork();
  if (child == 0) {
    bool came = ready(listener, POLLIN, now_ms() + SECONDS * 1000);
    int fd = accept(listener, NULL, NULL);
    usleep(3 * LIMIT_MS * 1000);
    _exit(came && receive(fd, bytes, LARGE, -1) ? 0 : 1);
  }
  int fd = connect_to(&place, now_ms() + LIMIT_MS, &why);
  assert_true(fd >= 0);
  assert_true(transmit(fd, bytes, LARGE, -1));
  wait_for(child, 0);
  close(fd);
  close(listener);
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
  struct place place;
  setenv("MASTER_PORT", "65534", 1);
  assert_true(find_place(&place, &why));
  assert_string_equal(place.port, "65535"); // MASTER_PORT itself is the launcher's
  unsetenv("MASTER_PORT");
  assert_true(find_place(&place, &why));
  assert_string_equal(place.port, "29501");
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
  int fd = listen_there(&place);
  assert_true(fd >= 0);
  assert_false(meet_start(&meeting, &first, HASH, 1, &why));
  assert_non_null(strstr(why.text, "set MASTER_PORT to another"));
  close(fd);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_meet),
      cmocka_unit_test(strangers_are_turned_away),
      cmocka_unit_test(odd_greetings),
      cmocka_unit_test(silent_strangers),
      cmocka_unit_test(silent_ones_are_sent_away),
      cmocka_unit_test(asks_once_more),
      cmocka_unit_test(wrong_rank_0),
      cmocka_unit_test(tokens),
      cmocka_unit_test(agreements_end),
      cmocka_unit_test(gone_before_all_have_come),
      cmocka_unit_test(listens_at_the_given_address),
      cmocka_unit_test(deadlines),
      cmocka_unit_test(refusals_are_reported),
      cmocka_unit_test(no_deadline_once_connected),
      cmocka_unit_test(the_dead_are_noticed),
      cmocka_unit_test(bad_places),
      cmocka_unit_test(port_in_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
