// SPDX-License-Identifier: MIT
// The main of every generated program: finds the identity, fills the tensors, runs the steps,
// saves.
#include <signal.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#ifdef __SSE__
#include <immintrin.h>
#endif
#include "base/json_memory.h"
#include "base/open_input.h"
#include "base/options.h"
#include "base/program.h"
#include "base/rank_log.h"
#include "base/target.h"
#include "checkpoint/across_ranks.h"
#include "data/batches.h"
#include "data/tokens.h"
#include "formats/safetensors.h"
#include "metrics/metrics.h"
#include "metrics/validation.h"
#include "start/dry_run.h"
#include "start/early_end.h"
#include "start/forward_all.h"
#include "start/not_finite.h"
#include "start/pace.h"
#include "start/resume.h"
#include "start/saves.h"
#include "tensors/checksums.h"
#include "tensors/ema.h"
#include "tensors/integer_inputs.h"
#include "tensors/row_bounds.h"
#include "tensors/tensors.h"

enum { WRONG_USAGE = 2 };

extern const struct rank this_rank; // of rank<N>.c

static struct identity me;

// ---- failing together --------------------------------------------------------------------------

static void complain(const struct failure *why)
{
  if (!*why->text) return; // another rank reports it
  fflush(stdout);
  fprintf(stderr, "rank %d: error: %s\n", me.rank, why->text);
  silence_local_ranks();
}

// Collective. True if all ranks are ok; else the first that is not reports why. No rank returns
// before that: the launcher ends the others when one exits.
bool all_ranks_ok(bool ok, const struct failure *why)
{
  int first = target_first_failure(ok);
  if (first < 0) return true;
  if (first == me.rank) complain(why);
  neighbours_reported();
  target_first_failure(true);
  return false;
}

// ---- the steps ---------------------------------------------------------------------------------

// Collective if the program computes indices: whether all of the steps up to t were valid.
static bool indices_are_right(int t)
{
  struct failure why = {""};
  return program->noted < 0 || all_ranks_ok(numbers_computed(t, &why), &why);
}

// Collective if the program has bounds of rows by expert: whether they held up to step t. If not,
// the results of the steps since then are lost.
static bool rows_are_within(int t)
{
  struct failure why = {""};
  char when[40];
  snprintf(when, sizeof when, "by step %d", t);
  return !program->row_bounds ||
         all_ranks_ok(rows_have_room(when, "; nothing computed since then is saved", &why), &why);
}

static bool numbers_are_right(int t)
{
  return indices_are_right(t) && rows_are_within(t);
}

// Collective. Step t has ended before its update: saves the results of the steps before it.
static void end_before_update(const struct options *o, int t, int first)
{
  struct failure why = {""};
  char when[40], then[PATH_MAX + 100] = "";
  snprintf(when, sizeof when, "in step %d", t);
  if (o->save && t > first && !saves_now(o, t - 1)) return;
  if (t > first && o->save)
    snprintf(then, sizeof then, "; %s has the checkpoint of step %d", o->save, t - 1);
  all_ranks_ok(rows_have_room(when, then, &why), &why);
}

// The work after a step, apart from reports.
struct step_work {
  bool tells, validates, saves, ends;
};

static struct step_work work_after(const struct options *o, int t)
{
  const bool is_last = t == o->steps;
  return (struct step_work){.tells = t % o->log_every == 0 || is_last,
                            .validates = validation_is_due(o, t, is_last),
                            .saves = o->save_every && t % o->save_every == 0};
}

// Collective. The result may end the training.
static void validate(const struct options *o, int t, struct step_work *work)
{
  ema_exchange(t);
  validation_run(t);
  ema_exchange(t);
  metrics_validation();
  work->saves |= o->keep_best && validations.best_step == t;
  work->ends = o->stop_after && validations.without >= o->stop_after;
  if (work->ends) metrics_stop(t);
}

// Reports it once, at the first such step or some steps later.
static void tell_not_finite(int t)
{
  static bool reported;
  struct not_finite first;
  if (reported || !target_not_finite(&first)) return;
  reported = true;
  char name[200];
  const char *star = strchr(first.name, '*');
  const int before = star ? (int)(star - first.name) : (int)strlen(first.name);
  snprintf(name, sizeof name, "%.*s", before, first.name);
  if (star) snprintf(name, sizeof name, "%.*s%d%s", before, first.name, first.module, star + 1);
  fflush(stdout);
  fprintf(stderr,
          "rank %d: warning: by step %d, %s (%s:%d) is %s at element %ld of this rank's part: the "
          "first value that is not finite\n",
          me.rank, t, name, plan_file(program->plan, first.line), plan_line(first.line),
          first.is_nan ? "nan" : "infinite", first.at);
}

// Collective. Saves the checkpoint of an early end, after step t, unless the folder has a later
// one.
static bool save_early(const struct options *o, int t)
{
  saves_wait();
  bool stays = me.rank == 0 && resume_is_behind(o, t);
  target_share(&stays, sizeof stays);
  return stays || saves_now(o, t);
}

// *last is the last step that was run. *early: that is not the last one of the job, and what there
// is by then is saved.
static bool run_steps(const struct options *o, int first, int *last, bool *early)
{
  struct step_work none = {0};
  if (first > o->steps && validation_is_due(o, o->steps, true)) validate(o, o->steps, &none);
  for (int t = first; t <= o->steps; t++) {
    struct step_work work = work_after(o, t);
    struct failure why;
    if (o->on_nan == NAN_SKIP && !all_ranks_ok(step_note(o, &why), &why)) return false;
    watch_step(t);
    target_step(t);
    const bool asks = t < o->steps && pace_is_due(t);
    if (asks) saves_look();
    *early = asks && early_end_is_due();
    if (step_has_ended_early()) {
      end_before_update(o, t, first);
      return false;
    }
    if ((work.saves || work.tells || work.validates || *early) && !numbers_are_right(t))
      return false;
    if (work.tells) tell_not_finite(t);
    metrics_step(t);
    *last = t;
    if (step_is_not_finite(o)) {
      if (!step_is_left(o, &t)) return false;
      continue;
    }
    if (!work.validates && !work.saves && !*early) continue;
    metrics_pause();
    if (work.validates) validate(o, t, &work);
    if (work.validates && !rows_are_within(t)) return false;
    if (*early && !work.ends) return save_early(o, t);
    if (work.saves && !(work.ends || t == o->steps ? saves_now(o, t) : saves_during(o, t)))
      return false;
    metrics_resume();
    if (work.ends) break;
  }
  return true;
}

// ---- the whole ---------------------------------------------------------------------------------

// An inference program has one batch, which is read with the weights.
static bool is_of_one_batch(const struct options *o)
{
  const char *path = o->data[0];
  const bool tokens = tokens_of_batch() > 0 && (o->tokens || !path || !safetensors_is_named(path));
  return program->loss < 0 && path && !tokens && !forward_all_is_due();
}

// Whether the bytes of a text may be the tokens: not where the folder of the weights has a
// tokenizer.
static bool bytes_are_tokens(const struct options *o, struct failure *why)
{
  char path[PATH_MAX], file[PATH_MAX];
  const char *folder = weights_folder(o, path);
  struct stat about;
  if (!folder || snprintf(file, sizeof file, "%s/tokenizer.json", folder) >= PATH_MAX ||
      stat(file, &about) != 0)
    return true;
  return failed(
      why,
      "%s: its bytes would be the tokens, but the model's are those of %s: give lines "
      "{\"text\": ...} in a .jsonl file, or files of tokens; --tokens bytes takes the bytes",
      o->data[0], file);
}

// --epochs: the steps that go so many times through the data.
static bool count_steps(struct options *o, struct failure *why)
{
  const long batches = batches_of_epoch(TRAINING);
  if (batches == 0)
    return failed(why, "--epochs: a text that is read from beginning to end is no list of samples: "
                       "say --steps N, or "
                       "shuffle in the plan");
  const double steps = ceil((double)batches * o->epochs / (double)program->batches);
  if (steps > INT_MAX / 2) return failed(why, "--epochs %d: they are too many steps", o->epochs);
  o->steps = (int)steps;
  return true;
}

static bool open_data(struct options *o, struct failure *why)
{
  if (o->tokens && tokens_of_batch() == 0)
    return failed(why, "--tokens %s: this program reads no tokens", o->tokens);
  const bool goes_forward = program->loss < 0 && !program->generation;
  if (goes_forward && !forward_all_open(o, why)) return false;
  if (o->data[0] && !is_of_one_batch(o) && !forward_all_is_due() &&
      !batches_open(TRAINING, o->data, o->tokens, why))
    return false;
  if (o->epochs && !count_steps(o, why)) return false;
  return (o->tokens || !batches_are_bytes() || bytes_are_tokens(o, why)) &&
         (goes_forward || validation_open(o, why));
}

// Whether there are steps to do after those of the checkpoint.
static bool trains_on(const struct options *o, int step, struct failure *why)
{
  if (step <= o->steps || program->loss < 0) return true;
  return failed(why,
                "%s: its training has done step %d, and step %d is to be the last: say more "
                "by --steps N",
                o->load, step, o->steps);
}

// Collective.
static bool fill(struct options *o, int *step)
{
  struct failure note = {""}, why = {""};
  struct origins from = {.weights = o->weights,
                         .more_weights = o->more_weights,
                         .patterns = {o->ignore, o->allow_missing},
                         .adapter = o->adapter,
                         .load = o->load,
                         .note = &note};
  if (is_of_one_batch(o)) from.data = o->data[0];
  from.without_inputs = batches_give_all();
  const bool ok = fill_together(&from, !o->no_verify && (o->weights || o->load), step);
  if (*note.text) printf("note: %s\n", note.text);
  if (o->evaluate) o->steps = *step;
  return ok && all_ranks_ok(trains_on(o, *step, &why), &why);
}

static bool is_one_job(struct failure *why)
{
  return all_ranks_ok(launch_fits(&me, program->world, rank->id, why), why) &&
         all_ranks_ok(target_same_program(why), why);
}

static bool prepare(struct options *o, int *step)
{
  struct failure why = {""};
  if (!is_one_job(&why)) return false;
  target_groups();
  resume_choose(o);
  rank_memory = target_allocate(program->bytes, &why);
  if (!all_ranks_ok(rank_memory != NULL, &why)) return false;
  program->set_memory(rank_memory);
  target_begin();
  if (!saves_open(o)) return false;
  if (o->data[0] || o->weights || o->adapter || o->load) set_deadline_factor(FILES);
  return all_ranks_ok(open_data(o, &why) && (!o->ema || ema_open(&why)), &why) && fill(o, step) &&
         all_ranks_ok(
             batches_check(TRAINING, *step * program->batches, o->steps * program->batches, &why) &&
                 validation_check(&why) &&
                 (me.rank != 0 || o->dry_run || resume_replaces_none(o, *step, &why)),
             &why);
}

// Trains, or goes forward once, from the step behind `step` on. *early: it has ended before its
// last step.
static bool train(const struct options *o, int step, bool *early)
{
  struct failure why = {""};
  int last = step;
  if (!all_ranks_ok(metrics_open(o, step + 1, o->steps, &why), &why)) return false;
  if (o->save && program->loss >= 0) {
    pace_open();
    saves_prepare(o);
    early_end_open(o);
  }
  if (forward_all_is_due()) return saves_of_all(o) && all_ranks_ok(metrics_close(&why), &why);
  if (!run_steps(o, step + 1, &last, early)) return false;
  metrics_end(last);
  if (*early) early_end_tell(o, last);
  return (*early || ((!o->save || saves_now(o, last)) && saves_export(o, last))) &&
         all_ranks_ok(metrics_close(&why), &why);
}

// Returns the status of the process.
static int run(struct options *o)
{
  int step = 0;
  bool early = false, ok = prepare(o, &step);
  set_deadline_factor(1);
  if (ok && program->generation) {
    ok = program->generation->run(o, all_ranks_ok);
  } else if (ok && o->dry_run) {
    dry_run(o, step);
    ok = numbers_are_right(step);
  } else {
    ok = ok && train(o, step, &early);
  }
  return !ok ? EXIT_FAILURE : early ? ENDED_EARLY : EXIT_SUCCESS;
}

// ---- looking at a checkpoint -------------------------------------------------------------------

// Rank 0 reports all that is wrong, or that nothing is.
static bool tell_of_checks(const struct archive *archive, const struct checks *checks, bool has)
{
  struct failure why;
  const char *step = archive_metadata(archive, "step");
  size_t wrong = 0;
  for (size_t i = 0; has && i < checks->count; i++) {
    if (checks_hold(checks, i, &why)) continue;
    wrong++;
    if (me.rank == 0) complain(&why);
  }
  if (me.rank != 0 || wrong > 0) return wrong == 0;
  printf("%s: %zu tensors in %zu file%s%s%s: %s\n", archive->path, archive->count, archive->nfiles,
         archive->nfiles == 1 ? "" : "s", step ? ", step " : "", step ? step : "",
         has ? "as they were saved"
             : "whole, but without checksums: nothing shows whether bytes have changed");
  return fflush(stdout) == 0;
}

// Collective. Each rank reads its part of each tensor.
static bool look_at(const char *path)
{
  struct failure why = {""};
  struct archive archive = {0};
  struct checks checks = {0};
  bool has = false;
  if (!is_one_job(&why)) return false;
  target_groups(); // target_stop releases them
  bool ok =
      all_ranks_ok(archive_open(&archive, path, &why) && verify_headers(&archive, &has, &why) &&
                       checks_make(&checks, archive.count, &why) &&
                       verify_read(&archive, me.rank, program->world, &checks, &why),
                   &why);
  if (ok) {
    target_combine(checks.shares, checks.count);
    ok = all_ranks_ok(tell_of_checks(&archive, &checks, has), &why);
  }
  checks_free(&checks);
  archive_close(&archive);
  return ok;
}

static void meet_neighbours(void)
{
  struct neighbour *list;
  int n = target_neighbours(&list);
  neighbours_are(list, n);
  free(list);
}

// Threads have what the limit says, and kernels have their blocks there.
static bool has_stack(struct failure *why)
{
  enum { LEAST = 256 }; // KiB
  struct rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= LEAST << 10) return true;
  return failed(why, "a stack may have %ld KiB only, and a rank needs %d: say ulimit -s 8192",
                (long)(stack.rlim_cur >> 10), LEAST);
}

int main(int argc, char **argv)
{
  struct options options;
  struct failure why = {""};
  target_prepare(argv);
  rank = &this_rank;
  program = rank->program;
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() |
             0x8040); // flush denormals to zero, and read them as zero: they are slow
#endif
  signal(SIGXFSZ, SIG_IGN); // a file above the limit is an error to report, not a reason to die
  signal(SIGPIPE, SIG_IGN); // so is a pipe without a reader
  json_memory_start();
  bool known = launch_identity(&me, &why);
  if (known && !options_read(&options, argc, argv, me.rank == 0)) return WRONG_USAGE;
  if (known && options.help) {
    if (me.rank == 0) options_help();
    return EXIT_SUCCESS;
  }
  if (known && options.encode) {
    bool done = program->generation->encode(&options, &why);
    if (!done) complain(&why);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  if (known &&
      ((options.graph && !target_capture(&why)) || (options.profile && !target_profile(&why)))) {
    if (me.rank == 0) complain(&why);
    return WRONG_USAGE;
  }
  if (known && (options.stragglers || options.logs)) target_measure_work(options.stragglers);
  if (known && options.logs) known = rank_log_open(options.logs, me.rank, &why);
  if (known) neighbours_start(&me);
  if (known) watch_start(options.deadline);
  if (!known || !has_stack(&why) || !target_start(&me, &why)) {
    nanosleep(&(struct timespec){0, 100000000}, NULL); // others may not yet hear that it's reported
    if (neighbours_want_report(me.rank)) complain(&why);
    return EXIT_FAILURE;
  }
  meet_neighbours();
  if (options.verify) set_deadline_factor(FILES);
  const int status = !options.verify           ? run(&options)
                     : look_at(options.verify) ? EXIT_SUCCESS
                                               : EXIT_FAILURE;
  saves_close();
  watch_parting();
  batches_close();
  ema_close();
  target_stop();
  watch_stop();
  rank_log_close();
  return status;
}
