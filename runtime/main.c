// The main of every generated program: who am I, fill the tensors, run the steps, save.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef __SSE__
#include <immintrin.h>
#endif
#include "checkpoint.h"
#include "data.h"
#include "metrics.h"
#include "numbers.h"
#include "options.h"
#include "program.h"
#include "target.h"
#include "tensors.h"

enum { WRONG_USAGE = 2 };
enum { FILES = 10 }; // deadlines: some ranks have much to read or write, and others nothing

static struct identity me;

// ---- failing together --------------------------------------------------------------------------

static void complain(const struct failure *why)
{
  if (!*why->text) return; // another rank says it
  fflush(stdout);
  fprintf(stderr, "rank %d: error: %s\n", me.rank, why->text);
  neighbours_hush();
}

// Collective. True where all ranks are ok; else the first that is not says why.
static bool all_ok(bool ok, const struct failure *why)
{
  int first = target_first_failure(ok);
  if (first == me.rank) complain(why);
  return first < 0;
}

// ---- saving ------------------------------------------------------------------------------------

// Collective.
static bool save(const struct saving *what)
{
  struct failure why = {""};
  bool first = me.rank == 0;
  watch_patience(FILES);
  struct save *s = save_plan(what, &why);
  bool saved = all_ok(s && (!first || save_create(s, &why)), &why) &&
               all_ok(save_write(s, &why), &why) && all_ok(!first || save_commit(s, &why), &why);
  if (!saved && first && s) save_abandon(s);
  save_end(s);
  watch_patience(1);
  return saved;
}

static bool save_checkpoint(const struct options *o, int step)
{
  return save(&(struct saving){o->save, CHECKPOINT, step, o->shard_bytes});
}

static bool save_export(const struct options *o, int step)
{
  return save(&(struct saving){o->export_to, EXPORT, step, o->shard_bytes});
}

// Makes the folders before there is work to lose. An export in the checkpoint's folder would
// replace it.
static bool make_folders(const struct options *o, struct failure *why)
{
  struct stat a, b;
  if (me.rank != 0) return true;
  if ((o->save && !save_directory(o->save, why)) ||
      (o->export_to && !save_directory(o->export_to, why)))
    return false;
  if (o->save && o->export_to && program.loss >= 0 && stat(o->save, &a) == 0 &&
      stat(o->export_to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
    return failed(why, "%s: --save and --export want folders of their own", o->export_to);
  return true;
}

// ---- the steps ---------------------------------------------------------------------------------

// Collective where the program computes indices: were they right in all steps up to t?
static bool indices_are_right(int t)
{
  struct failure why = {""};
  return program.noted < 0 || all_ok(numbers_computed(t, &why), &why);
}

// The step `saved` is in the folder already.
static bool run_steps(const struct options *o, int first, int *saved)
{
  for (int t = first; t <= o->steps; t++) {
    bool saves = o->save_every && t % o->save_every == 0;
    bool tells = t % o->log_every == 0 || t == o->steps;
    watch_step(t);
    target_step(t);
    if ((saves || tells) && !indices_are_right(t)) return false;
    metrics_step(t);
    if (!saves) continue;
    metrics_pause();
    if (!save_checkpoint(o, t)) return false;
    metrics_resume();
    *saved = t;
  }
  return true;
}

// ---- the whole ---------------------------------------------------------------------------------

static bool open_data(const struct options *o, struct failure *why)
{
  if (!o->data || data_is_tokens(o->data, o->tokens))
    return !o->data || data_open(o->data, o->tokens, why);
  if (!o->tokens) return true;
  return failed(why, "--tokens %s: this program reads no tokens", o->tokens);
}

static bool fill(const struct options *o, int *step, struct failure *why)
{
  struct origins from = {o->weights, o->load, o->data};
  if (o->data && data_is_tokens(o->data, o->tokens)) from.data = NULL;
  if (!tensors_fill(&from, step, why)) return false;
  if (*step <= o->steps || program.loss < 0) return true;
  return failed(why,
                "%s: its training has done step %d, and step %d is to be the last: say more "
                "by --steps N",
                o->load, *step, o->steps);
}

static bool prepare(const struct options *o, int *step)
{
  struct failure why = {""};
  if (!all_ok(launch_fits(&me, program.world, rank.id, &why), &why)) return false;
  if (!all_ok(target_same_program(&why), &why)) return false;
  target_groups();
  *program.memory = target_allocate(program.bytes, &why);
  if (!all_ok(*program.memory != NULL, &why) || !all_ok(make_folders(o, &why), &why)) return false;
  if (o->data || o->weights || o->load) watch_patience(FILES);
  return all_ok(open_data(o, &why), &why) && all_ok(fill(o, step, &why), &why) &&
         all_ok(data_check(*step * program.batches, o->steps * program.batches, &why), &why);
}

static bool run(const struct options *o)
{
  struct failure why = {""};
  int step = 0, saved = -1;
  bool prepared = prepare(o, &step);
  watch_patience(1);
  if (!prepared || !all_ok(metrics_open(o, step + 1, o->steps, &why), &why)) return false;
  if (!run_steps(o, step + 1, &saved)) return false;
  if (!all_ok(metrics_close(&why), &why)) return false;
  return (!o->save || saved == o->steps || save_checkpoint(o, o->steps)) &&
         (!o->export_to || save_export(o, o->steps));
}

static void meet_neighbours(void)
{
  struct neighbour *list;
  int n = target_neighbours(&list);
  neighbours_are(list, n);
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
  if (known && !options_read(&options, argc, argv, me.rank == 0)) return WRONG_USAGE;
  if (known && options.help) {
    if (me.rank == 0) options_help();
    return EXIT_SUCCESS;
  }
  if (known &&
      ((options.graph && !target_capture(&why)) || (options.profile && !target_profile(&why)))) {
    if (me.rank == 0) complain(&why);
    return WRONG_USAGE;
  }
  if (known) neighbours_start(&me);
  if (known) watch_start(options.deadline);
  if (!known || !target_start(&me, &why)) {
    complain(&why);
    return EXIT_FAILURE;
  }
  meet_neighbours();
  bool ok = run(&options);
  watch_parting();
  data_close();
  target_stop();
  watch_stop();
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
