/* The process that reads a plan: what it can still do, tested from inside. */
#include "lua/lua.h"
#include "function_passes/function_passes.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

struct options options;

/* Under a sanitizer the kernel's filter is left out: it would refuse the sanitizer's own calls. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FILTERED = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
enum { FILTERED = 0 };
#else
enum { FILTERED = 1 };
#endif
#else
enum { FILTERED = 1 };
#endif

/* Written inside, read outside: in the arena, which both see. */
static struct {
  bool ran, opened, created, connected, forked, signalled, executable, has_memory;
} * found;

static void try_everything(void)
{
  found->opened = open("/etc/passwd", O_RDONLY) >= 0;
  found->created = open("escaped", O_WRONLY | O_CREAT, 0600) >= 0;
  found->connected = socket(AF_INET, SOCK_STREAM, 0) >= 0;
  if (FILTERED) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    found->forked = child > 0;
    found->signalled = kill(getppid(), 0) == 0;
    found->executable =
        mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
  }
  char *memory = malloc(8 << 20);
  found->has_memory = memory != NULL;
  if (memory) memset(memory, 1, 8 << 20);
  free(memory);
  found->ran = true;
}

static void reaches_nothing(void **state)
{
  (void)state;
  found = alloc(sizeof *found);
  in_sandbox(try_everything);
  assert_true(found->ran);
  assert_true(found->has_memory);
  assert_false(found->opened);
  assert_false(found->created);
  assert_false(found->connected);
  assert_false(found->forked);
  assert_false(found->signalled);
  assert_false(found->executable);
}

/* How tpgen ends, as its caller sees it, when `body` runs in the sandbox. */
static int status_after(void (*body)(void))
{
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    freopen("/dev/null", "w", stderr);
    in_sandbox(body);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void does_nothing(void)
{
}

static void loops(void)
{
  for (volatile int i = 0;; i++) {
  }
}

static void sleeps(void)
{
  for (;;) pause();
}

static void crashes(void)
{
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
}

static void complains(void)
{
  plan_error(3, "it is wrong");
}

static void takes_half_a_second(void)
{
  while (clock() < CLOCKS_PER_SEC / 2) continue;
}

static void assert_exit(int status, int expected)
{
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), expected);
}

static void ends_whatever_happens(void **state)
{
  (void)state;
  assert_exit(status_after(does_nothing), 0);
  assert_exit(status_after(complains), 1);
  assert_exit(status_after(loops), 1);
  assert_exit(status_after(crashes), 1);
  assert_exit(status_after(sleeps), 1);
}

/* The time that a plan has is a processor's: others may have all of them for a while. */
static void may_come_late(void **state)
{
  (void)state;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    setpgid(0, 0);
    in_sandbox(takes_half_a_second);
    _exit(0);
  }
  setpgid(child, child);
  usleep(100000);
  assert_int_equal(kill(-child, SIGSTOP), 0);
  sleep(3);
  assert_int_equal(kill(-child, SIGCONT), 0);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_exit(status, 0);
}

/* Some launchers leave SIGCHLD ignored, and a blocked signal is inherited too. */
static void heeds_no_inherited_signals(void **state)
{
  (void)state;
  signal(SIGCHLD, SIG_IGN);
  signal(SIGXCPU, SIG_IGN);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  found->ran = false;
  in_sandbox(try_everything);
  assert_true(found->ran);
  sigprocmask(SIG_UNBLOCK, &all, NULL);
  signal(SIGCHLD, SIG_DFL);
  signal(SIGXCPU, SIG_DFL);
}

int main(void)
{
  graph_open();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reaches_nothing), cmocka_unit_test(ends_whatever_happens),
      cmocka_unit_test(may_come_late), cmocka_unit_test(heeds_no_inherited_signals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
