// SPDX-License-Identifier: MIT
#include "start/resume.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/program.h"
#include "base/target.h"
#include "checkpoint/save_folder.h"
#include "formats/safetensors_set.h"
#include "metrics/validation.h"

static bool has(const char *folder, const char *name)
{
  char path[PATH_MAX];
  return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
         access(path, F_OK) == 0;
}

static bool has_checkpoint(const char *folder)
{
  return has(folder, SINGLE) || has(folder, INDEX);
}

void resume_choose(struct options *o)
{
  if (!o->resume) return;
  bool loads = rank->id == 0 && has_checkpoint(o->resume);
  target_share(&loads, sizeof loads);
  if (rank->id == 0 && !loads) printf("note: %s has no checkpoint yet\n", o->resume);
  if (!loads) return;
  o->load = o->resume;
  o->weights = o->adapter = o->more_weights[0] = o->ignore[0] = o->allow_missing[0] = NULL;
}

int resume_step(const char *folder)
{
  struct failure unused;
  struct archive archive;
  if (!has_checkpoint(folder) || !archive_open(&archive, folder, &unused)) return -1;
  const char *text = archive_metadata(&archive, "step");
  const int step = text ? (int)strtol(text, NULL, 10) : -1;
  archive_close(&archive);
  return step;
}

// The first step behind `step` after which the job saves, or `most`, if it is before that.
static int first_save(const struct options *o, int step, int most)
{
  int t = step + 1;
  while (t < most && t < o->steps && !(o->save_every && t % o->save_every == 0) &&
         !(o->keep_best && validation_is_due(o, t, false)))
    t++;
  return t;
}

bool resume_replaces_none(const struct options *o, int step, struct failure *why)
{
  if (!o->save || o->overwrite || program->loss < 0) return true;
  const int saved = resume_step(o->save);
  if (saved <= step || first_save(o, step, saved) >= saved) return true;
  return failed(
      why,
      "%s: it has the checkpoint of step %d, and this job, from step %d on, would replace "
      "it by that of step %d: --resume %s goes on from it, --overwrite replaces it",
      o->save, saved, step + 1, first_save(o, step, saved), o->save);
}

bool resume_is_behind(const struct options *o, int t)
{
  return !o->overwrite && resume_step(o->save) > t;
}
