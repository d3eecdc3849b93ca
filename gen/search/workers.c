/* workers.c: processes that evaluate candidates, one each, on all processors.

   A process may fail, crash or take too long: then only its candidate ends. Whatever it
   finds is in shared memory, at a place of the candidate's own, so the result does not
   depend on which process ends first. */
#include "search/search.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Limits of a candidate: processor time, and wall time for one that waits. */
enum { MOST_SECONDS = 60, MOST_WALL_SECONDS = 600, MOST_WORKERS = 64 };

static struct {
  evaluator f;
  struct evaluated *outcome; /* shared */
  int n;
} pool;
static volatile sig_atomic_t is_over;

static void end_search(int sign)
{
  (void)sign;
  is_over = 1;
}

bool search_is_over(void)
{
  return is_over;
}

void open_workers(evaluator f, double seconds)
{
  pool.f = f;
  pool.outcome = mmap(NULL, MOST_TRIED * sizeof *pool.outcome, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pool.outcome == MAP_FAILED) usage_error(3, "no memory for the search");
  struct sigaction end = {.sa_handler = end_search}; /* without SA_RESTART: it ends a wait */
  sigemptyset(&end.sa_mask);
  sigaction(SIGINT, &end, NULL);
  signal(SIGCHLD, SIG_DFL);
  if (seconds <= 0) return;
  sigaction(SIGALRM, &end, NULL);
  /* Again and again: one may come just before a wait. */
  struct itimerval time = {
      .it_value = {.tv_sec = (time_t)seconds,
                   .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)},
      .it_interval = {.tv_usec = 50000}};
  if (!time.it_value.tv_sec && !time.it_value.tv_usec) time.it_value.tv_usec = 1; /* 0: never */
  setitimer(ITIMER_REAL, &time, NULL);
}

struct evaluated *new_outcome(int *index)
{
  if (pool.n == MOST_TRIED) return NULL;
  *index = pool.n;
  return &pool.outcome[pool.n++];
}

struct evaluated *outcome_at(int index)
{
  return &pool.outcome[index];
}

int outcomes(void)
{
  return pool.n;
}

/* ------------------------------------------------------------------------------------ the child */

/* Seconds of processor time of a candidate: fewer, if the shell limits them. The hard limit kills
   without a word, so the other one comes before. */
static rlim_t most_seconds(struct rlimit *r)
{
  if (getrlimit(RLIMIT_CPU, r)) return MOST_SECONDS;
  if (r->rlim_max == RLIM_INFINITY || r->rlim_max > MOST_SECONDS) return MOST_SECONDS;
  return r->rlim_max > 1 ? r->rlim_max - 1 : r->rlim_max;
}

static void limit_time(void)
{
  struct rlimit r = {.rlim_max = RLIM_INFINITY};
  r.rlim_cur = most_seconds(&r);
  setrlimit(RLIMIT_CPU, &r);
}

_Noreturn static void evaluate_here(const struct job *job, int messages)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN); /* the parent decides */
  signal(SIGALRM, SIG_DFL);
  struct itimerval none = {.it_value = {0}};
  setitimer(ITIMER_REAL, &none, NULL);
  alarm(MOST_WALL_SECONDS);
  limit_time();
  setrlimit(RLIMIT_CORE, &(struct rlimit){0});
  int nothing = open("/dev/null", O_WRONLY);
  if (nothing >= 0) dup2(nothing, STDOUT_FILENO);
  dup2(messages, STDERR_FILENO);
  on_failure(NULL);
  options.search = false;
  options.estimates = !job->is_checked;
  options.out = options.dump = options.explain = options.explain_cost = NULL;
  options.first_rank = options.last_rank = INT32_MAX; /* files are written for none */
  options.is_candidate = true;
  take_definitions(job->space, job->ndefinition, job->definition);
  graph_open();
  pool.f(job->to);
  _exit(0);
}

/* ----------------------------------------------------------------------------------- the parent */

struct worker {
  pid_t pid;
  const struct job *job;
  FILE *messages;
};

/* The first line of the process's messages, without "tpgen: " and "error: ". */
static void take_message(struct worker *w, struct evaluated *to)
{
  char all[2 * LONGEST_WHY] = "";
  fflush(w->messages);
  rewind(w->messages);
  const size_t n = fread(all, 1, sizeof all - 1, w->messages);
  all[n] = 0;
  all[strcspn(all, "\n")] = 0;
  for (char *c = all; *c; c++) /* for terminals */
    if ((unsigned char)*c < ' ' || *c == 0x7f) *c = ' ';
  static const char own[] = "tpgen: ", word[] = "error: ";
  char *from = strncmp(all, own, strlen(own)) != 0 ? all : all + strlen(own);
  const char *error = strstr(from, word);
  const int before = error ? (int)(error - from) : 0;
  snprintf(to->why, sizeof to->why, "%.*s%.*s", before, from, LONGEST_WHY - 1 - before,
           error ? error + strlen(word) : from);
}

static void take_end(struct worker *w, int status)
{
  struct evaluated *to = w->job->to;
  if (WIFSIGNALED(status) && is_over) {
    to->is_there = false;
    to->stopped = true;
  } else if (WIFSIGNALED(status) && !to->is_there) {
    const int sign = WTERMSIG(status);
    take_message(w, to);
    struct rlimit r;
    if (sign == SIGXCPU || sign == SIGALRM)
      snprintf(to->why, sizeof to->why, "tpgen took more than %lld s for it",
               sign == SIGALRM ? MOST_WALL_SECONDS : (long long)most_seconds(&r));
    else if (!*to->why)
      snprintf(to->why, sizeof to->why, "tpgen was ended by signal %d", sign);
  } else if (!to->is_there) {
    take_message(w, to);
    if (!*to->why)
      snprintf(to->why, sizeof to->why, "tpgen ended with status %d", WEXITSTATUS(status));
  }
  fclose(w->messages);
  w->job = NULL;
}

static bool start(struct worker *w, const struct job *job)
{
  FILE *messages = tmpfile();
  if (!messages) usage_error(3, "cannot make a temporary file for messages: %s", strerror(errno));
  fflush(NULL);
  const pid_t pid = fork();
  if (!pid) evaluate_here(job, fileno(messages));
  if (pid < 0) {
    fclose(messages);
    return false;
  }
  *w = (struct worker){pid, job, messages};
  return true;
}

/* The number of plans that were looked at, on a terminal. */
static void show_progress(bool is_end)
{
  static bool is_shown;
  if (!isatty(STDERR_FILENO) || (is_end && !is_shown)) return;
  if (is_end)
    fprintf(stderr, "\r%40s\r", "");
  else
    fprintf(stderr, "\r%d plans of the search are looked at", pool.n);
  fflush(stderr);
  is_shown = !is_end;
}

static int worker_count(void)
{
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > MOST_WORKERS ? MOST_WORKERS : (int)n;
}

void run_jobs(const struct job *job, int n)
{
  struct worker worker[MOST_WORKERS] = {{.pid = 0}};
  const int most = worker_count();
  int next = 0, running = 0;
  while (running || (next < n && !is_over)) {
    for (int i = 0; i < most && next < n && !is_over; i++) {
      if (worker[i].job) continue;
      if (!start(&worker[i], &job[next])) {
        if (!running) usage_error(3, "cannot start a process for a candidate: %s", strerror(errno));
        break;
      }
      next++;
      running++;
    }
    int status;
    const pid_t ended = running ? waitpid(-1, &status, 0) : 0;
    for (int i = 0; i < most; i++) {
      if (!worker[i].job) continue;
      if (is_over) kill(worker[i].pid, SIGKILL);
      if (worker[i].pid != ended) continue;
      take_end(&worker[i], status);
      running--;
    }
  }
  for (; next < n; next++) job[next].to->stopped = true;
  show_progress(false);
}

void close_workers(void)
{
  show_progress(true);
  signal(SIGINT, SIG_DFL);
  struct itimerval none = {.it_value = {0}};
  setitimer(ITIMER_REAL, &none, NULL);
}
