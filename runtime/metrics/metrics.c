// SPDX-License-Identifier: MIT
// Loss, speed and memory of the steps in torchtitan's format, and one JSON object a line.
#include "metrics/metrics.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/program.h"
#include "base/rank_log.h"
#include "base/target.h"
#include "data/batches.h"
#include "data/tokens.h"
#include "metrics/metrics_file.h"
#include "metrics/own_metrics.h"
#include "metrics/rank_times.h"
#include "metrics/tensorboard.h"
#include "metrics/validation_results.h"
#include "tensors/tensor_table.h"

// The numbers of the steps since the last line.
struct step_metrics {
  int step;
  float loss, grad_norm;
  double seconds; // of a step
  double tokens_per_second, tflops, mfu, lr;
  size_t memory;
  struct rank_times ranks;
};

static struct {
  const struct options *options;
  FILE *file, *events;
  char events_name[EVENTS_NAME];
  long whole;          // bytes of complete lines, already written
  bool silent;         // standard output has failed
  struct failure lost; // the first lost report; empty: none
  FILE *bar;           // where the bar is drawn, or NULL
  int columns;         // of the terminal
  int first, last;
  int reported; // the last step reported
  double begun; // when the run began, and the first step since the last line
  double since;
  double paused;                // when other work began
  const struct own_metric *own; // the plan's
  int nown;
  size_t memory;
  double looked; // when memory was last read
  double flushed, drawn;
  double peak_tflops; // of the device; 0: unknown
  bool warned;        // that the loss is NaN
} run;

static bool tells(void)
{
  return rank->id == 0;
}

// ---- numbers -----------------------------------------------------------------------------------

// "6,667"
static const char *with_commas(double x, char to[32])
{
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%.0f", x < 1e15 ? x : 1e15), used = 0;
  for (int i = 0; i < n; i++) {
    if (i > 0 && (n - i) % 3 == 0) to[used++] = ',';
    to[used++] = digits[i];
  }
  to[used] = 0;
  return to;
}

// ---- the bar -----------------------------------------------------------------------------------

// run.sh says whether there is a terminal and how wide it is: "1 80" for standard output. A rank
// cannot see it: its launcher's pipe or pseudo-terminal is between them.
static void find_terminal(void)
{
  const char *text = getenv("TPGEN_TERMINAL");
  int fd, columns;
  if (!text || sscanf(text, "%d %d", &fd, &columns) != 2 || columns < 40) return;
  run.bar = fd == 1 ? stdout : fd == 2 ? stderr : NULL;
  run.columns = columns < 120 ? columns : 120;
}

static void erase_bar(void)
{
  if (!run.bar || run.drawn <= 0) return;
  fprintf(run.bar, "\r%*s\r", run.columns - 1, "");
  if (run.bar == stderr) fflush(stderr);
  run.drawn = 0;
}

static const char *rate_text(double x, char to[32])
{
  if (x >= 10) return with_commas(x, to);
  snprintf(to, 32, "%.1f", x);
  return to;
}

// The text after the bar: "  412/1000  3:12 left  5.2 steps/s  6,667 tokens/s".
static int print_after(int t, double time, bool rates, char to[120])
{
  char rate[32];
  const double steps = (t - run.first + 1) / fmax(time - run.begun, 1e-9);
  const double left = (run.last - t) / steps;
  const double tokens = (double)program->batches * (double)tokens_of_batch() * steps;
  const int minutes = left < 6e6 ? (int)(left / 60) : 99999;
  int n = snprintf(to, 120, "  %d/%d  %d:%02d left", t, run.last, minutes, (int)fmod(left, 60));
  if (!rates) return n;
  if (steps < 1)
    n += snprintf(to + n, 120 - (size_t)n, "  %.3g s/step", 1 / steps);
  else
    n += snprintf(to + n, 120 - (size_t)n, "  %s steps/s", rate_text(steps, rate));
  if (tokens > 0) n += snprintf(to + n, 120 - (size_t)n, "  %s tokens/s", rate_text(tokens, rate));
  return n;
}

// "[=====>         ]  412/1000  3:12 left  5.2 steps/s", at most ten times a second.
static void draw_bar(int t, double time)
{
  char after[120];
  static double last;
  if (!run.bar || time - last < 0.1) return;
  last = time;
  int width = run.columns - print_after(t, time, true, after) - 4;
  if (width < 12) width = run.columns - print_after(t, time, false, after) - 4;
  int full = (int)((double)width * t / run.last);
  if (width < 5) return;
  fprintf(run.bar, "\r[%.*s>%*s]%s", full > 0 ? full - 1 : 0,
          "================================================================================"
          "========================================",
          width - (full > 0 ? full : 1), "", after);
  fflush(run.bar);
  run.drawn = time;
}

// ---- what is reported --------------------------------------------------------------------------

static float get_float(ptrdiff_t offset)
{
  float x;
  target_get(&x, (const char *)rank_memory + offset, sizeof x);
  return x;
}

// A query costs more than a small step.
static size_t peak_memory(double time)
{
  if (time - run.looked < 0.1 && run.memory > 0) return run.memory;
  run.looked = time;
  return run.memory = target_peak();
}

static struct step_metrics measure(int t)
{
  struct step_metrics step = {.step = t, .loss = get_float(program->loss)};
  step.ranks = rank_times_report(t - run.reported);
  if (program->grad_norm >= 0) step.grad_norm = get_float(program->grad_norm);
  double time = seconds_now();
  step.memory = peak_memory(time);
  step.seconds = (time - run.since) / (t - run.reported);
  if (step.seconds <= 0) step.seconds = 1e-9;
  step.tokens_per_second = (double)program->batches * (double)tokens_of_batch() / step.seconds;
  step.tflops = program->flops / step.seconds / program->world * 1e-12;
  if (run.peak_tflops > 0) step.mfu = 100 * step.tflops / run.peak_tflops;
  if (program->learning_rate) step.lr = program->learning_rate(t);
  own_metrics_read();
  return step;
}

// A NaN has no sign for readers.
static float shown(float x)
{
  return isnan(x) ? NAN : x;
}

// In torchtitan's format, except for numbers that four decimals do not show.
static void print_float(const char *name, float x)
{
  bool small = fabsf(x) < 0.1f && fpclassify(x) != FP_ZERO;
  printf(small ? "  %s: %.4e" : "  %s: %.4f", name, (double)shown(x));
}

static void print_metrics(const struct step_metrics *step)
{
  char number[32];
  printf("step: %d", step->step);
  print_float("loss", step->loss);
  if (program->grad_norm >= 0) print_float("grad_norm", step->grad_norm);
  printf("  memory: %.2fGiB", (double)step->memory / (1 << 30));
  if (tokens_of_batch() > 0)
    printf("  tps: %s", with_commas(step->tokens_per_second / program->world, number));
  if (program->flops > 0)
    printf(step->tflops < 0.1 ? "  tflops: %.2g" : "  tflops: %.2f", step->tflops);
  if (program->flops > 0 && step->mfu > 0) printf("  mfu: %.2f%%", step->mfu);
  if (program->learning_rate) printf("  lr: %.4e", step->lr);
  if (step->ranks.slowest > 0)
    printf("  work: %.3gs  slowest: %.3gs of rank %d", step->ranks.mean, step->ranks.slowest,
           step->ranks.slowest_rank);
  for (int i = 0; i < run.nown; i++)
    if (run.own[i].count == 1) print_float(run.own[i].name, *run.own[i].of_step);
  printf("\n");
}

// Once, when training has diverged: it continues, as that may be intended.
static void warn_of_nan(const struct step_metrics *step)
{
  const bool loss = !isfinite(step->loss);
  if (run.options->on_nan != NAN_GOES_ON || run.warned ||
      (!loss && (program->grad_norm < 0 || isfinite(step->grad_norm))))
    return;
  run.warned = true;
  fflush(stdout);
  fprintf(stderr, "rank %d: warning: the %s is %f at step %d", rank->id,
          loss ? "loss" : "norm of the gradients",
          (double)shown(loss ? step->loss : step->grad_norm), step->step);
  if (step->step > run.reported + 1)
    fprintf(stderr, " (it was looked at last at step %d)", run.reported);
  fprintf(stderr, "; training goes on\n");
}

// A line of JSON and an event begin, get their numbers, and end.
static void begin_numbers(int step)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (run.file) fprintf(run.file, "{\"step\":%d", step);
  if (run.events) events_begin((double)t.tv_sec + 1e-9 * (double)t.tv_nsec, step);
}

// JSON has no NaN.
static void write_number(const char *name, double x)
{
  if (run.file && isfinite(x)) fprintf(run.file, ",\"%s\":%.9g", name, x);
  if (run.file && !isfinite(x)) fprintf(run.file, ",\"%s\":null", name);
  if (run.events) events_number(name, x);
}

// Several numbers are a list in the file.
static void write_numbers(const char *name, const float *x, long n)
{
  if (n == 1) {
    write_number(name, (double)*x);
  } else if (run.file) {
    fprintf(run.file, ",\"%s\":", name);
    for (long i = 0; i < n; i++) {
      fputc(i ? ',' : '[', run.file);
      if (isfinite(x[i])) fprintf(run.file, "%.9g", (double)x[i]);
      if (!isfinite(x[i])) fprintf(run.file, "null");
    }
    fputc(']', run.file);
  }
}

static void end_numbers(void)
{
  if (run.file) fprintf(run.file, "}\n");
  if (run.events) events_end(run.events);
}

static void write_metrics(const struct step_metrics *step)
{
  begin_numbers(step->step);
  write_number("loss", (double)step->loss);
  if (program->grad_norm >= 0) write_number("grad_norm", (double)step->grad_norm);
  write_number("seconds", step->seconds);
  if (tokens_of_batch() > 0) {
    write_number("tps", step->tokens_per_second / program->world);
    write_number("tokens_per_second", step->tokens_per_second);
  }
  if (program->flops > 0) write_number("tflops", step->tflops);
  if (program->flops > 0 && step->mfu > 0) write_number("mfu", step->mfu);
  if (run.file) fprintf(run.file, ",\"memory\":%zu", step->memory);
  if (run.events) events_number("memory", (double)step->memory);
  if (program->learning_rate) write_number("lr", step->lr);
  if (step->ranks.slowest > 0) {
    write_number("work", step->ranks.mean);
    write_number("slowest_work", step->ranks.slowest);
    write_number("slowest_rank", step->ranks.slowest_rank);
  }
  for (int i = 0; i < run.nown; i++)
    write_numbers(run.own[i].name, run.own[i].of_step, run.own[i].count);
  end_numbers();
}

// ---- what cannot be reported -------------------------------------------------------------------

// Training is worth more than its reports: it continues, and the end of the job reports the loss.
static void lose(const char *name, int t)
{
  failed(&run.lost, "%s: cannot write: %s", name, errno ? strerror(errno) : "a line was lost");
  fprintf(stderr, "rank %d: note: step %d: %s; the job goes on and tells no more there\n", rank->id,
          t, run.lost.text);
}

static bool flushed(FILE *file)
{
  errno = 0;
  return fflush(file) == 0 && !ferror(file);
}

static void flush_output(int t)
{
  if (run.silent || flushed(stdout)) return;
  lose("standard output", t);
  run.silent = true;
  __fpurge(stdout);
  if (run.bar == stdout) run.bar = NULL;
}

// After a failure the file ends with its last complete line.
static void flush_file(int t)
{
  if (!run.file) return;
  if (flushed(run.file)) {
    run.whole = ftell(run.file);
    return;
  }
  lose(run.options->metrics, t);
  __fpurge(run.file);
  if (run.whole >= 0 && ftruncate(fileno(run.file), run.whole) != 0) errno = 0; // no regular file
  fclose(run.file);
  run.file = NULL;
}

static void flush_events(int t)
{
  if (!run.events || flushed(run.events)) return;
  lose(run.events_name, t);
  __fpurge(run.events);
  fclose(run.events);
  run.events = NULL;
}

static void flush_all(int t)
{
  flush_output(t);
  flush_file(t);
  flush_events(t);
}

// Lines are flushed at once if steps are slow, and in groups if they are fast.
static void flush_now_and_then(double time, int t)
{
  if (time - run.flushed < 0.1) return;
  run.flushed = time;
  flush_all(t);
}

// ---- a run -------------------------------------------------------------------------------------

// Whether the program has inputs that are drawn at random without a file.
static bool draws_inputs(void)
{
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].role == BATCH && program->tensors[i].init.how != CONSTANT) return true;
  return false;
}

static void print_what_runs(void)
{
  char number[32];
  const char *threads = getenv("OMP_NUM_THREADS");
  const bool evaluates = run.options->evaluate;
  const enum purpose purpose = batches_are_open(FORWARD) ? FORWARD
                               : evaluates               ? VALIDATION
                                                         : TRAINING;
  const char *open = batches_summary(purpose), *data = *open ? open : run.options->data[0];
  printf("%s: %d rank%s", program->plan, program->world, program->world == 1 ? "" : "s");
  if (threads && *threads) printf(" of %s thread%s", threads, strcmp(threads, "1") ? "s" : "");
  printf(", %s parameters, %s", with_commas(table_elements(PARAMETER), number),
         data ? data : "random inputs");
  if (program->loss < 0)
    printf("\n");
  else if (evaluates)
    printf(", step %d\n", run.last);
  else if (run.first > run.last)
    printf(", no step: it stands at %d\n", run.last);
  else
    printf(", steps %d to %d\n", run.first, run.last);
  if (!data && draws_inputs())
    printf("note: without --data the inputs are random numbers%s\n",
           program->loss < 0 ? "" : ", the same in every step");
  flush_output(run.first - 1);
}

bool metrics_open(const struct options *o, int first, int last, struct failure *why)
{
  run.options = o;
  run.first = first;
  run.last = last;
  run.reported = first - 1;
  run.begun = run.since = seconds_now();
  if (!rank_times_open(o->stragglers, why)) return false;
  if (!tells()) return true;
  if (o->metrics && !(run.file = metrics_file_open(o->metrics, first - 1, why))) return false;
  if (o->tensorboard && !(run.events = events_open(o->tensorboard, run.events_name, why)))
    return false;
  if (!(run.own = own_metrics(&run.nown))) return failed(why, "out of memory for the metrics");
  run.peak_tflops = o->peak_tflops > 0 ? o->peak_tflops : target_peak_tflops();
  find_terminal();
  print_what_runs();
  run.begun = run.since = seconds_now();
  return true;
}

// In the rank's own log.
static void log_times(const struct step_metrics *step)
{
  if (step->ranks.own > 0)
    rank_log_tell("step: %d  seconds: %.4g  work: %.4g", step->step, step->seconds,
                  step->ranks.own);
  else
    rank_log_tell("step: %d  seconds: %.4g", step->step, step->seconds);
}

static void tell_step(const struct step_metrics *step)
{
  erase_bar();
  if (!run.silent) print_metrics(step);
  write_metrics(step);
  warn_of_nan(step);
}

void metrics_step(int t)
{
  if (!tells() && !run.options->stragglers && !rank_log_is_open()) return;
  bool is_reported = t % run.options->log_every == 0 || t == run.last;
  if (program->loss >= 0 && is_reported) {
    struct step_metrics step = measure(t);
    if (tells()) tell_step(&step);
    log_times(&step);
    run.reported = t;
    run.since = seconds_now();
    if (tells()) flush_now_and_then(run.since, t);
  }
  if (run.bar && t < run.last) draw_bar(t, seconds_now());
}

// The name of a metric of validations.
enum { METRIC_NAME = 300 };
static const char *validated_name(const struct own_metric *m, char to[METRIC_NAME])
{
  snprintf(to, METRIC_NAME, "validation_%s", m->name);
  return to;
}

void metrics_validation(void)
{
  const struct validations *v = &validations;
  char name[METRIC_NAME];
  if (!tells()) return;
  erase_bar();
  if (!run.silent) {
    printf("step: %d", v->step);
    print_float("validation_loss", (float)v->loss);
    for (int i = 0; i < run.nown; i++)
      if (run.own[i].row && run.own[i].count == 1)
        print_float(validated_name(&run.own[i], name), *run.own[i].validated);
    if (!run.options->evaluate) print_float("best", (float)v->best);
    printf(run.options->evaluate ? "\n" : " of step %d\n", v->best_step);
  }
  begin_numbers(v->step);
  write_number("validation_loss", v->loss);
  for (int i = 0; i < run.nown; i++)
    if (run.own[i].row)
      write_numbers(validated_name(&run.own[i], name), run.own[i].validated, run.own[i].count);
  if (!run.options->evaluate) write_number(validations_best_name(), v->best);
  if (!run.options->evaluate) write_number("best_step", v->best_step);
  end_numbers();
  flush_all(v->step);
}

void metrics_go_back(int t)
{
  run.reported = t;
  run.since = seconds_now();
  run.warned = false;
}

void metrics_stop(int t)
{
  if (tells() && !run.silent)
    printf("step: %d  stops: %d validations were no better than that of step %d\n", t,
           validations.without, validations.best_step);
}

void metrics_pause(void)
{
  erase_bar();
  target_wait();
  run.paused = seconds_now();
  rank_times_pause();
}

void metrics_resume(void)
{
  double idle = seconds_now() - run.paused;
  rank_times_resume();
  run.begun += idle;
  run.since += idle;
}

void metrics_end(int t)
{
  const int steps = t - run.first + 1;
  run.last = t;
  target_wait();
  if (!tells()) return;
  erase_bar();
  double each = steps > 0 ? (seconds_now() - run.begun) * 1e6 / steps : 0;
  if (!run.silent && !run.options->evaluate) printf("steps: %d  us_per_step: %.2f\n", steps, each);
  flush_all(run.last);
}

bool metrics_close(struct failure *why)
{
  rank_times_close();
  if (run.file && fclose(run.file) != 0) lose(run.options->metrics, run.last);
  run.file = NULL;
  if (run.events && fclose(run.events) != 0) lose(run.events_name, run.last);
  run.events = NULL;
  return !*run.lost.text ||
         failed(why, "%.500s: what was to be saved is saved, but not all was reported",
                run.lost.text);
}
