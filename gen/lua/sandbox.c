/* sandbox.c: the process in which a plan is read.

   A plan is a program, and it may be hostile. It runs in a child of tpgen that has given up files,
   processes and network before the first line, and that always ends soon, even in a loop inside the
   pattern matcher, where no hook of Lua's runs. The graph that it builds is in the arena, which
   parent and child share. */
#include "lua/lua.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) ||                         \
    __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(SANITIZED)
#define HAS_FILTER 1
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#endif

/* Limits of processor time, which a busy machine may give late, and of wall time, which ends a
   process that waits forever if there is no filter. */
enum { SECONDS = 1, WALL_SECONDS = 30 };

struct sandbox *sandbox;

/* -------------------------------------------------------------------------- the kernel's filter */

#ifdef HAS_FILTER

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

enum { REFUSE = SECCOMP_RET_ERRNO | EPERM };

/* Calls for memory, time, an abort and the end. */
static const unsigned harmless[] = {SYS_brk,          SYS_munmap,         SYS_mremap,
                                    SYS_madvise,      SYS_futex,          SYS_clock_gettime,
                                    SYS_gettimeofday, SYS_exit,           SYS_exit_group,
                                    SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_rt_sigaction,
                                    SYS_getpid,       SYS_gettid};

static struct sock_filter filter[96];
static unsigned short filter_length;

static void instruct(unsigned short code, unsigned k, int if_true, int if_false)
{
  filter[filter_length++] = (struct sock_filter){
      .code = code, .jt = (unsigned char)if_true, .jf = (unsigned char)if_false, .k = k};
}

/* Loads the low half of an argument of the call. */
static void load_argument(unsigned i)
{
  instruct(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, args) + 8 * i, 0, 0);
}

static void add_verdict(unsigned verdict)
{
  instruct(BPF_RET | BPF_K, verdict, 0, 0);
}

/* The call `number` is allowed if its argument i passes one test; else it is refused. */
static void allow_where(unsigned number, unsigned i, unsigned short test, unsigned k)
{
  instruct(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
  load_argument(i);
  instruct(BPF_JMP | test | BPF_K, k, 0, 1);
  add_verdict(SECCOMP_RET_ALLOW);
  add_verdict((unsigned)REFUSE);
}

static void build_filter(void)
{
  instruct(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, arch), 0, 0);
  instruct(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
  add_verdict((unsigned)REFUSE);
  instruct(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, nr), 0, 0);
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
    instruct(BPF_JMP | BPF_JEQ | BPF_K, harmless[i], 0, 1);
    add_verdict(SECCOMP_RET_ALLOW);
  }
  /* Memory without a file that cannot be executed. */
  instruct(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 6);
  load_argument(2);
  instruct(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 3, 0);
  load_argument(3);
  instruct(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 1);
  add_verdict(SECCOMP_RET_ALLOW);
  add_verdict((unsigned)REFUSE);
  instruct(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 4);
  load_argument(2);
  instruct(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0);
  add_verdict(SECCOMP_RET_ALLOW);
  add_verdict((unsigned)REFUSE);
  /* A message of ours, and an abort of only this process. */
  allow_where(SYS_write, 0, BPF_JEQ, STDERR_FILENO);
  allow_where(SYS_tgkill, 0, BPF_JEQ, (unsigned)getpid());
  add_verdict((unsigned)REFUSE);
}

/* If the kernel has no filters, the limits still hold. */
static void filter_calls(void)
{
  build_filter();
  struct sock_fprog program = {.len = filter_length, .filter = filter};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#else

static void filter_calls(void)
{
}

#endif

/* ------------------------------------------------------------------------------------ the child */

static rlim_t lower_limit(rlim_t a, rlim_t b)
{
  return a < b ? a : b;
}

/* A limit that is stricter already stays. */
static void limit(int resource, rlim_t soft, rlim_t hard)
{
  struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(resource, &r);
  r.rlim_max = lower_limit(r.rlim_max, hard);
  r.rlim_cur = lower_limit(r.rlim_cur, lower_limit(soft, r.rlim_max));
  if (setrlimit(resource, &r))
    usage_error(3, "cannot limit the process that reads the plan: %s", strerror(errno));
}

/* Microseconds of processor time that earlier runs of this plan took: see in_sandbox. */
static long spent;

static void give_up_rights(void)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  signal(SIGXCPU, SIG_DFL);
  signal(SIGPROF, SIG_DFL);
  signal(SIGALRM, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  long left = SECONDS * 1000000 > spent ? SECONDS * 1000000 - spent : 1;
  struct itimerval time = {.it_value = {.tv_sec = left / 1000000, .tv_usec = left % 1000000}};
  setitimer(ITIMER_PROF, &time, NULL);
  alarm(WALL_SECONDS);
  limit(RLIMIT_CPU, SECONDS, SECONDS + 1);
  limit(RLIMIT_CORE, 0, 0);
  limit(RLIMIT_NPROC, 0, 0);
  limit(RLIMIT_NOFILE, 0, 0);
#ifndef SANITIZED
  /* Beyond what lua.c lets Lua have: the rest is the process's own. */
  limit(RLIMIT_DATA, (rlim_t)256 << 20, (rlim_t)256 << 20);
#endif
  filter_calls();
}

/* ----------------------------------------------------------------------------------- the parent */

/* A plan that takes longer is a long one: the memory that it needs is prepared. */
enum { SHORT_MILLISECONDS = 15 };

static int watched; /* the child, as a file that becomes readable when it ends */

static bool ends_within(int ms)
{
  struct pollfd child = {.fd = watched, .events = POLLIN};
  return poll(&child, 1, ms) != 0;
}

static bool has_ended(void)
{
  return ends_within(0);
}

static void work_beside(pid_t child)
{
#ifdef SYS_pidfd_open
  if (options.is_candidate) return; /* others need the processor */
  watched = (int)syscall(SYS_pidfd_open, child, 0);
  if (watched < 0) return;
  if (!ends_within(SHORT_MILLISECONDS)) arena_prepare(has_ended);
  close(watched);
#else
  (void)child, (void)has_ended;
#endif
}

/* Microseconds of processor time of all children that have ended. */
static long time_of_children(void)
{
  struct rusage r;
  if (getrusage(RUSAGE_CHILDREN, &r)) return 0;
  return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 + r.ru_utime.tv_usec +
         r.ru_stime.tv_usec;
}

void in_sandbox(void (*body)(void))
{
  sandbox = alloc(sizeof *sandbox);
  signal(SIGCHLD, SIG_DFL); /* if ignored (some launchers do), no wait would work */
  fflush(NULL);
  long before = time_of_children();
  pid_t child = fork();
  if (child < 0) usage_error(3, "cannot start a process to read the plan in: %s", strerror(errno));
  if (child == 0) {
    child_mode();
    arena_not_own();
    give_up_rights();
    body();
    _exit(0);
  }
  work_beside(child);
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) usage_error(3, "lost the process that reads the plan: %s", strerror(errno));
  spent += time_of_children() - before;
  if (*sandbox->missing && !status) return; /* the next run will print it again */
  spent = 0;
  /* The text that the plan has printed: line ends and tabs, otherwise only plain letters, no
     terminal commands. */
  size_t n = sandbox->printed < sizeof sandbox->print ? sandbox->printed : sizeof sandbox->print;
  for (size_t i = 0; i < n; i++) {
    unsigned char byte = (unsigned char)sandbox->print[i];
    bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
    printf(plain ? "%c" : "\\x%02x", byte);
  }
  if (fflush(stdout) || ferror(stdout)) usage_error(3, "cannot write to standard output");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  report_child_error();
  if (WIFEXITED(status)) fail_with(WEXITSTATUS(status)); /* it has reported the error */
  int sign = WTERMSIG(status);
  if (sign == SIGABRT) fail_by_abort(); /* likewise */
  if (sign == SIGXCPU || sign == SIGPROF || sign == SIGALRM)
    plan_error(sandbox->line, "the plan took more than %d s to read: does it end?",
               sign == SIGALRM ? WALL_SECONDS : SECONDS);
  if (sign == SIGKILL)
    plan_error(sandbox->line, "the plan was stopped: it took too much time or memory");
  plan_error(sandbox->line, "the plan crashed the Lua that reads it (signal %d)", sign);
}
