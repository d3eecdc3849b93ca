// SPDX-License-Identifier: MIT
#include "start/saves.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/open_input.h"
#include "base/program.h"
#include "base/target.h"
#include "checkpoint/across_ranks.h"
#include "checkpoint/background_save.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/keep_checkpoints.h"
#include "checkpoint/model_files.h"
#include "checkpoint/save_folder.h"
#include "metrics/validation_results.h"
#include "tensors/adapters.h"
#include "start/forward_all.h"
#include "tensors/ema.h"

// Rank 0 holds them until the end, so that no other job writes there.
static struct folder save_folder = {.fd = -1}, export_folder = {.fd = -1},
                     adapter_folder = {.fd = -1};
static char token[TOKEN];
static int saved = -1; // the step of the last checkpoint

static bool same_folder(const char *one, const char *other)
{
  struct stat a, b;
  return one && other && stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

static bool is_best(int t)
{
  return validations.best_step == t;
}

static bool keep(const struct options *o, int step, bool best, struct failure *why)
{
  char name[KEPT_NAME];
  if (o->keep_best && best && !keep_checkpoint(o->save, "best", why)) return false;
  return !o->keep ||
         (keep_checkpoint(o->save, keep_name(step, name), why) && keep_last(o->save, o->keep, why));
}

const char *weights_folder(const struct options *o, char to[PATH_MAX])
{
  struct stat about;
  if (!o->weights || stat(o->weights, &about) != 0 || S_ISDIR(about.st_mode)) return o->weights;
  const char *slash = strrchr(o->weights, '/');
  snprintf(to, PATH_MAX, "%.*s", slash ? (int)(slash - o->weights) + 1 : 1,
           slash ? o->weights : ".");
  return to;
}

// Of rank 0. Others need the files beside the weights, too, to load what it saves.
static bool copy_model_files(const struct options *o, const char *folder, struct failure *why)
{
  char path[PATH_MAX];
  const char *from = o->load ? o->load : weights_folder(o, path);
  return rank->id != 0 || !from || program->loss < 0 || same_folder(from, folder) ||
         model_files_copy(from, folder, why);
}

// Of rank 0, after a checkpoint: what belongs to it.
static bool complete(const struct options *o, int step, bool best, struct failure *why)
{
  static bool has_files;
  if (!has_files && !copy_model_files(o, o->save, why)) return false;
  has_files = true;
  return keep(o, step, best, why);
}

static bool complete_beside(const struct background_save *of, struct failure *why)
{
  return complete(of->context, of->what.step, of->is_best, why);
}

static struct saving checkpoint_of(const struct options *o, int t)
{
  return (struct saving){o->save, CHECKPOINT, t, o->shard_bytes, token, &save_folder, 0};
}

static bool saves_beside_steps(const struct options *o)
{
  return o->save && program->loss >= 0 && o->save_every && !o->save_at_once;
}

size_t saves_copy_bytes(const struct options *o)
{
  const struct saving what = checkpoint_of(o, 0);
  return saves_beside_steps(o) ? background_save_bytes(&what) : 0;
}

void saves_prepare(const struct options *o)
{
  const struct saving what = checkpoint_of(o, 0);
  if (saves_beside_steps(o)) background_save_prepare(&what);
}

void saves_wait(void)
{
  const int step = background_save_finish();
  if (step >= 0) saved = step;
}

void saves_look(void)
{
  background_save_look();
}

bool saves_of_all(const struct options *o)
{
  const struct saving what = checkpoint_of(o, 1);
  return forward_all(o->save ? &what : NULL);
}

bool saves_now(const struct options *o, int t)
{
  struct failure why = {""};
  const struct saving what = checkpoint_of(o, t);
  saves_wait();
  if (saved == t) return true;
  if (!save_together(&what) ||
      !all_ranks_ok(rank->id != 0 || complete(o, t, is_best(t), &why), &why))
    return false;
  saved = t;
  return true;
}

bool saves_during(const struct options *o, int t)
{
  static bool told;
  const struct background_save what = {checkpoint_of(o, t), complete_beside, o, is_best(t)};
  saves_wait();
  if (!o->save_at_once && background_save_begin(&what)) return true;
  if (rank->id == 0 && !o->save_at_once && !told)
    printf("note: there is no memory to save beside the steps: a save stops them\n");
  told = true;
  return saves_now(o, t);
}

static bool save_export(const struct options *o, int step)
{
  struct failure why = {""};
  struct folder *folder = export_folder.path ? &export_folder : &save_folder;
  return save_together(
             &(struct saving){o->export_to, EXPORT, step, o->shard_bytes, token, folder, 0}) &&
         all_ranks_ok(copy_model_files(o, o->export_to, &why), &why);
}

// Collective.
static bool save_adapter(const struct options *o, int step)
{
  struct failure why = {""};
  return save_together(
             &(struct saving){o->export_adapter, ADAPTER, step, 0, token, &adapter_folder, 0}) &&
         all_ranks_ok(
             rank->id != 0 || adapters_describe(o->export_adapter, o->weights, token, &why), &why);
}

bool saves_export(const struct options *o, int t)
{
  ema_exchange(t);
  return (!o->export_to || save_export(o, t)) && (!o->export_adapter || save_adapter(o, t));
}

// Makes the folder at `path`, and takes it.
static bool take_folder(struct folder *folder, const char *path, const char *weights, bool outputs,
                        struct failure *why)
{
  struct failure note;
  if (!path) return true;
  if (!folder_make(path, why)) return false;
  if (!outputs && same_folder(path, weights))
    return failed(why, "%s: --weights come from this folder: save and export to another one", path);
  if (!folder_is_ours(path, outputs, why) || !folder_take(folder, path, token, &note, why))
    return false;
  if (*note.text) fprintf(stderr, "note: %s\n", note.text);
  return true;
}

// The folder of --export-adapter, one of its own.
static bool take_adapter_folder(const struct options *o, struct failure *why)
{
  struct failure note, reason;
  struct stat about;
  char path[PATH_MAX];
  const char *folder = o->export_adapter;
  if (!folder) return true;
  if (!folder_make(folder, why)) return false;
  if (same_folder(folder, o->save) || same_folder(folder, o->export_to) ||
      same_folder(folder, o->adapter))
    return failed(why, "%s: --export-adapter wants a folder of its own", folder);
  snprintf(path, sizeof path, "%s/%s", folder, ADAPTER_FILE);
  if (stat(path, &about) == 0 && !folder_wrote(folder, ADAPTER_FILE, &reason))
    return folder_refuses(folder, ADAPTER_FILE, &reason, why);
  if (!folder_take(&adapter_folder, folder, token, &note, why)) return false;
  if (*note.text) fprintf(stderr, "note: %s\n", note.text);
  return true;
}

// Called before there is work to lose. An export in the checkpoint's folder would replace the
// checkpoint; with outputs there is no conflict.
static bool take_folders(const struct options *o, struct failure *why)
{
  char path[PATH_MAX];
  const char *weights = weights_folder(o, path);
  const bool outputs = program->loss < 0;
  if (rank->id != 0) return true;
  if (!take_folder(&save_folder, o->save, weights, outputs, why)) return false;
  if (o->keep_best && !keep_is_free(o->save, "best", why)) return false;
  if (!take_adapter_folder(o, why)) return false;
  if (!same_folder(o->save, o->export_to))
    return take_folder(&export_folder, o->export_to, weights, false, why);
  if (outputs) return folder_is_ours(o->export_to, false, why);
  return failed(why, "%s: --save and --export want folders of their own", o->export_to);
}

bool saves_open(const struct options *o)
{
  struct failure why = {""};
  if (rank->id == 0) folder_token(token);
  target_share(token, sizeof token);
  return o->dry_run || all_ranks_ok(take_folders(o, &why), &why);
}

void saves_close(void)
{
  background_save_close();
  folder_release(&save_folder);
  folder_release(&export_folder);
  folder_release(&adapter_folder);
}
