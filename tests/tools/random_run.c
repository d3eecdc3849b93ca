/* random_run TPGEN RANDOM_PLAN REFUSALS DIRECTORY FIRST COUNT: runs tpgen on the random plans of
   COUNT seeds from FIRST on, for both targets. Each must end with status 0, or with status 1 and a
   message about the plan that is a line of the file REFUSALS, within the promised 512 MiB and 3
   seconds of processor time. Prints each failure with its seed, and the numbers of programs and of
   refusals. Its status is 1 if one failed, or if there are more than a third as many refusals as
   programs. Two run at a time. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2, MILLISECONDS = 3000, KIB = 512 * 1024, MAX_DIMS = 6 };

struct counts {
  int programs, refused, failures;
  long slowest, seed; /* processor time in milliseconds, and its seed */
};

static const char *tpgen, *random_plan;
static char refusals[4096]; /* a line each */

/* Runs it with its output in the file `log`; returns its status, 128 + n if signal n ended it. */
static int run(char *const *argv, const char *log, struct rusage *used)
{
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    struct rlimit limit = {20, 20};
    int to = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (to < 0 || dup2(to, 1) < 0 || dup2(to, 2) < 0 || setrlimit(RLIMIT_CPU, &limit)) _exit(126);
    execv(argv[0], argv);
    _exit(127);
  }
  if (child < 0 || wait4(child, &status, 0, used) < 0) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The first lines of a file. */
static const char *text_of(const char *path)
{
  static char text[4096];
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = '\0';
  return text;
}

/* The sizes in the plan's line `-- mesh: a=2 b=3`, as arguments. */
static int mesh_of(const char *plan, char size[MAX_DIMS][16])
{
  const char *line = strstr(text_of(plan), "-- mesh:");
  int n = 0;
  for (const char *at = line ? line + strlen("-- mesh:") : ""; *at == ' ' && n < MAX_DIMS; n++) {
    int length = (int)strcspn(++at, " \n");
    snprintf(size[n], sizeof size[n], "-D%.*s", length, at);
    at += length;
  }
  return n;
}

static int is_refusal(const char *plan, const char *says)
{
  char refusal[256];
  const char *line = strstr(says, plan), *at = refusals;
  if (!line || line[strlen(plan)] != ':' || !strstr(line, ": error: ")) return 0;
  for (size_t length; (length = strcspn(at, "\n")); at += length + 1) {
    snprintf(refusal, sizeof refusal, "%.*s", (int)length, at);
    if (strstr(line, refusal)) return 1;
  }
  return 0;
}

static void compile(const char *seed, char *plan, char *target, char *out, struct counts *n)
{
  char size[MAX_DIMS][16], log[4096],
      *argv[MAX_DIMS + 7] = {(char *)tpgen, plan, "-o", out, "--target", target};
  struct rusage used = {0};
  int given = mesh_of(plan, size);
  for (int i = 0; i < given; i++) argv[6 + i] = size[i];
  snprintf(log, sizeof log, "%s.log", out);
  int status = run(argv, log, &used);
  long took = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000L +
              (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000L;
  const char *says = text_of(log), *why = NULL;
  if (status != 0 && !(status == 1 && is_refusal(plan, says))) why = "failed";
  if (took > MILLISECONDS) why = "was slow";
  if (used.ru_maxrss > KIB) why = "took much memory";
  n->programs += status == 0;
  n->refused += status == 1;
  if (took > n->slowest) n->slowest = took, n->seed = atol(seed);
  if (why) {
    n->failures++;
    printf("random_plan %s for %s %s: status %d, %ld ms, %ld MiB: %.300s\n", seed, target, why,
           status, took, used.ru_maxrss / 1024, says);
    fflush(stdout);
  }
}

/* Tries every seed from `first` on that is one of this worker's. */
static struct counts work(const char *directory, int worker, long first, long end)
{
  char plan[2048], out[2048], seed[32];
  struct counts n = {0};
  snprintf(plan, sizeof plan, "%s/plan%d.lua", directory, worker);
  snprintf(out, sizeof out, "%s/out%d", directory, worker);
  for (long i = first + worker; i < end; i += WORKERS) {
    snprintf(seed, sizeof seed, "%ld", i);
    char *argv[] = {(char *)random_plan, seed, NULL};
    if (run(argv, plan, &(struct rusage){0}) != 0) {
      printf("random_plan %s made no plan\n", seed);
      n.failures++;
      continue;
    }
    compile(seed, plan, "cpu", out, &n);
    compile(seed, plan, "cuda", out, &n);
  }
  return n;
}

int main(int argc, char **argv)
{
  struct counts all = {0}, one;
  int results[2];
  if (argc != 7 || pipe(results)) {
    fprintf(stderr, "usage: random_run TPGEN RANDOM_PLAN REFUSALS DIRECTORY FIRST COUNT\n");
    return 2;
  }
  tpgen = argv[1], random_plan = argv[2];
  snprintf(refusals, sizeof refusals, "%s", text_of(argv[3]));
  long first = atol(argv[5]), end = first + atol(argv[6]);
  for (int worker = 0; worker < WORKERS; worker++) {
    pid_t child = fork();
    if (child < 0) return 2;
    if (child > 0) continue;
    one = work(argv[4], worker, first, end);
    _exit(write(results[1], &one, sizeof one) != sizeof one);
  }
  close(results[1]);
  int done = 0;
  for (; read(results[0], &one, sizeof one) == sizeof one; done++) {
    all.programs += one.programs;
    all.refused += one.refused;
    all.failures += one.failures;
    if (one.slowest > all.slowest) all.slowest = one.slowest, all.seed = one.seed;
  }
  printf("%d programs, %d refused, %d failures; the slowest, seed %ld, took %ld ms\n", all.programs,
         all.refused, all.failures, all.seed, all.slowest);
  return done != WORKERS || all.failures || 3 * all.refused > all.programs;
}
