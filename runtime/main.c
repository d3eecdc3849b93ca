// The main of every generated program: who am I, fill the tensors, run the steps, save.
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE__
#include <immintrin.h>
#endif
#include "program.h"
#include "target.h"
#include "tensors.h"

enum { WRONG_USAGE = 2, DEADLINE = 600 };

struct options {
  int steps, log_every, deadline;
  const char *weights, *data, *metrics, *save;
  bool help;
};

static struct identity me;

// ---- the command line --------------------------------------------------------------------------

static const char HELP[] =
    "usage: run.sh [--steps N] [--weights FILE] [--data FILE] [--metrics FILE] [--save DIR]\n"
    "              [--log-every N] [--deadline N] [--help]\n"
    "\n"
    "  --steps N        run N steps (default %d)\n"
    "  --weights FILE   parameters from this safetensors file, and the optimizer's state if it is\n"
    "                   there; else both come from the plan's seed\n"
    "  --data FILE      the batch from this safetensors file; else from the plan's seed\n"
    "  --metrics FILE   one JSON object a step into FILE\n"
    "  --save DIR       at the end write DIR/%s.safetensors\n"
    "  --log-every N    show and record every N-th step and the last (default 1)\n"
    "  --deadline N     end the job when a rank has waited N seconds for another (default 600; 0:\n"
    "                   wait for ever)\n";

static bool read_count(const char *text, int least, int *count)
{
  char *end;
  errno = 0;
  long n = strtol(text, &end, 10);
  if (errno || end == text || *end || n < least || n > INT_MAX / 2) return false;
  *count = (int)n;
  return true;
}

static bool read_option(struct options *o, int option)
{
  switch (option) {
  case 's':
    return read_count(optarg, 0, &o->steps);
  case 'l':
    return read_count(optarg, 1, &o->log_every);
  case 'w':
    o->weights = optarg;
    return true;
  case 'd':
    o->data = optarg;
    return true;
  case 'm':
    o->metrics = optarg;
    return true;
  case 'o':
    o->save = optarg;
    return true;
  case 'D':
    return read_count(optarg, 0, &o->deadline);
  case 'h':
    o->help = true;
    return true;
  default:
    return false;
  }
}

// Rank 0 says what is wrong: all ranks have the same command line.
static bool read_options(struct options *o, int argc, char **argv)
{
  static const struct option known[] = {
      {"steps", required_argument, NULL, 's'},
      {"weights", required_argument, NULL, 'w'},
      {"data", required_argument, NULL, 'd'},
      {"metrics", required_argument, NULL, 'm'},
      {"save", required_argument, NULL, 'o'},
      {"log-every", required_argument, NULL, 'l'},
      {"help", no_argument, NULL, 'h'},
      {"deadline", required_argument, NULL, 'D'},
      {0},
  };
  int option, index = 0;
  *o = (struct options){.steps = program.steps, .log_every = 1, .deadline = DEADLINE};
  opterr = me.rank == 0;
  while ((option = getopt_long(argc, argv, "", known, &index)) != -1) {
    if (read_option(o, option)) continue;
    if (option != '?' && opterr)
      fprintf(stderr, "--%s %s: not a number of steps\n", known[index].name, optarg);
    return false;
  }
  if (optind < argc && opterr) fprintf(stderr, "%s: what is this?\n", argv[optind]);
  return optind == argc;
}

// ---- failing together --------------------------------------------------------------------------

static void complain(const struct failure *why)
{
  if (!*why->text) return; // another rank says it
  fflush(stdout);
  fprintf(stderr, "rank %d: error: %s\n", me.rank, why->text);
}

// Collective. True where all ranks are ok; else the first that is not says why.
static bool all_ok(bool ok, const struct failure *why)
{
  int first = target_first_failure(ok);
  if (first == me.rank) complain(why);
  return first < 0;
}

// ---- the steps ---------------------------------------------------------------------------------

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Lines reach their readers at once when steps are slow, and cost little when they are quick.
static void flush_now_and_then(FILE *metrics)
{
  static double last;
  double time = now();
  if (time - last < 0.1) return;
  last = time;
  fflush(stdout);
  if (metrics) fflush(metrics);
}

static void log_step(int t, FILE *metrics)
{
  float loss;
  target_get(&loss, (const char *)*program.memory + program.loss, sizeof loss);
  printf("step: %d  loss: %.8g\n", t, (double)loss);
  if (metrics && isfinite(loss))
    fprintf(metrics, "{\"step\":%d,\"loss\":%.9g}\n", t, (double)loss);
  else if (metrics)
    fprintf(metrics, "{\"step\":%d,\"loss\":null}\n", t); // JSON has no NaN
  flush_now_and_then(metrics);
}

static void run_steps(const struct options *o, int first, int last, FILE *metrics)
{
  bool logs = me.rank == 0 && program.loss >= 0;
  double start = now();
  for (int t = first; t <= last; t++) {
    watch_step(t);
    program.step(t);
    if (logs && (t % o->log_every == 0 || t == last)) log_step(t, metrics);
  }
  target_wait();
  double each = last < first ? 0 : (now() - start) * 1e6 / (last - first + 1);
  if (me.rank == 0) printf("steps: %d  us_per_step: %.2f\n", last - first + 1, each);
}

// ---- metrics and saving ------------------------------------------------------------------------

static bool open_metrics(FILE **metrics, const char *path, struct failure *why)
{
  *metrics = path && me.rank == 0 ? fopen(path, "we") : NULL;
  if (!path || me.rank != 0 || *metrics) return true;
  return failed(why, "%s: cannot create: %s", path, strerror(errno));
}

static bool close_metrics(FILE *metrics, const char *path, struct failure *why)
{
  errno = 0;
  bool ok = fflush(stdout) == 0 && !ferror(stdout);
  if (!ok) failed(why, "standard output: cannot write: %s", strerror(errno));
  if (!metrics) return ok;
  bool written = fflush(metrics) == 0 && !ferror(metrics);
  if (fclose(metrics) != 0 || !written)
    return failed(why, "%s: cannot write: %s", path, errno ? strerror(errno) : "a line was lost");
  return ok;
}

static bool save(const char *directory, int step)
{
  struct failure why = {""};
  bool first = me.rank == 0;
  bool saved = all_ok(!first || save_begin(directory, step, &why), &why) &&
               all_ok(save_write(directory, step, &why), &why) &&
               all_ok(!first || save_commit(directory, &why), &why);
  if (!saved && first) save_abandon(directory);
  return saved;
}

// ---- the whole ---------------------------------------------------------------------------------

static bool prepare(const struct options *o, int *step)
{
  struct failure why = {""};
  if (!all_ok(launch_fits(&me, program.world, rank.id, &why), &why)) return false;
  if (!all_ok(target_same_program(&why), &why)) return false;
  target_groups();
  *program.memory = target_allocate(program.bytes, &why);
  return all_ok(*program.memory != NULL, &why) &&
         all_ok(!o->save || me.rank != 0 || save_directory(o->save, &why), &why) &&
         all_ok(tensors_fill(o->weights, o->data, step, &why), &why);
}

static bool run(const struct options *o)
{
  struct failure why = {""};
  FILE *metrics;
  int step;
  if (!prepare(o, &step) || !all_ok(open_metrics(&metrics, o->metrics, &why), &why)) return false;
  run_steps(o, step + 1, step + o->steps, metrics);
  if (!all_ok(close_metrics(metrics, o->metrics, &why), &why)) return false;
  return !o->save || save(o->save, step + o->steps);
}

static void meet_neighbours(void)
{
  struct neighbour *list;
  int n = target_neighbours(&list);
  watch_neighbours(list, n);
  free(list);
}

int main(int argc, char **argv)
{
  struct options options;
  struct failure why = {""};
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() |
             0x8040); // flush denormals to zero, and read them as zero: they are slow
#endif
  signal(SIGXFSZ, SIG_IGN); // a file above the limit is an error to report, not a death
  bool known = launch_identity(&me, &why);
  if (known && !read_options(&options, argc, argv)) return WRONG_USAGE;
  if (known && options.help) {
    if (me.rank == 0) printf(HELP, program.steps, program.loss < 0 ? "outputs" : "model");
    return EXIT_SUCCESS;
  }
  if (known) watch_start(options.deadline);
  if (!known || !target_start(&me, &why)) {
    complain(&why);
    return EXIT_FAILURE;
  }
  meet_neighbours();
  bool ok = run(&options);
  watch_stop();
  target_stop();
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
