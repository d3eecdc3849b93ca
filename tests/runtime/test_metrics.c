// Reports of a run: lines for people, JSON for programs, NaN and infinities, a bar on a terminal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/program.h"
#include "temporary.h"

// ---- a program of two ranks --------------------------------------------------------------------

static struct {
  float loss, grad_norm;
} values;
void *rank_memory = &values;

static double learning_rate(int t)
{
  return 0.5 / t;
}

static struct program this_program = {.plan = "plan.lua",
                                      .world = 2,
                                      .loss = 0,
                                      .grad_norm = offsetof(__typeof__(values), grad_norm)};
static struct rank this_rank;

const struct program *program = &this_program;
const struct rank *rank = &this_rank;

// As it is, but for whose program it is.
#include "../../runtime/metrics/metrics.c"
#include "../../runtime/tensors/tensor_table.c"

void target_get(void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
}

void target_wait(void)
{
}

double target_peak_tflops(void)
{
  return 0;
}

double target_worked(void)
{
  return 0;
}

void target_combine(uint32_t *numbers, size_t count)
{
  (void)numbers, (void)count;
}

size_t target_peak(void)
{
  return (size_t)3 << 29;
}

long tokens_of_batch(void)
{
  return this_program.batches > 0 ? 500 : 0;
}

static const char *open_data = "text.txt, 1000 bytes";

bool batches_are_open(enum purpose purpose)
{
  return purpose == TRAINING;
}

const char *batches_summary(enum purpose purpose)
{
  (void)purpose;
  return open_data;
}

// ---- what it tells -----------------------------------------------------------------------------

static char said_path[64], said[8000], written[8000];

static int make_paths(void **state)
{
  if (make_directory(state) != 0) return -1;
  snprintf(said_path, sizeof said_path, "%s/said", directory);
  return 0;
}

// Nothing else may be left there.
static int remove_paths(void **state)
{
  unlink(path);
  unlink(said_path);
  return rmdir(directory) == 0 ? 0 : (remove_directory(state), -1);
}

static void read_text(const char *from, char *to, size_t size)
{
  FILE *f = fopen(from, "r");
  assert_non_null(f);
  to[fread(to, 1, size - 1, f)] = 0;
  assert_int_equal(fclose(f), 0);
}

static useconds_t save_takes; // microseconds; 0: nothing is saved

// Steps first to last, with the losses and norms that are reported; what is said is in `said`, what
// is written in `written`.
static void tell(const struct options *o, int first, int last, float loss, float norm)
{
  struct failure why = {""};
  fflush(stdout);
  int out = dup(1), err = dup(2);
  assert_non_null(freopen(said_path, "w", stdout));
  dup2(1, 2);
  memset(&run, 0, sizeof run);
  if (o->metrics) unlink(o->metrics);
  bool ok = metrics_open(o, first, last, &why);
  for (int t = first; ok && t <= last; t++) {
    values.loss = loss;
    values.grad_norm = norm;
    usleep(1000);
    metrics_step(t);
    if (!save_takes) continue;
    metrics_pause();
    usleep(save_takes);
    metrics_resume();
  }
  metrics_end(last);
  ok = ok && metrics_close(&why);
  fflush(stdout);
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);
  if (!ok) fail_msg("%s", why.text);
  read_text(said_path, said, sizeof said);
  if (o->metrics) read_text(path, written, sizeof written);
}

static void says(const char *text)
{
  if (!strstr(said, text)) fail_msg("said: %s\nnot: %s", said, text);
}

static void writes(const char *text)
{
  if (!strstr(written, text)) fail_msg("wrote: %s\nnot: %s", written, text);
}

static int lines(const char *text)
{
  int n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

// A program prints what it has.
static void few_numbers(void **state)
{
  (void)state;
  this_program.grad_norm = -1;
  tell(&(struct options){.log_every = 1, .metrics = path}, 1, 3, 2.5f, 0);
  says("plan.lua: 2 ranks");
  says("steps 1 to 3\n");
  says("\nstep: 2  loss: 2.5000  memory: 1.50GiB\n");
  writes("{\"step\":2,\"loss\":2.5,\"seconds\":");
  writes(",\"memory\":1610612736}\n");
  assert_int_equal(lines(written), 3);
  assert_null(strstr(written, "grad_norm"));
  assert_null(strstr(written, "tps"));
  this_program.grad_norm = offsetof(__typeof__(values), grad_norm);
}

static void all_numbers(void **state)
{
  (void)state;
  this_program.batches = 2;
  this_program.flops = 4e9;
  this_program.learning_rate = learning_rate;
  tell(&(struct options){.log_every = 4, .metrics = path, .peak_tflops = 1}, 7, 9, 0.00123456789f,
       1234567);
  says("steps 7 to 9\n");
  says("step: 8  loss: 1.2346e-03  grad_norm: 1234567.0000  memory: 1.50GiB  tps: ");
  says("%  lr: 6.2500e-02\n");
  assert_int_equal(lines(written), 2); // 8 and the last
  writes("{\"step\":8,\"loss\":0.00123456784,\"grad_norm\":1234567,\"seconds\":");
  double seconds, tps, all, tflops, mfu;
  const char *at = strstr(written, "\"seconds\":");
  assert_non_null(at);
  assert_int_equal(sscanf(at,
                          "\"seconds\":%lf,\"tps\":%lf,\"tokens_per_second\":%lf,\"tflops\":%lf,"
                          "\"mfu\":%lf,\"memory\":1610612736,\"lr\":0.0625}",
                          &seconds, &tps, &all, &tflops, &mfu),
                   5);
  assert_true(seconds > 0.0009 && seconds < 1);       // of a step, of the two since the beginning
  assert_true(fabs(all * seconds / 1000 - 1) < 1e-6); // two batches of 500 tokens
  assert_true(fabs(tps * 2 / all - 1) < 1e-6);
  assert_true(fabs(tflops * seconds / 0.002 - 1) < 1e-6);
  assert_true(fabs(mfu / tflops / 100 - 1) < 1e-6);
}

// Inputs that no file gives are reported, once, where there are any that are random.
static void random_inputs(void **state)
{
  (void)state;
  const char *note = "note: without --data the inputs are random numbers";
  struct tensor tensors[] = {
      {.name = {"w", NULL}, .role = PARAMETER, .count = 1, .init = {NORMAL, 0, 1}},
      {.name = {"x", NULL}, .role = BATCH, .count = 1, .init = {CONSTANT, 1, 0}}};
  const struct options quiet = {.log_every = 1},
                       given = {.log_every = 1, .data = {"a.safetensors"}};
  const char *was = open_data;
  this_program.tensors = tensors;
  this_program.ntensors = 2;
  open_data = "";
  tell(&quiet, 1, 2, 1, 1);
  assert_null(strstr(said, note));
  tensors[1].init.how = UNIFORM;
  tell(&quiet, 1, 2, 1, 1);
  says(", steps 1 to 2\nnote: without --data the inputs are random numbers, the same in every "
       "step\n");
  assert_null(strstr(strstr(said, note) + 1, note));
  this_program.loss = -1;
  tell(&quiet, 1, 2, 1, 1);
  says("\nnote: without --data the inputs are random numbers\n");
  this_program.loss = 0;
  tell(&given, 1, 2, 1, 1);
  assert_null(strstr(said, note));
  open_data = was;
  tell(&quiet, 1, 2, 1, 1);
  assert_null(strstr(said, note));
  this_rank.id = 1;
  open_data = "";
  tell(&quiet, 1, 2, 1, 1);
  assert_null(strstr(said, note));
  this_rank.id = 0;
  open_data = was;
  this_program.tensors = NULL;
  this_program.ntensors = 0;
}

// What saves take is no part of a step.
static void saves_do_not_count(void **state)
{
  (void)state;
  double seconds, microseconds;
  save_takes = 100000;
  tell(&(struct options){.log_every = 1, .metrics = path}, 1, 2, 1, 1);
  save_takes = 0;
  const char *last = strstr(written, "{\"step\":2"), *all = strstr(said, "us_per_step: ");
  assert_true(last && all);
  assert_int_equal(sscanf(strstr(last, "\"seconds\":"), "\"seconds\":%lf", &seconds), 1);
  assert_int_equal(sscanf(all, "us_per_step: %lf", &microseconds), 1);
  assert_true(seconds > 0.0009 && seconds < 0.05);
  assert_true(microseconds > 900 && microseconds < 50000);
}

// How often it warns.
static int warnings(void)
{
  int n = 0;
  for (const char *c = said; (c = strstr(c, "warning: ")); c++) n++;
  return n;
}

// What is no number is warned of once; JSON has none.
static void no_numbers(void **state)
{
  (void)state;
  tell(&(struct options){.log_every = 1, .metrics = path}, 1, 3, 1, 1);
  assert_int_equal(warnings(), 0);
  tell(&(struct options){.log_every = 1, .metrics = path}, 4, 6, NAN, 1);
  says("\n"
       "rank 0: warning: the loss is nan at step 4; training goes on\nstep: 5");
  assert_int_equal(warnings(), 1);
  tell(&(struct options){.log_every = 4, .metrics = path}, 2, 8, 1, -INFINITY);
  says("the norm of the gradients is -inf at step 4 (it was looked at last at step 1); training");
  assert_int_equal(warnings(), 1);
  tell(&(struct options){.log_every = 1, .metrics = path}, 1, 1, NAN, INFINITY);
  says("loss: nan  grad_norm: inf");
  writes("{\"step\":1,\"loss\":null,\"grad_norm\":null,");
}

static void thousands(void **state)
{
  (void)state;
  static const struct {
    double x;
    const char *text;
  } rows[] = {{0, "0"},           {7.4, "7"},
              {999, "999"},       {1000, "1,000"},
              {66667, "66,667"},  {123456.7, "123,457"},
              {1e6, "1,000,000"}, {1e300, "1,000,000,000,000,000"}};
  char text[32];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_string_equal(with_commas(rows[i].x, text), rows[i].text);
}

// A bar between the lines leaves them as they are; there is none where there is no terminal.
static void bar(void **state)
{
  (void)state;
  const struct options o = {.log_every = 300};
  tell(&o, 1, 300, 1, 1);
  assert_null(strchr(said, '\r'));
  setenv("TPGEN_TERMINAL", "1 60", 1);
  tell(&o, 1, 300, 1, 1);
  unsetenv("TPGEN_TERMINAL");
  says("[===");
  says("/300  0:0");
  const char *line = strstr(said, "step: 300");
  assert_non_null(line);
  assert_true(line[-1] == '\r' || line[-1] == '\n');
  for (const char *c = said; *c; c++) assert_true(*c != 033); // no colours
  char *end = strrchr(said, '\r');
  assert_true(end && end < line); // and nothing is left of it
}

// Only one rank tells.
static void other_ranks(void **state)
{
  (void)state;
  this_rank.id = 1;
  tell(&(struct options){.log_every = 1}, 1, 3, 1, 1);
  assert_string_equal(said, "");
  this_rank.id = 0;
}

static void no_file(void **state)
{
  (void)state;
  struct failure why = {""};
  memset(&run, 0, sizeof run);
  assert_false(metrics_open(&(struct options){.log_every = 1, .metrics = directory}, 1, 1, &why));
  assert_non_null(strstr(why.text, "cannot create: Is a directory"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(few_numbers),   cmocka_unit_test(all_numbers),
      cmocka_unit_test(no_numbers),    cmocka_unit_test(saves_do_not_count),
      cmocka_unit_test(thousands),     cmocka_unit_test(bar),
      cmocka_unit_test(other_ranks),   cmocka_unit_test(no_file),
      cmocka_unit_test(random_inputs),
  };
  return cmocka_run_group_tests(tests, make_paths, remove_paths);
}
