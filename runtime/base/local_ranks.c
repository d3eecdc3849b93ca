// SPDX-License-Identifier: MIT
// Ranks of one machine see each other in /proc, and notify each other by a signal that is ignored
// by default.
#include "base/local_ranks.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HUSH = 0x74706765, ASK }; // sent with SIGURG, which others may send, too

static struct identity me;
static struct neighbour *neighbours; // as the ranks have sent them to each other
static int nneighbour;
static volatile sig_atomic_t hushed, asked, failing;

// ---- by their environments ---------------------------------------------------------------------

// All processes of a job have the same value of one of these, and no other job has it: run.sh's
// process id, or the job's name in Open MPI and Slurm.
static const char *const jobs[] = {"TPGEN_RUN", "PMIX_NAMESPACE"};

// The value of a variable in a block of zero-terminated "NAME=value"; NULL if it is missing.
static const char *value_in(const char *text, size_t size, const char *name)
{
  size_t length = strlen(name);
  for (const char *at = text; at < text + size; at += strlen(at) + 1)
    if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
  return NULL;
}

// The contents of /proc/PID/environ, zero-terminated; NULL if it cannot be read. There may be
// little memory left.
static char *read_environment(const char *pid, size_t *size)
{
  enum { MOST = 4 << 20 };
  char path[64];
  snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
  FILE *file = fopen(path, "re");
  char *text = NULL;
  *size = 0;
  for (size_t room = 1 << 14, had = 0; file && room <= MOST; room *= 2, had = *size) {
    char *more = realloc(text, room + 1);
    if (!more) break;
    text = more;
    *size += fread(text + *size, 1, room - *size, file);
    if (*size == had || *size < room) break;
  }
  if (text) text[*size] = 0;
  if (file) fclose(file);
  return text;
}

// The rank of a process in this job, or -1.
static int rank_of(const char *pid)
{
  size_t size;
  int rank = -1;
  char *text = read_environment(pid, &size);
  const char *number = text ? value_in(text, size, me.rank_variable) : NULL;
  for (size_t i = 0; number && rank < 0 && i < sizeof jobs / sizeof *jobs; i++) {
    const char *own = getenv(jobs[i]), *theirs = value_in(text, size, jobs[i]);
    if (own && theirs && strcmp(own, theirs) == 0) rank = (int)strtol(number, NULL, 10);
  }
  free(text);
  return rank;
}

// "rank3": the process is the rank itself, not a shell or debugger that has started it.
static bool is_program(const char *pid, int rank)
{
  char path[64], sought[32], found[4096];
  snprintf(path, sizeof path, "/proc/%.20s/exe", pid);
  snprintf(sought, sizeof sought, "/rank%d", rank);
  ssize_t n = readlink(path, found, sizeof found - 1);
  if (n < (ssize_t)strlen(sought)) return false;
  found[n] = 0;
  return strcmp(found + n - (ssize_t)strlen(sought), sought) == 0;
}

// If all ranks run on this machine, a rank that is not found is gone.
static int find(struct neighbour **list)
{
  bool all_here = me.local_size == me.size;
  int n = 0;
  DIR *processes = me.rank_variable ? opendir("/proc") : NULL;
  *list = processes ? calloc((size_t)me.size, sizeof **list) : NULL;
  for (int r = 0; *list && r < me.size; r++) (*list)[r].rank = r;
  for (struct dirent *d; *list && (d = readdir(processes));) {
    int r = isdigit((unsigned char)*d->d_name) ? rank_of(d->d_name) : -1;
    if (r < 0 || r >= me.size) continue;
    if (!(*list)[r].pid || is_program(d->d_name, r)) (*list)[r].pid = (int)atol(d->d_name);
  }
  if (processes) closedir(processes);
  // This process exists: if it is not found, the environment names no job.
  if (!*list || !(*list)[me.rank].pid) return 0;
  for (int r = 0; r < me.size; r++)
    if (all_here || (*list)[r].pid) (*list)[n++] = (*list)[r];
  return n;
}

// ---- as they are -------------------------------------------------------------------------------

void neighbours_are(const struct neighbour *list, int n)
{
  neighbours = calloc((size_t)n + 1, sizeof *neighbours);
  for (int i = 0; neighbours && i < n; i++) neighbours[i] = list[i];
  __atomic_store_n(&nneighbour, neighbours ? n : 0, __ATOMIC_RELEASE);
}

int neighbours_list(struct neighbour **list)
{
  int n = __atomic_load_n(&nneighbour, __ATOMIC_ACQUIRE);
  if (!n) return find(list);
  *list = calloc((size_t)n, sizeof **list);
  for (int i = 0; *list && i < n; i++) (*list)[i] = neighbours[i];
  return *list ? n : 0;
}

// From /proc: "12345 (rank1) T ...". A name may contain any character, a parenthesis too.
enum state neighbour_state(const struct neighbour *n)
{
  char path[64], line[512];
  if (n->pid <= 0) return GONE;
  snprintf(path, sizeof path, "/proc/%d/stat", n->pid);
  FILE *file = fopen(path, "re");
  if (!file) return kill(n->pid, 0) != 0 && errno == ESRCH ? GONE : RUNS;
  const char *end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
  fclose(file);
  if (!end || end[1] != ' ') return RUNS;
  return end[2] == 'Z' || end[2] == 'X' ? GONE : end[2] == 'T' ? STOPPED : RUNS;
}

// ---- messages between them ---------------------------------------------------------------------

static void on_signal(int number, siginfo_t *info, void *context)
{
  (void)number, (void)context;
  if (info->si_code != SI_QUEUE) return;
  if (info->si_value.sival_int == HUSH) hushed = 1;
  if (info->si_value.sival_int == ASK) asked = 1;
}

void neighbours_start(const struct identity *identity)
{
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
  me = *identity;
  sigaction(SIGURG, &action, NULL);
}

void silence_local_ranks(void)
{
  struct neighbour *list = NULL;
  int n = neighbours_list(&list);
  const char *run = getenv("TPGEN_RUN");
  for (int i = 0; i < n; i++) {
    if (list[i].pid <= 0 || list[i].pid == (int)getpid()) continue;
    sigqueue(list[i].pid, SIGURG, (union sigval){.sival_int = HUSH});
    // A stopped one may not have installed its handler: it ends when it continues.
    if (neighbour_state(&list[i]) == STOPPED) kill(list[i].pid, SIGTERM);
  }
  if (run && atol(run) > 1) kill((pid_t)atol(run), SIGURG);
  free(list);
  neighbours_reported();
}

bool neighbours_want_report(int rank)
{
  enum { TICK = 10000000, TICKS = 10 };
  failing = true; // an end meanwhile is no other failure
  for (int i = 0; rank > 0 && i < TICKS && !hushed; i++)
    nanosleep(&(struct timespec){0, TICK}, NULL);
  return !hushed;
}

void neighbours_ask_first(void)
{
  struct neighbour *list = NULL;
  const int n = neighbours_list(&list);
  for (int i = 0; i < n; i++)
    if (list[i].rank == 0 && list[i].pid > 0)
      sigqueue(list[i].pid, SIGURG, (union sigval){.sival_int = ASK});
  free(list);
}

bool neighbours_asked(void)
{
  return asked;
}

void neighbours_reported(void)
{
  hushed = 1;
}

bool neighbours_hushed(void)
{
  return hushed || failing;
}
